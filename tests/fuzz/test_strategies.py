"""`@given(cases(op))` in anybody's pytest: valid cases within the contract's ranges, healthy, shrinking natively."""

from collections import Counter
from contextlib import suppress
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.materialize import materialize, materialize_all
from kernel_assay.corpus.inputs.specials import PLACES, VALUES
from kernel_assay.corpus.model.case import Case
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.fuzz.generation.strategies import MAX_WORK, cases, distributions_for, layouts_for
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.spec.axes import shape_of

OPS = sorted(load_contracts())
HEALTHY = settings(
    max_examples=60,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.differing_executors],
)
SEARCH = settings(
    max_examples=2000, deadline=None, database=None, derandomize=True, phases=(Phase.generate, Phase.shrink)
)


@pytest.mark.parametrize("op", OPS)
@given(data=st.data())
@HEALTHY
def test_cases_keep_the_contract(op, data):
    contract = contract_of(op)
    case = data.draw(cases(op))
    assert case.op == op
    given = [name for name in contract.inputs if name not in contract.optional or name in case.tensors]
    assert list(case.tensors) == given
    dims = contract.dims_of(case)
    for name, extent in dims.items():
        dim = contract.dims[name]
        assert dim.low <= extent <= dim.high
        assert extent % dim.multiple == 0
    assert {n: t.dtype for n, t in case.tensors.items()} in [{n: v[n] for n in given} for v in contract.variants]
    for name, recipe in case.tensors.items():
        spec = contract.inputs[name]
        assert recipe.shape == shape_of(spec.axes, dims, case.attrs)
        assert recipe.size <= contract.max_elements
        assert recipe.layout in layouts_for(spec)
        assert recipe.layout in LAYOUTS
        assert recipe.fill.distribution in DISTRIBUTIONS
        assert all(s.value in VALUES and s.place in PLACES for s in recipe.specials)
        if spec.below:
            assert recipe.fill.params == {"below": dims[spec.below]}
    assert all(layout in contract.outputs[name].layouts[1:] for name, layout in case.outputs.items())
    assert set(case.attrs) == set(contract.attrs)
    assert all(case.attrs[n] in values for n, values in contract.attrs.items())
    assert contract.work is None or contract.work(dims) <= MAX_WORK


@pytest.mark.parametrize("op", OPS)
@given(data=st.data())
@settings(HEALTHY, max_examples=25)
def test_trusted_records_are_what_validation_would_have_made(op, data):
    case = data.draw(cases(op))
    again = Case.model_validate(case.model_dump())
    assert again.id == case.id
    assert again.model_dump() == case.model_dump()
    assert Case.model_validate_json(case.model_dump_json()).id == case.id
    for name, recipe in case.tensors.items():
        assert type(recipe) is type(again.tensors[name])
        assert recipe.but().id == recipe.id


@pytest.mark.parametrize("op", OPS)
@given(data=st.data())
@settings(HEALTHY, max_examples=15)
def test_cases_materialize(op, data):
    case = data.draw(cases(op, max_elements=512))
    arrays = materialize_all(case)
    contract = contract_of(op)
    for name, recipe in case.tensors.items():
        assert arrays[name].shape == recipe.shape
        assert arrays[name].dtype.name == recipe.dtype
        below = contract.inputs[name].below
        if below and recipe.size:
            assert 0 <= int(arrays[name].min()) <= int(arrays[name].max()) < contract.dims_of(case)[below]


@pytest.mark.parametrize("room", [1, 17, 300])
@pytest.mark.parametrize("op", OPS)
@given(data=st.data())
@settings(HEALTHY, max_examples=20)
def test_the_largest_tensor_is_as_small_as_asked(op, room, data):
    case = data.draw(cases(op, max_elements=room))
    outputs = contract_of(op).output_specs(case)
    sizes = [t.size for t in case.tensors.values()]
    for spec in outputs.values():
        n = 1
        for extent in spec.shape:
            n *= extent
        sizes.append(n)
    assert max(sizes) <= room


