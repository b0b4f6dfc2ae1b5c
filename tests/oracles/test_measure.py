import math
import os
import subprocess
import sys
import tempfile
import tracemalloc
from dataclasses import asdict, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.oracles.judging import measure as module
from kernel_assay.oracles.judging.measure import measure
from kernel_assay.oracles.numerics.rounding import round_to
from kernel_assay.oracles.spec.contract import INTERVAL, NAN, NINF, PINF, ZERO

FLOATS = [n for n, f in FORMATS.items() if f.is_float]
EIGHT_BIT = ["float8_e4m3fn", "float8_e5m2"]
pytest.importorskip("numba")


@pytest.fixture(scope="module", autouse=True)
def at_once():
    """Little is swept with the engine, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PAYS", 0)
        yield


@pytest.fixture(params=["kernel_assay.oracles.judging.measure_numba", "kernel_assay.oracles.judging.measure_numpy"])
def engine(request, monkeypatch):
    monkeypatch.setattr(module, "engine", lambda: request.param)
    return request.param


def ordered_values(fmt):
    """Bit pattern -> rank among the finite values, +0 and -0 alike, by brute force."""
    patterns = np.arange(1 << fmt.bits, dtype=fmt.carrier)
    values = patterns.view(fmt.dtype).astype(np.float64)
    return values, np.unique(values[np.isfinite(values)])


def exact_excess(y, r, values, fmt):
    """Distance of r to the cell of y with rational numbers and a search for the neighbours; None: y is no number."""
    r = Fraction(r)
    step = Fraction(2) ** (fmt.emax - fmt.precision + 1)
    top = Fraction(fmt.max) + step / 2
    if not math.isfinite(y):
        if math.isnan(y):
            return None if fmt.has_inf else max(top - abs(r), Fraction(0))
        return max(top - (r if y > 0 else -r), Fraction(0))
    i = int(np.searchsorted(values, y))
    low = (Fraction(values[i - 1]) + Fraction(y)) / 2 if i else -top
    high = (Fraction(values[i + 1]) + Fraction(y)) / 2 if i + 1 < len(values) else top
    return max(low - r, r - high, Fraction(0))


def awkward_reals(fmt, count, seed):
    """Values of the format, midpoints, neighbours of both, thresholds, tiny and huge numbers."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << fmt.bits, count, dtype=np.uint64).astype(fmt.carrier)
    with np.errstate(invalid="ignore"):
        values = bits.view(fmt.dtype).astype(np.float64)
    values = np.where(np.isfinite(values), values, fmt.max)
    noise = rng.choice([0.0, 0.25, 0.5, 0.5 + 2.0**-30, -0.5, 1.0, 3.0, 1e-12], count)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.clip(values + noise * np.maximum(np.abs(values) * 2 * fmt.unit, fmt.eta), -1e308, 1e308)


