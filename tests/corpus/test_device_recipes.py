"""What torch makes of a recipe on a device has the bytes of what numpy makes of it; with a GPU, there too."""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.corpus.inputs import materialize as host
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.field import hashed
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.slices import pieces
from kernel_assay.corpus.inputs.specials import PLACES, VALUES
from kernel_assay.corpus.model.case import Fill, Special, TensorRecipe
from kernel_assay.fuzz.generation.strategies import cases
from kernel_assay.oracles.catalog import load_contracts

torch = pytest.importorskip("torch")

from kernel_assay.corpus.inputs.torch import distributions, field, recipes, rounding  # noqa: E402
from kernel_assay.corpus.inputs.torch.distributions import SAMPLERS, sampler  # noqa: E402
from kernel_assay.corpus.inputs.torch.field import CARRIERS, dtype_of  # noqa: E402
from kernel_assay.corpus.inputs.torch.recipes import PER_ELEMENT, materialize  # noqa: E402
from kernel_assay.corpus.inputs.torch.rounding import converted  # noqa: E402

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
FLOATS = [f.name for f in FORMATS.values() if f.is_float]
NARROW = [name for name in FLOATS if name not in {"float64", "float32"}]
SHAPES = ((), (0,), (3, 0), (1,), (7,), (5, 67), (2, 3, 5))
RANGES = ({"low": -3, "high": 5}, {"low": 0.3, "high": 1e300}, {"low": -0.0, "high": 2})
BLOCKS = (
    {"block": 18, "scales": 1},
    {"block": 24, "scales": 2, "start": 5, "second": 0xB801},
    {"block": 34, "scales": 1},
    {"block": 36, "scales": 2, "bound": 3},
)
COUNTS = ({"below": 9}, {"below": 2**40 + 12345}, {"below": 2**63 + 12345}, {"below": 2**64 - 1}, {"below": 1})
UNTOUCHED = ({}, {"shift": 0.37})
PARAMS = {
    "uniform": ({}, *COUNTS, {"below": 9, "shift": -3}, {"below": 2**40 + 1, "shift": 0.3}),
    "raw_bits": ({}, *COUNTS),
    "edge_indices": ({}, *COUNTS[:2]),
    "exact_integers": ({}, {"bound": 2**40 + 3}),
    "every_bits": (*UNTOUCHED, {"skip": 16}, {"skip": 70}, {"skip": -2}),
    **dict.fromkeys(("least", "ends", "either", "between", "tapered", "whole"), RANGES),
    **dict.fromkeys(("exact_blocks", "blocks", "wild_blocks", "every_blocks"), BLOCKS),
}
FILLS = [(name, dtype) for name in DISTRIBUTIONS for dtype in FORMATS]


def on_host(tensor):
    """The same bytes, strides included, as an array."""
    fmt = format_of(str(tensor.dtype).removeprefix("torch."))
    return tensor.view(CARRIERS[fmt.bits]).cpu().numpy().view(fmt.dtype)


def outcome(make):
    """A digest, or the error: what and in which words."""
    try:
        return host.digest({"x": make()})
    except (UsageError, ValueError, OverflowError, RuntimeError) as error:
        return (type(error).__name__, str(error)) if isinstance(error, UsageError) else "refused"


def pair(recipe, device):
    return outcome(lambda: host.materialize(recipe)), outcome(lambda: on_host(materialize(recipe, device)))


def check(recipe, device="cpu"):
    wanted, found = pair(recipe, device)
    assert found == wanted, recipe
    return wanted


def fill_of(name, **changes):
    return Fill(distribution=name, **{"seed": 11} | changes)


# every distribution


def test_every_distribution_has_its_sampler():
    assert list(SAMPLERS) == list(DISTRIBUTIONS)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "dtype"), FILLS)