def test_an_input_may_be_scaled_and_have_no_special_values():
    met = [generate(Target(contract_of("quantize")), Random(i))[0].tensors["x"] for i in range(200)]
    assert {t.specials for t in met} == {()}
    assert len({t.fill.scale for t in met}) > 6
    for recipe in met:
        assert np.isfinite(materialize(recipe)).all()


@given(cases("gemm", dtypes=("bfloat16", "float64")))
@HEALTHY
def test_dtypes_are_restricted(case):
    assert case.dtype in {"bfloat16", "float64"}
    assert case.tensors["a"].dtype == case.tensors["b"].dtype


def test_an_unknown_op_is_refused():
    with pytest.raises(UsageError, match="no_such_op"):
        cases("no_such_op")


def test_a_dtype_that_the_op_does_not_have_is_refused():
    with pytest.raises(UsageError, match="int3"):
        find(cases("gemm", dtypes=("int3",)), lambda _: True, settings=SEARCH)


class Enough(Exception):  # noqa: N818  it is no error
    """Nothing is missing any more."""


@pytest.mark.parametrize("op", OPS)
def test_every_distribution_layout_and_dtype_can_be_drawn(op):
    contract = contract_of(op)
    missing = {t for v in contract.variants for t in v.values()}
    first = next(iter(contract.inputs))
    dtype = contract.variants[0][first]
    missing |= set(distributions_for(contract.inputs[first], dtype)) | set(layouts_for(contract.inputs[first]))

    @settings(HEALTHY, max_examples=4000, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(cases(op, max_elements=64))
    def collect(case):
        for t in case.tensors.values():
            missing.difference_update({t.dtype, t.layout, t.fill.distribution})
        if not missing:
            raise Enough

    with suppress(Enough):
        collect()
    assert not missing


def smallest(op, wanted):
    return find(cases(op), wanted, settings=SEARCH)


def test_cases_shrink_natively_to_the_plainest():
    for op in OPS:
        case = smallest(op, lambda _: True)
        dims = contract_of(op).dims_of(case)
        assert dims == {n: d.low for n, d in contract_of(op).dims.items()}
        for recipe in case.tensors.values():
            assert (recipe.layout, recipe.specials, recipe.fill.scale) == ("contiguous", (), 1.0)
            assert recipe.dtype == contract_of(op).variants[0][next(n for n, t in case.tensors.items() if t is recipe)]


@pytest.mark.parametrize("op", OPS)
def test_one_output_in_eight_is_misaligned_unless_it_holds_blocks(op):
    target = Target(contract_of(op))
    found = Counter(layout for i in range(800) for layout in generate(target, Random(i))[0].outputs.values())
    assert found.keys() == (set() if op == "quantize" else {"offset_one"})
    assert op == "quantize" or 60 < found["offset_one"] < 140


def test_a_misaligned_output_shrinks_to_itself_alone():
    case, plain = smallest("silu", lambda c: c.outputs), smallest("silu", lambda _: True)
    assert case.but(tensors=plain.tensors) == plain.but(outputs={"out": "offset_one"})
    assert case.tensors["x"].but(fill=plain.tensors["x"].fill) == plain.tensors["x"]


def test_sizes_shrink_to_their_boundaries():
    case = smallest("silu", lambda c: c.tensors["x"].shape[0] >= 5 and c.tensors["x"].shape[1] % 32 == 7)
    assert case.tensors["x"].shape == (5, 7)
    assert case.tensors["x"].fill.distribution == "zeros"


def test_a_special_value_shrinks_to_itself_alone():
    case = smallest("gemm", lambda c: any(s.value == "nan" for s in c.tensors["b"].specials))
    assert [s.place for s in case.tensors["b"].specials] == ["first"]
    assert case.tensors["a"].specials == ()
    assert case.elements == 0