@pytest.mark.parametrize("name", EIGHT_BIT)
def test_rho_and_steps_of_every_8_bit_pattern(name, engine):
    fmt = FORMATS[name]
    values, ranked = ordered_values(fmt)
    got = np.arange(256, dtype=np.uint8).view(fmt.dtype)
    wants = [*awkward_reals(fmt, 12, 5), 0.0, -0.0, fmt.eta / 2, fmt.max, fmt.tiny, -1.0, 449.0, 464.0, 465.0, 1e6]
    for want in wants:
        rounded = float(round_to(np.array([want]), fmt)[0])
        for i in range(256):
            m = measure(got[i : i + 1], np.array([want]), 0.125)
            excess = exact_excess(values[i], want, ranked, fmt)
            fits = excess is not None and excess <= Fraction(0.125)
            assert (m.bad == 0) == fits, (i, want)
            finite = math.isfinite(values[i])
            if finite or fits:
                assert m.misrounded == (excess > 0)
                assert m.rho == pytest.approx(float(excess / Fraction(0.125)), rel=1e-12)
                assert (m.over, m.class_bad) == (0 if fits else 1, 0)
            else:
                assert (m.over, m.class_bad) == (0, 1)
            if finite and math.isfinite(rounded):
                ranks = np.searchsorted(ranked, [values[i], rounded])
                assert m.max_ulp == abs(int(ranks[0]) - int(ranks[1])), (i, want)
                assert sum(m.ulp_histogram) == 1
                assert m.ulp_histogram[-1] == 1


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_rho_of_wide_formats_against_rationals(name, engine):
    fmt = FORMATS[name]
    want = awkward_reals(fmt, 200, 3)
    steps = np.random.default_rng(4).integers(-2, 3, 200)
    near = round_to(want, fmt).view(fmt.carrier).astype(np.int64) + steps
    got = near.astype(np.uint64).astype(fmt.carrier).view(fmt.dtype)
    error = np.maximum(np.abs(want) * fmt.unit, fmt.eta)
    for i in range(200):
        y, r = float(got[i]), float(want[i])
        if not math.isfinite(y):
            continue
        with np.errstate(over="ignore"):
            around = [float(np.nextafter(got[i], fmt.dtype.type(s * math.inf))) for s in (-1, 1)]
        if not all(map(math.isfinite, around)):
            continue
        low, high = ((Fraction(y) + Fraction(a)) / 2 for a in around)
        excess = max(low - Fraction(r), Fraction(r) - high, Fraction(0))
        m = measure(got[i : i + 1], want[i : i + 1], error[i : i + 1])
        wanted = float(excess / Fraction(error[i]))
        # |y-r| itself is rounded to float64, so the last bits of an excess close to 0 are lost.
        assert m.rho == pytest.approx(wanted, rel=1e-6, abs=1e-6 if name != "float64" else 1.0), (y, r)
        ulp = 2.0 ** (max(math.frexp(r)[1] - 1, fmt.emin) - fmt.precision + 1) if r else fmt.eta
        assert m.max_ulp_real == pytest.approx(abs(y - r) / ulp)


@pytest.mark.parametrize("name", FLOATS)
def test_steps_and_histogram(name, engine):
    fmt = FORMATS[name]
    patterns = np.array([0, 1, 2, 4, 6, 12], dtype=fmt.carrier)
    m = measure(patterns.view(fmt.dtype), np.zeros(6), 1e3)
    assert (m.max_ulp, m.max_ulp_index) == (12, 5)
    assert m.ulp_histogram == (1, 1, 1, 1, 1, 1)
    minus = np.array([1 | fmt.sign_bit, fmt.sign_bit], dtype=fmt.carrier).view(fmt.dtype)
    m = measure(minus, np.array([fmt.eta, 0.0]), 1.0)
    assert (m.max_ulp, m.max_ulp_index, m.ulp_histogram) == (2, 0, (1, 0, 1))


def test_extreme_distance_of_float64(engine):
    m = measure(np.array([-1.7e308]), np.array([1.7e308]), 0.0)
    bits = int(np.array([1.7e308]).view(np.int64)[0])
    assert m.max_ulp == 2 * bits
    assert m.ulp_histogram[-1] == 1
    assert len(m.ulp_histogram) == 66
    assert m.max_abs == math.inf
    assert m.nmse == math.inf
    assert m.cosine == 0.0
    assert m.psnr == -math.inf


CLASSES = {0.0: ZERO, math.inf: PINF, -math.inf: NINF, math.nan: NAN}