def test_every_distribution_dtype_and_shape(name, dtype, device):
    """Values of a dtype that a distribution does not fill unasked are compared, too; so are refusals."""
    made = 0
    for params, (number, shape) in itertools.product(PARAMS.get(name, UNTOUCHED), enumerate(SHAPES)):
        if name == "every_bits" and not shape:
            continue  # numpy refuses a scalar
        seed, scale = (11, 1.0) if number % 2 else (2**64 - 3, -1e4)
        for place in (0, 2**40 + 13):
            recipe = TensorRecipe(
                shape=shape,
                dtype=dtype,
                origin=tuple(range(place, place + len(shape))),
                fill=fill_of(name, seed=seed, scale=scale, params=params),
            )
            made += isinstance(check(recipe, device), str)
    refused = DISTRIBUTIONS[name].floats_only and not format_of(dtype).is_float
    assert (made > 0) == (not refused) or (name in PARAMS and dtype != "uint8")


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("seed", [0, 1, 2**63, -5])
def test_seeds(name, seed):
    params = {"low": -1, "high": 1, "block": 20, "scales": 2}
    dtype = "uint8" if "blocks" in name else "float32"
    check(TensorRecipe(shape=(9, 70), dtype=dtype, fill=fill_of(name, seed=seed, params=params)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FORMATS)
def test_scales_and_shifts(dtype, device):
    """NaN and Inf among them: what NaN looks like is what numpy makes of it."""
    numbers = (1.0, 3.0, 2.0**-30, 1e300, 0.0, -0.0, math.inf, -math.inf, math.nan)
    fills = [("masked_rows", s, p) for s in numbers for p in numbers if not (math.isinf(p) and math.isnan(s))]
    for name, scale, shift in [*fills, ("normal", 2.0**-140, 0), ("normal", 1e38, 7)]:
        fill = fill_of(name, scale=scale, params={"shift": shift})
        check(TensorRecipe(shape=(6, 40), dtype=dtype, fill=fill), device)


OPS = sorted(load_contracts())


@pytest.mark.parametrize("op", OPS)
def test_inputs_of_cases(op):
    @settings(max_examples=50, deadline=None, database=None, derandomize=True)
    @given(case=cases(op, max_elements=700), cut=st.integers(0, 40))
    def agree(case, cut):
        for recipe in case.tensors.values():
            moved = recipe.but(origin=tuple(cut + a for a in range(len(recipe.shape))))
            for device in DEVICES:
                check(recipe, device)
                check(moved, device)

    agree()


# what is written over the values


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FORMATS)
def test_specials_and_pokes(dtype, device):
    bits = FORMATS[dtype].bits
    pokes = ((0, (1 << bits) - 1), (4, 1 << (bits - 1)), (5, 1), (10**9, 3))
    for shape in (*SHAPES, (4, 70)):
        recipe = TensorRecipe(shape=shape, dtype=dtype, fill=fill_of("small_integers"))
        for value, place in itertools.product(VALUES, PLACES):
            check(recipe.but(specials=(Special(value=value, place=place), Special(value="-0", place="middle"))), device)
        check(recipe.but(pokes=pokes, specials=(Special(value="inf", place="one_row"),)), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "bfloat16", "float32", "int64"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_flips(axis, dtype, device, monkeypatch):
    specials = (Special(value="nan", place="first"), Special(value="max", place="one_column"))
    for shape, room in itertools.product([(3, 4, 5), (1, 2, 1), (2, 5, 7), (4, 0, 3)], (1 << 24, 6 * PER_ELEMENT)):
        monkeypatch.setattr(recipes, "CPU_ROOM", room)
        fill = fill_of("small_integers", params={"flip": axis})
        recipe = TensorRecipe(shape=shape, dtype=dtype, fill=fill, specials=specials, pokes=((1, 7),))
        for layout in ("contiguous", "broadcast"):
            check(recipe.but(layout=layout), device)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (4, 5), (0, 5), (1, 3)], ids=str)
def test_layouts(layout, shape):
    recipe = TensorRecipe(shape=shape, dtype="bfloat16", layout=layout, fill=fill_of("normal"))
    check(recipe)
    made = materialize(recipe, torch.device("cpu"))
    repeated = layout == "broadcast" and shape == (4, 5)
    assert made.shape == shape
    assert made.stride() == ((0, 1) if repeated else torch.empty(shape).stride())
    assert on_host(made).strides == host.materialize(recipe).strides or made.numel() <= 1 or 0 in shape


# what is refused


@pytest.mark.parametrize(
    "change",
    [
        {"fill": Fill(distribution="gaussian")},
        {"layout": "diagonal"},
        {"dtype": "float12"},
        {"specials": (Special(value="nil", place="last"),)},
        {"specials": (Special(value="nan", place="nowhere"),), "shape": (0, 2)},
        {"origin": (1,)},
        {"pokes": ((0, 2**32),)},
        {"pokes": ((99, 2**32),)},
        *({"fill": Fill(distribution="normal", params={"flip": axis})} for axis in (2, -1, 0.5)),
        {"fill": Fill(distribution="between")},
        {"fill": Fill(distribution="ends", params={"low": 1, "high": 0})},
        {"fill": Fill(distribution="tapered", params={"low": math.nan, "high": 0}), "shape": (0,)},
        {"fill": Fill(distribution="blocks", params={"block": 18, "scales": 1})},
        {"fill": Fill(distribution="wild_blocks"), "dtype": "uint8"},
        {"fill": Fill(distribution="every_blocks", params={"block": 3, "scales": 2}), "dtype": "uint8"},
    ],
)
def test_nonsense_is_refused_in_the_same_words(change):
    recipe = TensorRecipe(shape=(2, 2), dtype="float32")
    kind, _ = check(recipe.but(**change))
    assert kind == "UsageError"


