"""What a mask hides makes nothing of a row exact, nor anything of it more uncertain, however large it is."""

import numpy as np
import pytest

from kernel_assay.corpus.formats import bits_of, format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.judge import judge
from kernel_assay.oracles.judging.reference import Reference

SCALE = 0.3


def case_of(x, mask, dtype):
    def recipe(values):
        kind = format_of(dtype).dtype
        pokes = tuple((i, bits_of(value, kind)) for i, value in enumerate(values))
        return TensorRecipe(shape=(1, len(values)), dtype=dtype, pokes=pokes)

    return Case(op="softmax", tensors={"x": recipe(x), "mask": recipe(mask)}, attrs={"scale": SCALE})


def softmax(x, mask, *, fused):
    """In the arithmetic of x: products and sums rounded together, or one after the other."""
    kind, wide = x.dtype.type, np.longdouble if x.dtype == np.float64 else np.float64
    with np.errstate(all="ignore"):
        at_once = (wide(kind(SCALE)) * x.astype(wide) + mask.astype(wide)).astype(kind)
        s = at_once if fused else kind(SCALE) * x + mask
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)


def verdict(case, values):
    reference = Reference(contract_of("softmax"), case, materialize_all(case))
    report = OutputReport(name="out", shape=values.shape, dtype=case.dtype, contiguous=True)
    subject = Subject(op="softmax", name="mine", backend="numpy", path="mine.py")
    execution = Execution(status=Status.OK, subject=subject.key, outputs=(report,))
    return judge(reference, subject, execution, {"out": values})


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("hidden", [0.3, 0.9])
def test_a_huge_score_that_is_hidden_leaves_the_others_their_error(dtype, fused, hidden):
    large = 2.0 ** (24 if dtype == "float64" else 12)
    x = (hidden * format_of(dtype).max, large, large)
    case = case_of(x, (-np.inf, 0.0906985745326192, 0.0), dtype)
    inputs = materialize_all(case)
    found = verdict(case, softmax(inputs["x"], inputs["mask"], fused=fused))
    assert found.kind is Kind.PASS, found.message


def test_it_makes_the_others_no_freer_either():
    """With a hidden 3e307 and with a hidden 1, the budgets of the row are the same."""
    large, mask = 2.0**24, (-np.inf, 0.0906985745326192, 0.0)
    budgets = []
    for hidden in (3e307, 1.0):
        case = case_of((hidden, large, large), mask, "float64")
        reference = Reference(contract_of("softmax"), case, materialize_all(case))
        budgets.append(reference.budget(Numerics())["out"].error)
    assert np.array_equal(*budgets)
    assert (budgets[0][0, 1:] < 1e-8).all()