@pytest.mark.parametrize("want", [1.0, 0.0, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("got", [1.0, 2.0, 0.0, math.inf, -math.inf, math.nan])
def test_every_class_under_every_mask(got, want, engine):
    y, r = np.array([got], dtype=np.float32), np.array([want])
    for mask in range(1, 32):
        by_class = any(mask & bit and (got == c or (math.isnan(got) and math.isnan(c))) for c, bit in CLASSES.items())
        by_value = bool(mask & INTERVAL) and math.isfinite(want) and got == want
        m = measure(y, r, 0.25, np.array([mask], dtype=np.uint8))
        assert (m.bad == 0) == (by_class or by_value), mask
        over = bool(mask & INTERVAL) and math.isfinite(want) and math.isfinite(got)
        if m.bad:
            assert (m.over, m.class_bad) == ((1, 0) if over else (0, 1))
    default = measure(y, r, 0.25)
    assert (default.bad == 0) == (got == want or (math.isnan(got) and math.isnan(want)))


def test_overflow_is_judged_by_the_threshold(engine):
    got = np.array([np.inf, np.inf, np.inf, 65504.0], dtype=np.float16)
    want = np.array([65519.0, 65510.0, 1e6, 65520.0])
    m = measure(got, want, 2.0)
    assert (m.bad, m.class_bad, m.first_bad, m.rho) == (1, 1, (1,), 0.5)
    fp8 = np.array([0x7F, 0x7F, 0x7F, 0x7E], dtype=np.uint8).view(FORMATS["float8_e4m3fn"].dtype)
    m = measure(fp8, np.array([465.0, -1e3, 100.0, 464.0]), 0.0)
    assert (m.class_bad, m.first_bad) == (1, (2,))
    m = measure(fp8[:2], np.array([np.inf, np.nan]), 0.0)  # no Inf: its place is NaN
    assert m.bad == 0


def test_a_zero_budget_and_a_meaningless_one(engine):
    got, want = np.array([1.0, 2.0], dtype=np.float32), np.array([1.0, 2.0 + 1e-6])
    for error in (0.0, math.nan, -1.0):
        m = measure(got, want, error)
        assert (m.over, m.rho, m.rho_index, m.worst_index) == (1, math.inf, 1, 1)
        assert measure(got, want, np.array([0.0, error])).over == 1
        assert measure(got, got.astype(np.float64), error).bad == 0
    assert measure(got, want + 5, math.inf).bad == 0


def test_class_failures_are_the_worst_and_spoil_every_mean(engine):
    got = np.array([9.0, 1.0, np.nan], dtype=np.float32)
    m = measure(got, np.ones(3), 0.5, sigma=1.0)
    assert (m.bad, m.over, m.class_bad, m.first_bad, m.worst_index, m.rho_index) == (2, 1, 1, (0, 2), 2, 0)
    assert (m.nmse, m.cosine, m.psnr, m.got_nonfinite, m.want_nonfinite) == (math.inf, 0.0, -math.inf, 1, 0)


def test_means(engine):
    want = np.array([3.0, 4.0, -1.0])
    m = measure(np.array([3.0, 4.5, -1.0], dtype=np.float32), want, 1.0, sigma=0.25)
    assert m.nmse == pytest.approx(0.25 / 26)
    y = np.array([3.0, 4.5, -1.0])
    assert m.cosine == pytest.approx(float(y @ want / np.linalg.norm(y) / np.linalg.norm(want)))
    assert m.psnr == pytest.approx(10 * math.log10(16 / (0.25 / 3)))
    assert (m.max_abs, m.max_abs_index, m.max_rel, m.max_rel_index) == (0.5, 1, 0.125, 1)
    assert m.z == pytest.approx(math.sqrt(0.25 / 0.0625 / 3), rel=1e-6)


def test_z_of_correct_rounding_is_one(engine):
    want = np.random.default_rng(0).uniform(1, 2, 20000)
    assert measure(want.astype(np.float16), want, 0.0, sigma=0.0).z == pytest.approx(1.0, abs=0.02)


def test_means_of_nothing_and_of_zeros(engine):
    empty = measure(np.zeros((0, 3), np.float32), np.zeros((0, 3)), 0.0, sigma=1.0)
    assert (empty.count, empty.bad, empty.nmse, empty.cosine, empty.psnr, empty.z) == (0, 0, 0.0, 1.0, math.inf, 0.0)
    assert empty.ulp_histogram == ()
    zeros = measure(np.zeros(3, np.float32), np.zeros(3), 0.0)
    assert (zeros.nmse, zeros.cosine, zeros.psnr, zeros.max_abs_index, zeros.rho_index) == (0.0, 1.0, math.inf, -1, -1)
    only_want = measure(np.zeros(3, np.float32), np.ones(3), 2.0)
    assert (only_want.nmse, only_want.cosine, only_want.psnr) == (1.0, 0.0, 0.0)
    only_got = measure(np.ones(3, np.float32), np.zeros(3), 2.0)
    assert (only_got.nmse, only_got.cosine, only_got.psnr) == (math.inf, 0.0, -math.inf)


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "int64"])
def test_integers(name, engine):
    fmt = FORMATS[name]
    top = int(fmt.max) if name != "int64" else 2**53
    got = np.array([0, 1, 5, top], dtype=fmt.dtype)
    m = measure(got, np.array([0.0, 2.0, 5.0, top]), 1.0)
    assert (m.bad, m.misrounded, m.rho, m.rho_index, m.max_ulp, m.ulp_histogram) == (0, 1, 1.0, 1, 1, (3, 1))
    assert measure(got, np.array([0.0, 2.0, 5.0, np.nan]), 1.0).class_bad == 1


