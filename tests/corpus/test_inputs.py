"""Recipes: the same bytes everywhere, forever. KERNEL_ASSAY_UPDATE_GOLDEN=1 rewrites golden_digests.json."""

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.materialize import digest, materialize, materialize_all
from kernel_assay.corpus.inputs.specials import PLACES, VALUES
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe

GOLDEN = Path(__file__).with_name("golden_digests.json")
FLOATS = [f.name for f in FORMATS.values() if f.is_float]
FILLS = [
    (name, f.name)
    for name, d in DISTRIBUTIONS.items()
    for f in FORMATS.values()
    if (d.floats if f.is_float else d.integers)
]


def recipes() -> dict[str, TensorRecipe]:
    """One recipe for each name that a stored case may hold."""
    base = TensorRecipe(shape=(5, 67), dtype="float32", origin=(3, 7), fill=Fill(distribution="normal", seed=11))
    made = {f"{name} {dtype}": base.but(dtype=dtype, fill=Fill(distribution=name, seed=11)) for name, dtype in FILLS}
    made |= {
        f"{n} {d} below": base.but(dtype=d, fill=Fill(distribution=n, seed=11, params={"below": 9}))
        for n, d in FILLS
        if n in {"uniform", "raw_bits", "edge_indices"} and d in {"int32", "int64"}
    }
    made |= {
        f"{n} {d} scaled": base.but(dtype=d, fill=Fill(distribution=n, seed=11, scale=1e4))
        for n, d in (
            ("normal", "float16"),
            ("normal", "float64"),
            ("small_integers", "int8"),
            ("small_integers", "int64"),
        )
    }
    for value, dtype in itertools.product(VALUES, FLOATS):
        made[f"{value} at first {dtype}"] = base.but(dtype=dtype, specials=(Special(value=value, place="first"),))
    for place in PLACES:
        made[f"nan at {place}"] = base.but(specials=(Special(value="nan", place=place),))
    return made


def digests() -> dict[str, str]:
    return {label: digest({"x": materialize(recipe)}) for label, recipe in recipes().items()}


def test_bytes_are_what_they_always_were():
    """If this fails, stored cases mean something else: undo it, or raise GENERATOR_VERSION and update the file."""
    now = digests()
    if os.environ.get("KERNEL_ASSAY_UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(json.dumps(now, indent=0) + "\n")
        pytest.skip("golden digests rewritten")
    golden = json.loads(GOLDEN.read_text())
    assert [label for label in golden if now.get(label) != golden[label]] == []
    assert list(now) == list(golden), "a new name needs a golden digest: run with KERNEL_ASSAY_UPDATE_GOLDEN=1"


def test_random_distributions_differ_from_each_other_and_by_seed():
    plain = TensorRecipe(shape=(8, 300), dtype="float32")
    drawn = {}
    for name, d in DISTRIBUTIONS.items():
        for seed in (0, 1):
            if d.floats:
                recipe = plain.but(fill=Fill(distribution=name, seed=seed))
                drawn.setdefault(digest({"x": materialize(recipe)}), []).append((name, seed))
    alike = {name for same in drawn.values() for name, _ in same if len(same) > 1}
    assert alike == {"zeros", "ones", "unit_steps"}


@st.composite
def cuts(draw):
    """A shape, an origin and, for each axis, how much is cut off before and after."""
    shape = draw(st.lists(st.integers(0, 9), min_size=0, max_size=3))
    origin = [draw(st.integers(0, 70)) for _ in shape]
    before = [draw(st.integers(0, n)) for n in shape]
    after = [draw(st.integers(0, n - b)) for n, b in zip(shape, before, strict=True)]
    return tuple(shape), tuple(origin), before, after


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, d in FILLS if d in {"float32", "float8_e4m3fn", "int32"}])
@settings(max_examples=25, deadline=None, database=None)
@given(cut=cuts(), seed=st.integers(0, 2**64 - 1))
def test_cutting_keeps_the_values(name, dtype, cut, seed):
    shape, origin, before, after = cut
    fill = Fill(distribution=name, seed=seed)
    whole = materialize(TensorRecipe(shape=shape, dtype=dtype, origin=origin, fill=fill))
    kept = tuple(slice(b, n - a) for n, b, a in zip(shape, before, after, strict=True))
    part = materialize(
        TensorRecipe(
            shape=tuple(s.stop - s.start for s in kept),
            dtype=dtype,
            origin=tuple(o + b for o, b in zip(origin, before, strict=True)),
            fill=fill,
        )
    )
    assert whole.shape == shape
    assert part.tobytes() == whole[kept].tobytes()


