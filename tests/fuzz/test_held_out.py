"""Rules about numbers and two extents; and what other cases do not bear out is not said."""

import pytest

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.triage.failure_conditions import learn_gates
from kernel_assay.fuzz.triage.number_conditions import comparisons, number_rules
from kernel_assay.fuzz.triage.shrinker import Shrinker
from kernel_assay.kernels.catalog import user_subject

WRONG = """OP = "{op}"
import numpy as np
def run(out, {names}):
    with np.errstate(all="ignore"):
        {right}
        if {rule}:
            out[...] = 9
"""
SOFTMAX = (
    "e = np.exp(x * 1.0 * scale - (x * 1.0 * scale).max(1, keepdims=True)); out[...] = e / e.sum(1, keepdims=True)"
)
OPS = {
    "softmax": ("x, *, scale=1.0", SOFTMAX),
    "gemm_int8": (
        "a, b, c, *, alpha, beta",
        "out[...] = alpha * (a.astype(np.int64) @ b.astype(np.int64)) + beta * c.astype(np.int64)",
    ),
}


def tensor(dtype, *shape):
    return TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution="ones"))


def softmax(rows, cols, scale=1.0):
    return Case(op="softmax", tensors={"x": tensor("float32", rows, cols)}, attrs={"scale": scale})


def product(m, n, k, alpha=1, beta=0):
    tensors = {"a": tensor("int8", m, k), "b": tensor("int8", k, n), "c": tensor("int32", m, n)}
    return Case(op="gemm_int8", tensors=tensors, attrs={"alpha": alpha, "beta": beta})


def learned(tmp_path, rule, small, original):
    names, right = OPS[small.op]
    (tmp_path / "wrong.py").write_text(WRONG.format(op=small.op, names=names, right=right, rule=rule))
    key = f"{small.op}/wrong"
    with Examiner([user_subject(str(tmp_path / "wrong.py"), ())]) as examiner:
        verdicts = [examiner.check([CheckRequest(case, (key,))])[0].verdicts[key] for case in (small, original)]
        assert all(verdict.failed for verdict in verdicts)
        return learn_gates(Shrinker(examiner, key, verdicts[0]), small, original)


@pytest.mark.parametrize(
    ("rule", "small", "original", "said"),
    [
        ("scale < 0", softmax(1, 2, -2.0), softmax(4, 9, -2.0), {"scale < 0"}),
        ("np.frexp(scale)[0] != 0.5", softmax(1, 2, 0.3), softmax(4, 9, -2.0), {"scale is no power of two"}),
        ("alpha == 3", product(1, 1, 1, 3), product(4, 9, 5, 3), {"alpha == 3"}),
        ("beta < 0", product(1, 1, 1, 1, -2), product(4, 9, 5, 1, -2), {"beta < 0"}),
        ("a.shape[0] > a.shape[1]", product(2, 1, 1), product(30, 9, 5), {"m > k"}),
        ("a.shape == b.shape == c.shape", product(4, 4, 4), product(7, 7, 7), set()),
        ("x.shape[0] == x.shape[1]", softmax(3, 3), softmax(9, 9), {"rows == cols"}),
        ("x.shape[1] & (x.shape[1] - 1) == 0", softmax(1, 2), softmax(3, 64), {"cols is a power of two"}),
        ("x.shape[1] in (3, 4, 5, 7, 11, 13, 300)", softmax(1, 3), softmax(3, 11), set()),
    ],
)
def test_what_is_learned(tmp_path, rule, small, original, said):
    assert set(learned(tmp_path, rule, small, original)) == {f"fails only if {text}" for text in said}


def test_a_size_that_only_happens_to_fit_is_not_said(tmp_path):
    """The largest number that anybody tries is 3 * 256: what lies beyond is told by cases that taught nothing."""
    rule = "x.shape[1] == 33 or x.shape[1] > 40 and x.shape[1] % 5 == 2 and x.shape[1] not in (62, 67, 127, 512, 257)"
    assert not [gate for gate in learned(tmp_path, rule, softmax(1, 33), softmax(3, 33)) if "cols ==" in gate]


@pytest.mark.parametrize(
    ("fails", "rule"),
    [
        ({1.0: False, -2.0: True, -0.3: True}, "scale < 0"),
        ({1.0: False, 0.3: True, 0.5: False, 3.0: True}, "scale is no power of two"),
        ({1: False, 3: True, 5: False}, "scale == 3"),
        ({0: False, 3: True, 5: True, 4: True}, "scale > 0"),
        ({3.0: False, 0.3: True, 0.7: True}, "scale != 3.0"),
        ({0.1: False, 0.3: True, 0.7: True}, ""),
    ],
)
def test_the_plainest_rule_about_a_number_comes_first(fails, rule):
    fitting = (text for text, holds in number_rules("scale", fails) if all(holds(v) is f for v, f in fails.items()))
    assert next(fitting, "") == rule


def test_no_two_comparisons_are_the_same():
    pairs = [(m, n) for m in range(1, 9) for n in range(1, 9)]
    held = [tuple(holds(pair) for pair in pairs) for _, holds in comparisons("m", "n")]
    assert len(set(held)) == len(held)