def test_int64_above_the_reach_of_float64(engine):
    assert measure(np.array([2**53 + 1]), np.array([2.0**53]), 0.0).over == 1


def counts_of(m):
    """What both engines must agree on to the last bit."""
    sums = dict.fromkeys(["nmse", "cosine", "psnr", "z"])
    return asdict(replace(m, **sums))


def closely(a, b):
    return a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9))


def both(monkeypatch, *args):
    found = []
    for name in ("kernel_assay.oracles.judging.measure_numba", "kernel_assay.oracles.judging.measure_numpy"):
        monkeypatch.setattr(module, "engine", lambda name=name: name)
        found.append(measure(*args))
    fused, plain = found
    assert counts_of(fused) == counts_of(plain)
    for column in ("nmse", "cosine", "psnr", "z"):
        assert closely(getattr(fused, column), getattr(plain, column)), column
    return fused


def made_up(fmt, size, seed, sharp):
    """An output, its reference and budgets with everything that can go wrong in them."""
    rng = np.random.default_rng(seed)
    if not fmt.is_float:
        got = rng.integers(0, 100, size).astype(fmt.dtype)
        return got, got.astype(np.float64) + rng.choice([0.0, 0.0, 1.0, -3.0, np.nan], size), np.full(size, 1.0)
    want = awkward_reals(fmt, size, seed) if seed % 2 else rng.standard_normal(size)
    steps = rng.choice([0, 0, 0, 1, -1, 5], size) if sharp else np.zeros(size, np.int64)
    got = (round_to(want, fmt).view(fmt.carrier) + steps.astype(fmt.carrier)).view(fmt.dtype)
    strange = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, fmt.tiny, fmt.eta, fmt.max, 1.0])
    few = rng.random(size) < rng.choice([0.0, 0.02, 0.3])
    got[few] = round_to(rng.choice(strange, int(few.sum())), fmt)
    few = rng.random(size) < rng.choice([0.0, 0.02, 0.3])
    want[few] = rng.choice(strange, int(few.sum()))
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(want) * fmt.unit * rng.choice([0.0, 0.5, 1.0, 8.0, 1e3], size)
    return got, want, error


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(FORMATS)),
    size=st.sampled_from([1, 2, 63, 2048, 2049, 5000]),
    seed=st.integers(0, 10**6),
    sharp=st.booleans(),
    masked=st.sampled_from([None, "any", "flushed"]),
    scalar=st.sampled_from([None, 0.0, 1e-3, 1.0, math.inf, math.nan]),
    sigma=st.sampled_from([None, 0.0, 1e-3, "array"]),
    narrow=st.booleans(),
)
def test_both_engines_agree(name, size, seed, sharp, masked, scalar, sigma, narrow):
    got, want, error = made_up(FORMATS[name], size, seed, sharp)
    if narrow:
        with np.errstate(over="ignore"):
            want = want.astype(np.float32)
    masks = np.random.default_rng(seed).integers(0, 32, size).astype(np.uint8)
    accept = {None: None, "any": masks, "flushed": (masks & ZERO) | INTERVAL}[masked]
    with pytest.MonkeyPatch.context() as patch:
        both(patch, got, want, error if scalar is None else scalar, accept, error if sigma == "array" else sigma)


SINGLES = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "growing": lambda rng, size: rng.uniform(1, 2, size) * 2.0 ** (np.arange(size) // rng.integers(100, 4000)),
    "subnormal": lambda rng, size: rng.integers(20, 400, size) * 2.0**-149,
    "powers of two": lambda rng, size: np.ldexp(rng.choice([-1.0, 1.0, 1.5], size), rng.integers(-149, 127, size)),
    "hardly any": lambda rng, size: np.where(rng.random(size) < 0.1, rng.standard_normal(size), 0.0),
}


