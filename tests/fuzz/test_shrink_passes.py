"""Every move gives valid cases that are what it claims; weight is a strict order; cutting keeps what stays."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.materialize import materialize, materialize_all
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.fuzz.generation.strategies import cases
from kernel_assay.fuzz.triage.shrink_passes import MAX_POKES, SHRINK_PASSES, next_seeds, reseeded, weight, with_dims
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.spec.domain import outside

OPS = sorted(load_contracts())
BY_NAME = {m.__name__: m for m in SHRINK_PASSES}
QUIET = settings(
    max_examples=12, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def silu(*shape, **fields):
    fill = fields.pop("fill", Fill(distribution="normal", seed=3))
    return Case(op="silu", tensors={"x": TensorRecipe(shape=shape, dtype="float32", fill=fill, **fields)})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_an_element_that_is_written_out_gets_plainer(dtype):
    """It becomes one or two, loses its sign, or keeps its first binary digit only."""
    fmt = format_of(dtype)
    bits = int(np.array([-5.47]).astype(fmt.dtype).view(fmt.carrier)[0])
    case = Case(op="silu", tensors={"x": TensorRecipe(shape=(1, 2), dtype=dtype, pokes=((1, bits),))})
    found = [materialize(c.tensors["x"]).astype(np.float64)[0, 1] for c in BY_NAME["plainer_pokes"](case)]
    assert found == [1.0, 2.0, pytest.approx(5.47, rel=2**-7), -4.0]


@pytest.mark.parametrize("op", OPS)
@given(data=st.data())
@QUIET
def test_every_candidate_is_a_valid_case(op, data):
    contract = contract_of(op)
    case = data.draw(cases(op, max_elements=256))
    for move in SHRINK_PASSES:
        for candidate in itertools.islice(move(case), 60):
            gone = set(case.tensors) - set(candidate.tensors)
            assert gone <= set(contract.optional), move.__name__
            assert list(candidate.tensors) == [name for name in case.tensors if name not in gone]
            assert candidate.op == op
            contract.check(candidate)
            dims = contract.dims_of(candidate)
            for name, extent in dims.items():
                assert extent % contract.dims[name].multiple == 0, move.__name__
            if not outside(contract, candidate) <= outside(contract, case):
                continue  # as the shrinker does
            assert all(t.dtype == case.tensors[n].dtype for n, t in candidate.tensors.items())
            assert weight(candidate) == weight(candidate.but())
            if candidate.elements < 2048:
                arrays = materialize_all(candidate)
                for name, recipe in candidate.tensors.items():
                    below = contract.inputs[name].below
                    assert arrays[name].shape == recipe.shape
                    if below and recipe.size:
                        assert int(arrays[name].max()) < contract.dims_of(candidate)[below], move.__name__


@given(st.lists(cases("gemm", max_elements=64), min_size=3, max_size=3))
@settings(QUIET, max_examples=60)
def test_weight_is_a_strict_order(three):
    a, b, c = map(weight, three)
    assert not a < a  # noqa: PLR0124
    assert not (a < b < a)
    if a < b < c:
        assert a < c
    assert all(isinstance(x, int) for x in a)


def test_weight_prefers_what_needs_less_explaining():
    plain = silu(4, 4, fill=Fill(distribution="ones"))
    for heavier in (
        silu(4, 5, fill=Fill(distribution="ones")),
        silu(4, 4, fill=Fill(distribution="normal")),
        silu(4, 4, fill=Fill(distribution="ones", seed=1)),
        silu(4, 4, fill=Fill(distribution="ones", scale=2.0)),
        silu(4, 4, fill=Fill(distribution="ones"), layout="transposed"),
        plain.but(outputs={"out": "offset_one"}),
        silu(4, 4, fill=Fill(distribution="ones"), specials=(Special(value="nan", place="first"),)),
        silu(4, 4, fill=Fill(distribution="ones"), origin=(0, 1)),
        silu(2, 8, fill=Fill(distribution="ones")),
    ):
        assert weight(plain) < weight(heavier)
    nan, zero = (silu(4, 4, specials=(Special(value=v, place="last"),)) for v in ("nan", "-0"))
    assert weight(zero) < weight(nan)


def plain_numbers():
    names = [d.name for d in DISTRIBUTIONS.values() if d.floats and not d.patterns]
    return st.sampled_from(names)


@given(plain_numbers(), st.integers(1, 12), st.integers(1, 40), st.data())
@settings(QUIET, max_examples=80)
def test_cutting_from_either_end_keeps_the_values_that_stay(name, rows, cols, data):
    case = silu(rows, cols, fill=Fill(distribution=name, seed=data.draw(st.integers(0, 99))))
    small = {"rows": data.draw(st.integers(0, rows)), "cols": data.draw(st.integers(0, cols))}
    whole = materialize(case.tensors["x"])
    r, c = small["rows"], small["cols"]
    begin = materialize(with_dims(case, small).tensors["x"])
    assert begin.tobytes() == np.ascontiguousarray(whole[:r, :c]).tobytes()
    end = materialize(with_dims(case, small, front=True).tensors["x"])
    assert end.tobytes() == np.ascontiguousarray(whole[rows - r :, cols - c :]).tobytes()


@given(st.integers(1, 6), st.integers(1, 6), st.data())
@settings(QUIET, max_examples=80)
def test_pokes_follow_their_elements(rows, cols, data):
    spots = data.draw(st.lists(st.integers(0, rows * cols - 1), unique=True, max_size=4))
    case = silu(rows, cols, pokes=tuple((i, 0x3F800000 + i) for i in spots))
    small = {"rows": data.draw(st.integers(0, rows)), "cols": data.draw(st.integers(0, cols))}
    whole = materialize(case.tensors["x"])
    for front in (False, True):
        got = materialize(with_dims(case, small, front=front).tensors["x"])
        r, c = small["rows"], small["cols"]
        want = whole[rows - r :, cols - c :] if front else whole[:r, :c]
        assert got.tobytes() == np.ascontiguousarray(want).tobytes()


def test_cutting_twice_is_cutting_once():
    case = silu(9, 40)
    twice = with_dims(with_dims(case, {"cols": 20}, front=True), {"cols": 7}, front=True)
    assert twice.id == with_dims(case, {"cols": 7}, front=True).id


def moved(name, case):
    return list(BY_NAME[name](case))


def test_moves_do_what_they_say():
    messy = silu(4, 6, layout="transposed", origin=(1, 2), specials=(Special(value="nan", place="last"),)).but()
    assert [c.tensors["x"].layout for c in moved("plain_layouts", messy)] == ["contiguous"]
    both = list(moved("plain_layouts", messy.but(outputs={"out": "offset_one"})))
    assert [(c.tensors["x"].layout, c.outputs) for c in both] == [
        ("contiguous", {}),
        ("contiguous", {"out": "offset_one"}),
        ("transposed", {}),
    ]
    assert [c.tensors["x"].specials for c in moved("fewer_specials", messy)] == [()]
    assert all(DISTRIBUTIONS[c.tensors["x"].fill.distribution].rank < DISTRIBUTIONS["normal"].rank
               for c in moved("plainer_distribution", messy))  # fmt: skip
    assert any(c.tensors["x"].origin == () for c in moved("small_seeds", messy))
    equal = silu(6, 6)
    assert all(len(set(c.tensors["x"].shape)) == 1 for c in moved("cut_equal_axes", equal))
    assert all(c.elements <= equal.elements for c in moved("trade_axes", equal))
    assert {c.tensors["x"].shape for c in moved("trade_axes", silu(2, 6))} >= {(12, 1), (4, 3), (1, 12)}
    assert all(c.elements < equal.elements for name in ("cut_all_axes", "cut_axis") for c in moved(name, equal))


def test_writing_out_keeps_elements_of_the_data():
    case = silu(2, 3)
    bits = materialize(case.tensors["x"]).reshape(-1).view(np.uint32)
    written = moved("write_out", case)
    assert written
    for candidate in written:
        recipe = candidate.tensors["x"]
        assert recipe.fill.distribution == "zeros"
        assert len(recipe.pokes) <= MAX_POKES
        assert all(int(bits[i]) == b for i, b in recipe.pokes)
        got = materialize(recipe).reshape(-1).view(np.uint32)
        assert all(int(g) in {0, int(w)} for g, w in zip(got, bits, strict=True))
    assert any(len(c.tensors["x"].pokes) == 6 - 3 for c in written)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_written_out_elements_survive_any_layout(layout):
    case = silu(2, 3, layout=layout)
    for candidate in moved("write_out", case):
        materialize(candidate.tensors["x"])


def test_other_fields_are_other_values_and_the_first_is_the_case():
    case = silu(3, 3)
    swept = next_seeds(case, 8)
    assert swept[0].id == case.id
    assert len({materialize(c.tensors["x"]).tobytes() for c in swept}) == 8
    assert reseeded(case, 0).tensors["x"].fill.seed == 0


def rope(part, *names, **fields):
    shapes = {"x": (3, 2, 4 * part), "cos": (3, 2), "sin": (3, 2)}
    tensors = {n: TensorRecipe(shape=shapes[n], dtype="float32", fill=Fill(distribution="normal")) for n in names}
    tensors["x"] = tensors["x"].but(**fields)
    return Case(op="rope", tensors=tensors, attrs={"style": "neox", "part": part})


def test_optional_inputs_are_left_out_all_of_a_group_at_once():
    case = rope(1, "x", "cos", "sin")
    assert [list(c.tensors) for c in moved("without_optional", case)] == [["x"], ["x"]]
    assert moved("without_optional", rope(1, "x")) == []
    small = moved("without_optional", case)[0]
    assert weight(small) < weight(case)
    assert small.tensors["x"].id == case.tensors["x"].id
    mask = {name: TensorRecipe(shape=(2, 3), dtype="float32") for name in ("x", "mask")}
    assert [list(c.tensors) for c in moved("without_optional", Case(op="softmax", tensors=mask))] == [["x"]]


def test_an_attribute_that_decides_a_shape_takes_the_shape_along():
    case = rope(4, "x", "cos", "sin", origin=(0, 0, 5), pokes=((1, 7),))
    (plain,) = (c for c in moved("plain_attributes", case) if c.attrs["part"] == 1)
    contract = contract_of("rope")
    assert contract.dims_of(plain) == contract.dims_of(case) == {"tokens": 3, "heads": 2, "half": 2}
    assert plain.tensors["x"].shape == (3, 2, 4)
    assert (plain.tensors["x"].origin, plain.tensors["x"].pokes) == ((), ()), "pokes are places in the old shape"
    assert plain.tensors["cos"].id == case.tensors["cos"].id
    (other,) = (c for c in moved("plain_attributes", case) if c.attrs["style"] == "interleaved")
    assert other.tensors["x"].id == case.tensors["x"].id, "of a case whose shapes stay nothing else changes"
    assert with_dims(case, {"half": 1}).tensors["x"].shape == (3, 2, 8)


def test_attributes_that_a_case_leaves_out_are_plain():
    case = rope(1, "x")
    assert moved("plain_attributes", case.but(attrs={"style": "interleaved"})) == []
    assert with_dims(case.but(attrs={"style": "neox"}), {"tokens": 1}).tensors["x"].shape == (1, 2, 4)