@pytest.mark.parametrize(("name", "dtype"), FILLS)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 3, 4)], ids=str)
def test_every_shape_gives_a_writable_contiguous_tensor(name, dtype, shape):
    tensor = materialize(TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution=name)))
    assert tensor.shape == shape
    assert tensor.dtype == FORMATS[dtype].dtype
    assert tensor.flags.c_contiguous
    assert tensor.flags.writeable


def test_negative_special_in_scalar():
    recipe = TensorRecipe(shape=(), dtype="float32", specials=(Special(value="-inf", place="last"),), pokes=())
    assert materialize(recipe)[()] == -np.inf
    assert materialize(recipe.but(pokes=((0, 0x3F800000),)))[()] == 1.0


def special(value: str, dtype: str) -> float:
    recipe = TensorRecipe(shape=(3,), dtype=dtype, specials=(Special(value=value, place="middle"),))
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        tensor = materialize(recipe).astype(np.float64)
    assert (tensor[0], tensor[2]) == (0.0, 0.0)
    return float(tensor[1])


@pytest.mark.parametrize("dtype", FLOATS)
def test_specials_are_what_they_are_called(dtype):
    f = FORMATS[dtype]
    met = {value: special(value, dtype) for value in VALUES}
    for name in ("nan", "-nan", "nan_payload", "signalling_nan"):
        assert np.isnan(met.pop(name)), name
    for name, sign in (("inf", 1), ("-inf", -1)):
        value = met.pop(name)
        assert value == sign * np.inf if f.has_inf else np.isnan(value)
    assert np.signbit(met["-0"])
    assert met == {
        "-0": 0.0,
        "subnormal": f.eta,
        "-subnormal": -f.eta,
        "max_subnormal": f.tiny - f.eta,
        "min_normal": f.tiny,
        "max": f.max,
        "-max": -f.max,
    }


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d != "float8_e4m3fn"])
def test_nan_payload_is_another_nan(dtype):
    f = FORMATS[dtype]
    assert VALUES["nan"](f) != VALUES["nan_payload"](f)


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d != "float8_e4m3fn"])
def test_a_signalling_nan_lacks_the_bit_that_makes_one_quiet(dtype):
    f = FORMATS[dtype]
    assert VALUES["signalling_nan"](f) & (f.nan_bits ^ f.inf_bits) == 0


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_tile_that_is_alone_holds_all_there_is(dtype):
    def drawn(name):
        values = materialize(TensorRecipe(shape=(64, 1100), dtype=dtype, fill=Fill(distribution=name, seed=3)))
        return values.astype(np.float64)

    lanes = [{int(c) % 32 for c in np.flatnonzero(row)} for row in drawn("lone_lane")]
    assert {len(some) for some in lanes} == {1}
    assert len(set.union(*lanes)) > 16
    begins = set()
    for lone in drawn("lone_tile"):
        at = np.flatnonzero(lone)
        width = next(w for w in (32, 64, 128, 256) if at[-1] < at[0] // w * w + w)
        begins.add(int(at[0]) // width)
    assert begins == {0, 1, 3}


@pytest.mark.parametrize("dtype", FLOATS)
def test_masked_tiles_are_whole_and_others_follow(dtype):
    low = -np.inf if FORMATS[dtype].has_inf else -FORMATS[dtype].max

    def drawn(name, seed):
        recipe = TensorRecipe(shape=(300, 300), dtype=dtype, fill=Fill(distribution=name, seed=seed))
        return materialize(recipe).astype(np.float64) == low

    assert {int(row.sum()) for row in drawn("masked_start", 0)} == {32, 64, 128, 256}
    found = {tuple(np.flatnonzero(drawn("masked_first_rows", seed).any(axis=1))) for seed in range(32)}
    assert found == {tuple(range(n)) for n in (32, 64, 128, 256)}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (32,), (33,), (100,), (3, 1), (4, 70), (2, 3, 33)], ids=str)