def moved(rng, want, how):
    """The same, some of it a little further on, or somewhere else."""
    got, some = want.copy(), rng.random(want.size) < rng.choice([0.001, 0.5])
    bits, count = got.view(np.uint32), int(some.sum())
    steps = {"up": 1, "down": -1, "further": rng.integers(0, 5, count)}.get(how, 0)
    bits[some] = bits[some] + np.int64(steps)  # a step down from zero is a NaN
    if how == "elsewhere":
        got[some] *= (1 + rng.standard_normal(count) * 2.0 ** rng.choice([-20, 0])).astype(np.float32)
    if how == "strange":
        got[rng.integers(want.size)] = rng.choice([np.nan, np.inf, -np.inf])
    return got


@settings(max_examples=250, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(sorted(SINGLES)),
    how=st.sampled_from(["up", "down", "further", "elsewhere", "strange"]),
    size=st.sampled_from([1, 2, 2049, 12_000, 12_001]),
    seed=st.integers(0, 10**6),
    budget=st.sampled_from([0.0, 0.5, 1.0, 1.0000001, 2.0, math.inf, 1e300, math.nan]),
)
def test_both_engines_agree_on_float32_references_under_one_budget(kind, how, size, seed, budget):
    rng = np.random.default_rng(seed)
    with np.errstate(invalid="ignore", over="ignore"):
        want = SINGLES[kind](rng, size).astype(np.float32)
        want[~np.isfinite(want)] = 1.0
        got = moved(rng, want, how)
        away = np.abs(got.astype(np.float64) - want)
        most = np.max(away, where=np.isfinite(away), initial=0.0)
        with pytest.MonkeyPatch.context() as patch:
            both(patch, got, want, float(most * budget))


def test_a_difference_that_float32_rounds_away_is_a_record(monkeypatch):
    got, want = np.zeros(4096, np.float32), np.zeros(4096, np.float32)
    want[0] = 1 - 2.0**-20
    got[1], want[1] = 2.0**-3, 2.0**-10  # the largest relative error
    got[2048], want[2048] = 0.5 + 2.0**-24, -(0.5 - 2.0**-20 - 2.0**-25)  # in another block, with no larger excess
    m = both(monkeypatch, got, want, 2.0)
    assert (m.max_abs, m.max_abs_index, m.rho_index) == (1 - 2.0**-20 + 2.0**-25, 2048, 0)


@pytest.mark.parametrize("name", ["float32", "float16", "int32"])
def test_two_halves_are_one(name, monkeypatch):
    fmt = FORMATS[name]
    got, want, error = made_up(fmt, 3000, 11, sharp=True)
    whole = both(monkeypatch, got, want, error)
    monkeypatch.setattr(module, "THREADED", 100)
    monkeypatch.setattr(module, "SLAB", 700)
    assert counts_of(both(monkeypatch, got, want, error)) == counts_of(whole)
    late = np.zeros(2000, np.float32)
    late[1999] = 1.0
    m = measure(late, np.zeros(2000), 0.5)
    assert (m.first_bad, m.rho_index, m.max_ulp_index, m.max_abs_index, m.worst_index) == (
        (1999,),
        1999,
        1999,
        1999,
        1999,
    )


def test_a_lone_last_element_has_its_own_budget(monkeypatch):
    monkeypatch.setattr(module, "THREADED", 0)
    monkeypatch.setattr(module, "SLAB", 4)
    got = np.array([[0, 0, 0, 0, 0, 1, 0, 0, 0, 0.5]], dtype=np.float32)
    error = np.array([[2.0] * 9 + [0.5]])
    for layout in (np.ascontiguousarray, lambda a: np.repeat(a, 2, axis=1)[:, ::2]):  # whole, and cut into 4 + 1
        m = both(monkeypatch, layout(got), np.zeros((1, 10)), layout(error))
        assert (m.rho, m.rho_index, m.bad) == (pytest.approx(1.0), 9, 0)