def test_a_distribution_without_a_sampler_is_our_own_fault(monkeypatch):
    monkeypatch.delitem(SAMPLERS, "normal")
    recipe = TensorRecipe(shape=(2,), dtype="float32", fill=fill_of("normal"))
    with pytest.raises(
        InternalError, match="distribution 'normal' has no function of that name in corpus/inputs/torch/"
    ):
        materialize(recipe, "cpu")


def test_two_samplers_of_one_name():
    before = dict(SAMPLERS)

    def normal(_):
        """Another."""

    with pytest.raises(InternalError, match="sampler 'normal' is defined twice"):
        sampler(normal)
    assert before == SAMPLERS


# pieces


@pytest.mark.parametrize("shape", [(), (0,), (4, 0), (1,), (10,), (3, 7), (7, 3), (2, 3, 5), (5, 1, 9)], ids=str)
@pytest.mark.parametrize("most", [1, 2, 3, 4, 7, 10, 20, 1000])
def test_pieces_cover_every_element_once(shape, most):
    met, cut = np.zeros(shape, int), list(pieces(shape, most))
    for piece in cut:
        assert met[piece].size <= most
        met[piece] += 1
    assert (met == 1).all()
    assert len(cut) == 1 or most < met.size


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_pieces_make_the_whole(name, device, monkeypatch):
    """Windows with moved origins: of rows, of parts of a row, and of single elements."""
    params = {"low": -1, "high": 1, "block": 34, "scales": 1}
    dtype = "uint8" if "blocks" in name else "float16"
    for shape, most in itertools.product([(5, 67), (300,), (2, 3, 7), ()], (1, 4, 50, 150)):
        if not shape and name == "every_bits":
            continue
        for room in ("CPU_ROOM", "ROOM"):
            monkeypatch.setattr(recipes, room, most * PER_ELEMENT)
        recipe = TensorRecipe(
            shape=shape, dtype=dtype, origin=(5,) * len(shape), fill=fill_of(name, scale=2.0, params=params)
        )
        if math.prod(shape) <= 70 * most:
            check(recipe, device)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_intermediate_results_take_what_is_promised(name, meter):
    side, worst = 128, 0.0
    settings_ = [{"low": -1, "high": 1, "block": b, "scales": 1, "flip": 1} for b in (2, 18, 34)] + [{"below": 9}]
    for dtype, params, scale in itertools.product(FORMATS, settings_, (1.0, 3.0)):
        recipe = TensorRecipe(shape=(side, side), dtype=dtype, fill=fill_of(name, scale=scale, params=params))
        with meter() as used:
            made = outcome(lambda r=recipe: on_host(materialize(r, "cpu")))
        if isinstance(made, str):
            worst = max(worst, used.peak / side**2 - FORMATS[dtype].dtype.itemsize)
    assert 8 <= worst <= PER_ELEMENT


# words


WORDS = [0, 1, 2, 3, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]
WORDS += [random.Random(seed).getrandbits(64) for seed in range(200)]
SIGNED = torch.tensor([w - (w >> 63 << 64) for w in WORDS])


def unsigned(tensor):
    return [int(x) % 2**64 for x in tensor]


@pytest.mark.parametrize("device", DEVICES)
def test_shifts_bring_zeros_in(device):
    for by in range(1, 64):
        assert unsigned(field.shifted(SIGNED.to(device), by)) == [w >> by for w in WORDS]


@pytest.mark.parametrize("device", DEVICES)
def test_remainders_are_unsigned(device):
    divisors = [*range(1, 70), *(2**k + d for k in range(8, 64, 5) for d in (-1, 0, 1)), *WORDS[2:60], 2**62 + 1]
    for divisor in divisors:
        found = unsigned(field.remainder(SIGNED.to(device), divisor))
        assert found == [w % divisor for w in WORDS], divisor
    with pytest.raises(OverflowError):
        field.remainder(SIGNED, 2**64)


@pytest.mark.parametrize("device", DEVICES)
def test_bits_are_counted(device):
    assert field.bit_count(SIGNED.to(device)).tolist() == [w.bit_count() for w in WORDS]


def test_powers_of_two():
    exponents = list(range(-1022, 1024))
    assert field.power_of_two(torch.tensor(exponents)).tolist() == [2.0**k for k in exponents]


@pytest.mark.parametrize("bits", CARRIERS)
def test_patterns_as_signed_numbers(bits):
    patterns = [0, 1, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1]
    wanted = np.array(patterns, f"u{bits // 8}").view(f"i{bits // 8}").tolist()
    assert [field.signed(p, bits) for p in patterns] == wanted


@pytest.mark.parametrize("origin", [(0, 0), (2**63 - 2, 2**62), (5, 2**64 - 40)])
def test_words_of_the_field(origin):
    found = field.hashed(7, origin, (4, 30), torch.device("cpu"))
    assert (found.numpy().view(np.uint64) == hashed(7, origin, (4, 30))).all()


