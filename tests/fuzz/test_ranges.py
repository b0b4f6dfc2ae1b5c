"""An input with a range: no value outside of it, however it was made, rounded, cut or shrunk."""

import itertools
import math
from random import Random

import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS, limits
from kernel_assay.corpus.inputs.materialize import digest, materialize
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.fuzz.generation.strategies import distributions_for
from kernel_assay.fuzz.triage.shrink_passes import SHRINK_PASSES, livelier, next_seeds, weight
from kernel_assay.oracles.catalog import add_contract, contract_of, forget_contracts, load_contracts
from kernel_assay.oracles.spec.contract import OPEN_END, Input

RANGED = ("least", "ends", "between", "tapered", "whole")
RANGES = [(-4.0, 4.0), (0.0, 1.0), (0.1, 0.3), (-3.0, -2.7), (5.0, 5.0), (-1e30, 1e30), (60.0, 70.0), (-1e-3, 2e-3)]
CONTRACT = """
from kernel_assay.corpus.model.case import Fill
from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output
CONTRACT = Contract(
    name="ranged",
    summary="an op whose inputs have ranges",
    dims={"rows": Dim(0, 64), "cols": Dim(0, 300)},
    inputs={
        "x": Input(("rows", "cols"), low=0.1, high=3.7),
        "y": Input(("rows", "cols"), low=-1.0),
        "free": Input(("cols",)),
        "steps": Input(("rows",), low=-5, high=90),
    },
    outputs={"out": Output(("rows", "cols"), like="x")},
    variants=tuple(
        {"x": t, "y": t, "free": t, "steps": i} for t in ("float32", "float16", "bfloat16", "float64", "float8_e5m2")
        for i in ("int8", "uint8", "int64")
    ),
    reference=lambda x, y, free, steps: {"out": x * y + free + steps[:, None]},
    probe=lambda dims, dtypes: {"x": Fill(distribution="ones", scale=1e6)},
)
"""
BOUNDS = {"x": (0.1, 3.7), "y": (-1.0, OPEN_END), "steps": (-5, 90)}


@pytest.fixture
def contract(tmp_path):
    path = tmp_path / "ranged.py"
    path.write_text(CONTRACT)
    yield add_contract(path)
    forget_contracts()


def filled(name, low, high, dtype, shape=(7, 33), **fields):
    fill = Fill(distribution=name, seed=5, params={"low": low, "high": high}, **fields)
    return materialize(TensorRecipe(shape=shape, dtype=dtype, fill=fill))


def assert_within(case):
    for name, (low, high) in BOUNDS.items():
        values = materialize(case.tensors[name]).astype(np.float64)
        assert ((values >= low) & (values <= high)).all(), case.label


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("low", "high"), RANGES, ids=str)
def test_values_lie_within_after_rounding(dtype, low, high):
    try:
        first, last = limits(low, high, dtype)
    except UsageError:
        return
    assert low <= first <= last <= high
    for name in (*RANGED, "either"):
        for scale in (1.0, 2.0**63):
            values = filled(name, low, high, dtype, scale=scale)
            assert values.dtype == FORMATS[dtype].dtype
            numbers = values.astype(np.float64)
            assert ((numbers >= low) & (numbers <= high)).all(), (name, dtype)
    met = set(filled("ends", low, high, dtype).astype(np.float64).reshape(-1).tolist())
    assert {float(first), float(last)} <= met
    plain = min(met, key=abs)
    assert (filled("least", low, high, dtype).astype(np.float64) == plain).all()
    assert plain == 0 or low > 0 or high < 0


@pytest.mark.parametrize("dtype", FORMATS)
def test_no_number_of_the_dtype_is_left_out(dtype):
    fmt = FORMATS[dtype]
    one = np.array(1).astype(fmt.dtype)
    assert limits(1.0, 1.0, dtype) == (1, 1)
    if fmt.is_float:
        above = float(np.nextafter(one, np.array(2).astype(fmt.dtype)))
        beyond = math.nextafter(above, 2.0)
        assert limits(1.0, beyond, dtype) == (1.0, above if dtype != "float64" else beyond)
        assert limits(-math.inf, math.inf, dtype) == (-fmt.max, fmt.max)
    else:
        assert limits(0.5, 3.5, dtype) == (1, 3)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_whole_numbers_take_every_value_of_a_small_range(dtype):
    assert set(filled("between", 3, 7.5, dtype).reshape(-1).tolist()) == {3, 4, 5, 6, 7}
    everything = filled("between", -1e30, 1e30, dtype, shape=(4096,))
    assert len(set(everything.tolist())) > 200


@pytest.mark.parametrize(("low", "high", "dtype"), [
    (1e6, 2e6, "float16"), (1e3, 2e3, "float8_e4m3fn"), (1.001, 1.002, "bfloat16"), (0.2, 0.8, "int32"),
    (-5, -1, "uint8"), (-2e6, -1e6, "float8_e4m3fn"),
])  # fmt: skip
def test_a_range_that_a_dtype_has_no_number_in(low, high, dtype):
    with pytest.raises(UsageError, match=f"no {dtype} number lies in the range from {low} to {high}"):
        filled("between", low, high, dtype)


def test_a_range_must_be_told():
    with pytest.raises(UsageError, match="need the params low and high"):
        materialize(TensorRecipe(shape=(2,), dtype="float32", fill=Fill(distribution="between")))


