"""Where the outputs of a case may lie is said by its contract."""

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.oracles.catalog import contract_of

X = TensorRecipe(shape=(2, 32), dtype="float32", fill=Fill(distribution="ones"))
SILU = Case(op="silu", tensors={"x": X})
QUANTIZE = Case(op="quantize", tensors={"x": X}, attrs={"format": "q8_0"})


def test_a_specification_of_an_output_has_its_layout():
    moved = SILU.but(outputs={"out": "offset_one"})
    contract = contract_of("silu")
    contract.check(moved)
    assert [contract.output_specs(c)["out"].layout for c in (SILU, moved)] == ["contiguous", "offset_one"]


@pytest.mark.parametrize(("case", "name", "layout"), [
    (SILU, "result", "offset_one"),
    (SILU, "out", "transposed"),
    (SILU, "out", "spiral"),
    (QUANTIZE, "out", "offset_one"),
])  # fmt: skip
def test_a_layout_that_no_output_can_have_is_refused(case, name, layout):
    with pytest.raises(UsageError, match=f"no output of {case.op} is called {name} and can be {layout}"):
        contract_of(case.op).check(case.but(outputs={name: layout}))