@pytest.mark.parametrize("shape", [(1, 7), (40, 1), (1, 1), (7,), ()])
def test_broadcast_budgets_and_layouts(shape, monkeypatch):
    monkeypatch.setattr(module, "THREADED", 100)
    monkeypatch.setattr(module, "SLAB", 32)
    rng = np.random.default_rng(2)
    want = rng.standard_normal((40, 7))
    got = (want + rng.standard_normal((40, 7)) * 1e-3).astype(np.float32)
    error = rng.random(shape) * 2e-3
    masks = np.full(shape, INTERVAL | ZERO, np.uint8)
    full = measure(got, want, np.broadcast_to(error, (40, 7)).copy(), np.full((40, 7), masks.flat[0]), np.ones((40, 7)))
    assert 0 < full.bad < 280
    assert both(monkeypatch, got, want, error, masks, np.ones(shape)) == full
    turned = np.asfortranarray(got), np.asfortranarray(want)
    assert both(monkeypatch, *turned, np.broadcast_to(error, (40, 7)), masks, np.ones(shape)) == full
    wide = np.zeros((2, 300))
    wide[1, 10] = 1.0
    assert measure(wide.T[:, ::-1], np.zeros((300, 2)), 0.5).first_bad == (20,)


def test_shapes_are_checked():
    with pytest.raises(UsageError, match="they must be equal"):
        measure(np.zeros(3), np.zeros((3, 1)), 0.0)
    with pytest.raises(UsageError, match="does not broadcast"):
        measure(np.zeros(3), np.zeros(3), np.zeros(2))


def test_big_arrays_need_little_memory():
    size = 1 << 22
    got = np.zeros((size // 64, 64), np.float32)
    want = np.zeros_like(got)
    want[-1, -1] = 1e-30
    error = np.full((size // 64, 1), 1e-20)
    measure(got[:1], want[:1], 1.0)
    tracemalloc.start()
    m = measure(got, want, error)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (m.bad, m.misrounded, m.rho_index) == (0, 1, size - 1)
    assert peak < 16 << 20


@pytest.mark.parametrize(
    ("flag", "chosen"),
    [("1", "kernel_assay.oracles.judging.measure_numpy"), ("0", "kernel_assay.oracles.judging.measure_numba")],
)
def test_the_environment_can_forbid_numba(flag, chosen):
    code = (
        "import sys; from kernel_assay.oracles.judging.measure import engine; print(engine(), 'numba' in sys.modules)"
    )
    env = {"KERNEL_ASSAY_NO_NUMBA": flag, "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.split() == [chosen, str(chosen == "kernel_assay.oracles.judging.measure_numba")]


def test_numpy_measures_until_machine_code_is_there(monkeypatch):
    there = []
    monkeypatch.setattr(module, "_UNTIL", [lambda: bool(there)])
    assert module._ready_engine(1) == "kernel_assay.oracles.judging.measure_numpy"
    there.append(1)
    assert module._ready_engine(1) == "kernel_assay.oracles.judging.measure_numba"
    assert not module._UNTIL, "it is not asked again"


def test_numba_is_not_started_for_little(monkeypatch):
    monkeypatch.setattr(module, "_PAYS", 100_000)
    monkeypatch.setattr(module, "_SWEPT", [0])
    monkeypatch.setattr(module, "_UNTIL", [lambda: pytest.fail("nobody asks for machine code")])
    assert module._ready_engine(90_000) == "kernel_assay.oracles.judging.measure_numpy"
    monkeypatch.setattr(module, "_UNTIL", [])
    assert module._ready_engine(1) == "kernel_assay.oracles.judging.measure_numpy"
    assert [module._ready_engine(0) for _ in range(2)][-1] == "kernel_assay.oracles.judging.measure_numba"


def test_compiling_beside_ends_with_a_stamp():
    """Of what was compiled for one format, in a folder of its own; with the stamp there is nothing to start."""
    code = "from kernel_assay.oracles.judging import precompile as p; import sys; sys.argv[1:] = ['int8']; p.main()"
    again = f"{code}; print(p.stamp().exists(), p.compiled(), p._BESIDE)"
    with tempfile.TemporaryDirectory() as empty:
        env = {**os.environ, "NUMBA_CACHE_DIR": empty}
        done = subprocess.run([sys.executable, "-c", again], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.split() == ["True", "True", "[]"]


def test_unknown_dtypes_are_refused():
    with pytest.raises(UsageError):
        measure(np.zeros(1, np.complex64), np.zeros(1), 0.0)
    assert format_of("float32").name == "float32"