def test_places_lie_inside(name, shape):
    size = int(np.prod(shape, dtype=int))
    found = PLACES[name](shape)
    assert 0 < len(found) <= size
    assert found.step > 0
    assert 0 <= found[0] <= found[-1] < size


def test_places_are_where_they_say():
    shape = (4, 70)
    wanted = {"first": [0], "last": [279], "middle": [140], "tile_tail": [64], "one_lane": [5, 37, 69]}
    wanted |= {"first_tile": list(range(32)), "one_row": list(range(210, 280)), "one_column": [69, 139, 209, 279]}
    assert {name: list(find(shape)) for name, find in PLACES.items()} == wanted


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize(
    "shape", [(), (0,), (5,), (0, 3), (3, 0), (1, 4), (3, 4), (4, 3), (2, 3, 5), (2, 0, 3)], ids=str
)
def test_layouts_cover_their_elements_once(name, shape):
    placement = LAYOUTS[name](shape)
    assert len(placement.strides) == len(shape)
    offsets = [
        placement.offset + sum(i * s for i, s in zip(index, placement.strides, strict=True))
        for index in np.ndindex(shape)
    ]
    size = int(np.prod(shape, dtype=int))
    distinct = int(np.prod(shape[1:], dtype=int)) if name == "broadcast" and size else size
    assert len(set(offsets)) == distinct
    assert all(0 <= offset < placement.length for offset in offsets)


@pytest.mark.parametrize("name", [n for n in LAYOUTS if n != "broadcast"])
def test_layouts_do_not_change_the_values(name):
    recipe = TensorRecipe(shape=(4, 5), dtype="float32", fill=Fill(distribution="normal", seed=3))
    assert materialize(recipe.but(layout=name)).tobytes() == materialize(recipe).tobytes()


def test_broadcast_repeats_the_first_row():
    recipe = TensorRecipe(shape=(4, 5), dtype="float32", fill=Fill(distribution="normal", seed=3))
    rows = materialize(recipe.but(layout="broadcast"))
    assert rows.strides[0] == 0
    assert (rows == materialize(recipe)[0]).all()


def test_normal_is_normal():
    values = materialize(TensorRecipe(shape=(400, 1000), dtype="float64", fill=Fill(distribution="normal", seed=5)))
    assert abs(values.mean()) < 0.01  # 6 deviations of the mean of 400,000
    assert abs(values.std() - 1) < 0.01
    assert abs((np.abs(values) < 1).mean() - 0.6827) < 0.01
    neighbours = (values[:, 1:] * values[:, :-1]).mean(), (values[1:] * values[:-1]).mean()
    assert max(map(abs, neighbours)) < 0.01


def test_cancellation_cancels():
    recipe = TensorRecipe(shape=(6, 64), dtype="float32", fill=Fill(distribution="cancellation", seed=2))
    values = materialize(recipe)
    assert (values[:, ::2] == -values[:, 1::2]).all()
    assert len(np.unique(values)) > 300


