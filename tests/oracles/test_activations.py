"""Products of an activation and a second input at the end of the range."""

import numpy as np
import pytest

from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.judge import judge
from kernel_assay.oracles.judging.reference import Reference

MOST = np.finfo(np.float64).max


def kind_of(op, gate, up, out, **attrs):
    """The verdict on a result of float64."""
    numbers = {"gate": gate, "up": up}
    tensors = {
        name: TensorRecipe(
            shape=(1, 1),
            dtype="float64",
            fill=Fill(distribution="ones"),
            pokes=((0, int(np.float64(x).view(np.uint64))),),
        )
        for name, x in numbers.items()
    }
    case = Case(op=op, tensors=tensors, attrs=attrs)
    reference = Reference(contract_of(op), case, materialize_all(case))
    given = np.full((1, 1), out)
    report = OutputReport(name="out", shape=(1, 1), dtype="float64")
    subject = Subject(op=op, name="mine", backend="numpy")
    execution = Execution(status=Status.OK, subject="mine", outputs=(report,))
    return judge(reference, subject, execution, {"out": given}).kind


@pytest.mark.parametrize("out", [0.0, -1e300, -np.inf, np.inf])
def test_what_the_second_input_makes_of_a_rest_that_is_0_may_be_anything(out):
    """Half of -2.8e19 times what 1 + tanh is off by, some 1e-16, is thousands, times 1e308."""
    assert kind_of("gelu_gate", -2.8e19, -1.5e308, out, approximate="tanh") is Kind.PASS


@pytest.mark.parametrize("out", [-np.inf, np.inf])
def test_otherwise_inf_is_not_right_there(out):
    assert kind_of("gelu_gate", -2.8e19, -1.5e200, out, approximate="tanh") is Kind.NONFINITE


@pytest.mark.parametrize(("up", "kind"), [(MOST / 700, Kind.PASS), (MOST / 701, Kind.NONFINITE)])
@pytest.mark.parametrize(("op", "attrs"), [("silu_gate", {}), ("gelu_gate", {"approximate": "none"})])
def test_a_product_at_the_end_of_the_range_may_be_inf(op, attrs, up, kind):
    assert kind_of(op, 700.0, up, np.inf, **attrs) is kind