# rounding


def rounded_alike(values, dtype, device):
    """Whether all of these become the same elements as by numpy; NaN is compared with its sign and payload."""
    fmt = FORMATS[dtype]
    with np.errstate(all="ignore"):
        wanted = values.astype(fmt.dtype).view(fmt.carrier)
    found = on_host(converted(torch.from_numpy(values).to(device), fmt)).view(fmt.carrier)
    assert not (found != wanted).any(), values[found != wanted][:5]


def around(values):
    """Numbers with their neighbours in float64 and in float32, of both signs."""
    near = np.concatenate([values, np.nextafter(values, np.inf), np.nextafter(values, -np.inf)])
    short = values.astype(np.float32)
    more = [np.nextafter(short, np.float32(end)).astype(np.float64) for end in (np.inf, -np.inf)]
    near = np.concatenate([near, short, *more, *(np.nextafter(m, end) for m in more for end in (np.inf, -np.inf))])
    return np.concatenate([near, -near])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", NARROW)
def test_every_boundary_of_rounding(dtype, device):
    """Every number of a narrow type, the midpoints between them, what lies beside, and what overflows."""
    fmt = FORMATS[dtype]
    finite = np.arange(fmt.inf_bits + (not fmt.has_inf), dtype=fmt.carrier).view(fmt.dtype).astype(np.float64)
    assert finite[-1] == fmt.max
    beyond = fmt.max + (finite[-1] - finite[-2]) * np.array([0.5, 1.0, 2.0])
    with np.errstate(over="ignore"):
        rounded_alike(around(np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, beyond])), dtype, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS[1:])
def test_any_numbers_are_rounded_alike(dtype, device):
    rng, fmt = np.random.default_rng(1), FORMATS[dtype]
    words = rng.integers(0, 2**64, 30_000, dtype=np.uint64)
    scales = np.ldexp(1.0, rng.integers(fmt.emin - fmt.precision - 2, fmt.emax + 2, len(words)))
    tiny = np.arange(-50.0, 50.0, 0.125) * fmt.eta
    ends = np.array([0.0, -0.0, np.inf, -np.inf, fmt.max, np.finfo(np.float64).max, 5e-324, 2.0**128, -(2.0**-126)])
    quiet = (words | np.uint64(0x7FF8 << 48)).view(np.float64)
    noisy = rng.standard_normal(len(words))
    with np.errstate(all="ignore"):
        for values in (words.view(np.float64), around(noisy * scales), around(tiny), around(ends), quiet):
            rounded_alike(values, dtype, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FORMATS)
def test_integers_are_rounded_alike(dtype, device):
    rng = np.random.default_rng(2)
    words = rng.integers(-(2**63), 2**63 - 1, 20_000) >> rng.integers(0, 64, 20_000)
    edges = np.array([(1 << k) + d for k in range(2, 62) for d in range(-3, 4)], np.int64)
    values = np.concatenate([words, edges, -edges])
    if not FORMATS[dtype].is_float:
        info = np.iinfo(FORMATS[dtype].dtype)
        values = values[(values >= info.min) & (values <= info.max)]
    rounded_alike(values, dtype, device)


# would it be noticed?


@pytest.mark.parametrize(
    ("module", "name", "wrong", "distribution", "dtype"),
    [
        (field, "shifted", lambda words, by: words >> by, "normal", "float32"),
        (distributions, "bit_count", lambda words: words & 63, "normal", "float32"),
        (distributions, "remainder", lambda words, divisor: words % divisor, "small_integers", "int8"),
        (distributions, "real", lambda words: words.to(torch.float64) + 1e-9, "ties", "float32"),
        (distributions, "converted", lambda values, fmt: values.to(dtype_of(fmt)), "between", "float16"),
        (recipes, "converted", lambda values, fmt: values.neg().to(dtype_of(fmt)), "normal", "bfloat16"),
        (recipes, "signed", lambda pattern, bits: pattern & 1, "normal", "float16"),
        (recipes, "flip_of", lambda recipe: None, "normal", "float32"),
        (rounding, "_magnitude", lambda bits, fmt, source: bits * 0, "normal", "bfloat16"),
    ],
)
def test_a_wrong_function_changes_the_digest(module, name, wrong, distribution, dtype, monkeypatch):
    params = {"low": -3, "high": 5, "flip": 0}
    fill = fill_of(distribution, scale=30.0, params=params)
    recipe = TensorRecipe(shape=(40, 500), dtype=dtype, fill=fill, pokes=((4, 0x80),))
    check(recipe)
    monkeypatch.setattr(module, name, wrong)
    wanted, found = pair(recipe, "cpu")
    assert wanted != found