def test_bounds_hold():
    base = TensorRecipe(shape=(50, 50), dtype="int64")
    for name in ("uniform", "raw_bits", "edge_indices"):
        values = materialize(base.but(fill=Fill(distribution=name, params={"below": 7})))
        assert (values.min(), values.max()) == (0, 6), name
    log = materialize(base.but(dtype="float8_e4m3fn", fill=Fill(distribution="log_uniform")))
    assert np.isfinite(log.astype(np.float32)).all()


@pytest.mark.parametrize("scale", [1e300, float("inf"), float("nan")])
@pytest.mark.parametrize("dtype", [d for d in FORMATS if d not in FLOATS])
def test_integers_saturate_with_the_right_sign(dtype, scale):
    recipe = TensorRecipe(shape=(20,), dtype=dtype, fill=Fill(distribution="small_integers", seed=1))
    plain, scaled = materialize(recipe), materialize(recipe.but(fill=recipe.fill.but(scale=scale)))
    if np.isnan(scale):
        assert not scaled.any()
    else:
        assert (np.sign(scaled) == np.sign(plain)).all()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"fill": Fill(distribution="gaussian")}, "gaussian"),
        ({"layout": "diagonal"}, "diagonal"),
        ({"dtype": "float12"}, "float12"),
        ({"specials": (Special(value="nil", place="last"),)}, "nil"),
        ({"specials": (Special(value="nan", place="nowhere"),)}, "nowhere"),
        ({"origin": (1,)}, "origin"),
        ({"pokes": ((0, 2**32),)}, "0x100000000"),
    ],
)
def test_nonsense_is_refused_by_name(change, word):
    recipe = TensorRecipe(shape=(2, 2), dtype="float32")
    with pytest.raises(UsageError, match=word):
        materialize(recipe.but(**change))


def test_pokes_come_last_and_beyond_the_end_do_nothing():
    recipe = TensorRecipe(
        shape=(2,), dtype="float32", specials=(Special(value="nan", place="first"),), pokes=((0, 0x40000000), (2, 1))
    )
    assert materialize(recipe).tolist() == [2.0, 0.0]


def test_digest_sees_names_dtypes_shapes_and_bits():
    x = np.zeros((2, 3), np.float32)
    alike = [{"x": x}, {"x": np.zeros((3, 2), np.float32).T}]
    others = [{"y": x}, {"x": x.view(np.int32)}, {"x": x.reshape(3, 2)}, {"x": -x}, {"x": x, "y": x}]
    assert len({digest(t) for t in alike}) == 1
    assert len({digest(t) for t in (alike[0], *others)}) == 6


def test_inputs_of_a_case_come_in_order():
    x = TensorRecipe(shape=(2,), dtype="float32")
    assert list(materialize_all(Case(op="o", tensors={"z": x, "a": x}))) == ["z", "a"]


# reversed tensors


@pytest.mark.parametrize("layout", ["contiguous", "broadcast", "transposed"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("name", "dtype"), FILLS)
def test_a_flip_reverses_the_whole_tensor(name, dtype, axis, layout):
    fill = Fill(distribution=name, seed=4)
    specials = (Special(value="nan", place="first"), Special(value="max", place="one_column"))
    one = TensorRecipe(shape=(3, 4, 5), dtype=dtype, origin=(1, 0, 2), layout=layout, fill=fill)
    for recipe in (one, one.but(specials=specials, pokes=((7, 1), (59, 3)))):
        straight, turned = (materialize(recipe.but(fill=fill.but(params=p))) for p in ({}, {"flip": axis}))
        assert turned.tobytes() == np.flip(straight, axis).tobytes()
        assert turned.dtype == straight.dtype


@pytest.mark.parametrize("axis", [2, -1, 0.5])
def test_a_flip_along_no_axis_is_refused(axis):
    recipe = TensorRecipe(shape=(3, 4), dtype="float32", fill=Fill(distribution="normal", params={"flip": axis}))
    with pytest.raises(UsageError, match=f"flip {axis} is no axis of a tensor of shape"):
        materialize(recipe)