@pytest.mark.parametrize(
    ("names", "bytes_were"),
    [
        (RANGED[:3], "73fba8ed0acc5efddf6572cfe16fe65c"),
        (RANGED[3:4], "912203c2220dbc3d8dd5a1eace14365a"),
        (RANGED[4:], "f426ba2cde0dfd0571e3830123f8a03f"),
    ],
)
def test_bytes_are_what_they_always_were(names, bytes_were):
    """As for all distributions: stored cases depend on them."""
    made = {
        f"{name} {t}": filled(name, -2.5, 100.0, t, shape=(5, 67))
        for name in names
        for t in ("float32", "bfloat16", "int8")
    }
    assert digest(made) == bytes_were


@pytest.mark.parametrize("name", RANGED)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0), (2, 3, 4)], ids=str)
def test_every_shape_is_filled(name, shape):
    for dtype in ("float32", "bfloat16", "int64"):
        values = filled(name, -1, 1, dtype, shape=shape)
        assert values.shape == shape
        assert values.flags.writeable
        assert values.flags.c_contiguous


def test_small_numbers_are_met_in_a_wide_range():
    sizes = np.abs(filled("tapered", -1e3, 1e3, "float32", shape=(200, 4)))
    assert (sizes < 1e-2).any(axis=1).sum() > 20
    assert (sizes > 100).any(axis=1).sum() > 10


def test_cutting_keeps_the_values():
    whole = filled("between", 0, 1, "float32")
    recipe = TensorRecipe(
        shape=(3, 10),
        dtype="float32",
        origin=(2, 20),
        fill=Fill(distribution="between", seed=5, params={"low": 0, "high": 1}),
    )
    assert np.array_equal(materialize(recipe), whole[2:5, 20:30])


def test_nobody_else_is_filled_from_a_range():
    assert {d for d in DISTRIBUTIONS if DISTRIBUTIONS[d].floats or DISTRIBUTIONS[d].integers} == set(DISTRIBUTIONS) - {
        *RANGED,
        *("either", "every_bits", "exact_blocks", "blocks", "wild_blocks", "every_blocks"),
    }
    for contract in load_contracts().values():
        for name, spec in contract.inputs.items():
            for variant in contract.variants:
                assert not set(RANGED) & set(distributions_for(spec, variant[name]))


@pytest.mark.parametrize(("given", "params"), [
    ({"low": 0.0, "high": 1}, {"low": 0.0, "high": 1.0}),
    ({"low": -2}, {"low": -2.0, "high": 1e4}),
    ({"low": 5e4}, {"low": 5e4, "high": 6e4}),
    ({"high": 0.0}, {"low": -1e4, "high": 0.0}),
    ({"high": -3.0}, {"low": -10003.0, "high": -3.0}),
    ({"high": 7.0}, {"low": -1e4, "high": 7.0}),
    ({}, {}),
])  # fmt: skip
def test_an_open_end_is_closed_far_away(given, params):
    spec = Input(("n",), **given)
    assert spec.params({"n": 3}, {}) == params
    assert spec.ranged == bool(given)


def test_generated_cases_keep_to_the_ranges(contract):
    met = set()
    for i in range(400):
        case, _ = generate(Target(contract), Random(i))
        assert_within(case)
        assert Case.model_validate_json(case.model_dump_json()).id == case.id
        for name in BOUNDS:
            recipe = case.tensors[name]
            assert (recipe.pokes, recipe.fill.scale) == ((), 1.0)
            met.add(recipe.fill.distribution)
        met.add(case.tensors["free"].fill.distribution)
    assert set(RANGED) <= met
    assert len(met) > 15, "an input without a range is filled as ever"


def walk(case, random, steps):
    """Moves as shrinking makes them, each time to any candidate of any move."""
    for _ in range(steps):
        candidates = list(itertools.islice(random.choice(SHRINK_PASSES)(case), 40))
        if candidates:
            case = random.choice(candidates)
            yield from next_seeds(case, 2)


def test_no_move_leaves_a_range(contract):
    names = set()
    for i in range(40):
        random = Random(i)
        for candidate in walk(generate(Target(contract, max_elements=256), random)[0], random, 40):
            if candidate.elements < 4096:
                assert_within(candidate)
            assert weight(candidate)
            names |= {(t.fill.distribution, bool(t.pokes)) for n, t in candidate.tensors.items() if n in BOUNDS}
    assert names >= {(name, False) for name in RANGED} | {("least", True)}


def test_values_that_hide_little_are_random_and_lie_within(contract):
    """Conditions on sizes are learned with them."""
    for i in range(40):
        case = livelier(generate(Target(contract, max_elements=256), Random(i))[0])
        assert_within(case)
        assert {case.tensors[name].fill.distribution for name in BOUNDS} == {"between"}


def whole(case):
    return all(t.size for t in case.tensors.values())


def test_shrinking_ends_at_the_plainest(contract):
    """Downhill in weight by any move: what is left is the number nearest to zero."""
    cases = (generate(Target(contract, ("float32",), max_elements=64), Random(i))[0] for i in itertools.count())
    case = next(filter(whole, cases))
    while smaller := [c for move in SHRINK_PASSES for c in move(case) if whole(c) and weight(c) < weight(case)]:
        case = min(smaller, key=weight)
    values = {name: materialize(case.tensors[name]).reshape(-1).tolist() for name in BOUNDS}
    assert values == {"x": [limits(0.1, 3.7, "float32")[0]], "y": [0], "steps": [0]}
    assert contract_of("ranged") is contract
