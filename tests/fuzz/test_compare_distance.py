"""Numbers for two tensors: what is equal agrees, what differs is named, and pieces say what the whole says."""

import math

import numpy as np
import pytest
from _tensor_files import FLOATS, apart, of_bits, side
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.fuzz.comparing import logits
from kernel_assay.fuzz.comparing.logits import rows
from kernel_assay.oracles.judging.measure import measure
from kernel_assay.oracles.numerics.rounding import round_to

quick = settings(max_examples=15, deadline=None)


@st.composite
def arrays(draw, name, most=40):
    """Any bit patterns, the strange ones among them more often than by chance."""
    fmt = FORMATS[name]
    strange = [0]
    if fmt.is_float:
        strange += [fmt.sign_bit, fmt.nan_bits, fmt.nan_bits | fmt.sign_bit, fmt.inf_bits, fmt.inf_bits | fmt.sign_bit]
    pattern = st.integers(0, (1 << fmt.bits) - 1) | st.sampled_from(strange)
    return of_bits(np.array(draw(st.lists(pattern, max_size=most)), np.uint64), name)


@pytest.mark.parametrize("name", FORMATS)
@quick
@given(data=st.data())
def test_what_is_compared_with_itself_is_equal(name, data):
    a = data.draw(arrays(name))
    d = apart(a, a.copy(), piece=7)
    assert (d.differing, d.max_ulp, d.nmse, d.cosine, d.max_abs, d.unlike) == (0, 0, 0.0, d.cosine, 0.0, 0)
    assert (d.first, d.worst, d.classes) == (None, None, {})


@pytest.mark.parametrize("name", FORMATS)
@quick
@given(data=st.data())
def test_one_changed_element_is_named(name, data):
    fmt = FORMATS[name]
    top = int(np.array(fmt.max if fmt.is_float else np.iinfo(fmt.dtype).max, fmt.dtype)[()].view(fmt.carrier))
    bits = np.array(data.draw(st.lists(st.integers(0, top), min_size=1, max_size=30)), np.uint64)
    at, steps = data.draw(st.integers(0, len(bits) - 1)), data.draw(st.integers(1, max(1, top // 2)))
    changed = bits.copy()
    changed[at] = bits[at] + steps if bits[at] + steps <= top else bits[at] - steps
    a, b = of_bits(bits, name), of_bits(changed, name)
    limit = data.draw(st.sampled_from([0, steps - 1, steps]))
    d = apart(a, b, piece=7, ulp=limit)
    assert (d.differing, d.max_ulp) == (1, steps)
    assert (d.worst.index, d.worst.a, d.worst.b) == ((at,), a[at].item(), b[at].item())
    assert (d.first is None) == (limit == steps)
    assert d.first is None or d.first.index == (at,)


@pytest.mark.parametrize("name", FORMATS)
@quick
@given(data=st.data())
def test_pieces_say_what_the_whole_says(name, data):
    a = data.draw(arrays(name))
    b = a.copy()
    for i in data.draw(st.lists(st.integers(0, max(0, len(a) - 1)), max_size=8)):
        if len(a):
            b[i] = data.draw(arrays(name, 1).filter(len))[0]
    whole, parts = apart(a, b).plain(), apart(a, b, piece=3).plain()
    sums = ("nmse", "cosine", "psnr", "mean_abs", "mean_rel")
    assert {k: v for k, v in whole.items() if k not in sums} == {k: v for k, v in parts.items() if k not in sums}
    for key in sums:
        assert float(parts[key]) == pytest.approx(float(whole[key]), rel=1e-9, abs=1e-12), key


@pytest.mark.parametrize("name", [n for n in FLOATS if n != "float64"])
@quick
@given(data=st.data())
def test_the_measures_are_those_of_the_oracle(name, data):
    want = data.draw(arrays(name))
    got = of_bits(data.draw(st.permutations(list(want.view(FORMATS[name].carrier)))), name) if len(want) else want
    d, m = apart(want, got), measure(got, want.astype(np.float64), 0.0)
    assert (d.differing, d.max_ulp, d.ulp_histogram) == (m.bad, m.max_ulp, m.ulp_histogram)
    assert (d.max_abs, d.max_rel) == (m.max_abs, m.max_rel)
    assert (d.nmse, d.cosine, d.psnr) == pytest.approx((m.nmse, m.cosine, m.psnr), abs=1e-12)
    with np.errstate(all="ignore"):
        away = np.abs(got.astype(np.float64) - want.astype(np.float64))
    numbers = away[np.isfinite(away)]
    assert d.mean_abs == pytest.approx(numbers.mean() if len(numbers) else 0.0)


@pytest.mark.parametrize("narrow", [n for n in FLOATS if n != "float64"])
@quick
@given(data=st.data())
def test_rounding_to_the_narrower_type_is_no_difference(narrow, data):
    fine = data.draw(arrays("float64"))
    with np.errstate(all="ignore"):
        coarse = round_to(fine, format_of(narrow))
    for a, b in ((fine, coarse), (coarse, fine)):
        d = apart(a, b)
        assert (d.ulp_of, d.differing, d.max_ulp, d.unlike) == (narrow, 0, 0, 0)
        assert d.relative_to == ("A" if a is fine else "B")
        assert apart(a, b, rounded=format_of(narrow)).max_abs == 0


def test_classes_are_counted_and_only_signs_of_zeros_forgiven():
    nan, inf = math.nan, math.inf
    a = np.array([0.0, nan, 1, inf, inf, 2, nan], np.float32)
    b = np.array([-0.0, 1, inf, 3, -inf, 2, nan], np.float32)
    d = apart(a, b)
    assert d.classes == {
        "zeros of different signs": 1,
        "NaN on one side": 1,
        "Inf against a number": 2,
        "Inf of different signs": 1,
    }
    assert (d.unlike, d.differing, d.max_ulp) == (4, 4, 0)
    assert d.first.index == d.worst.index == (1,)
    assert (d.nmse, d.cosine) == (math.inf, 0.0)


def test_another_nan_is_still_nan():
    assert apart(of_bits([0x7FC00000], "float32"), of_bits([0xFFC00001], "float32")).unlike == 0


def test_a_number_that_the_narrower_type_has_no_room_for():
    small, large = np.array([65504.0], np.float16), np.array([1e9], np.float32)
    assert apart(large, small, ulp=5).unlike == 1
    assert apart(large, small, ulp=5).first.index == (0,)
    assert apart(large, np.array([np.inf], np.float16)).differing == 0


@quick
@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**62))
def test_large_integers_are_exact(n, step):
    other = n - step if n > 0 else n + step
    d = apart(np.array([n, 1]), np.array([other, 1]))
    assert (d.max_ulp, d.differing) == (step, int(step > 0))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (2, 3, 4)])
def test_any_shape(shape):
    a = np.ones(shape, np.float16)
    assert apart(a, a).differing == 0
    if a.size:
        b = a.copy()
        b[tuple(n - 1 for n in shape)] = 2
        assert apart(a, b).worst.index == tuple(n - 1 for n in shape)


def test_rows_of_logits(monkeypatch):
    monkeypatch.setattr(logits, "_ELEMENTS", 8)
    a = np.zeros((2, 3, 4), np.float32)
    a[..., 1] = 5.0
    a[1, 2] = [1.0, 1.25, 0.0, -np.inf]
    b = a.copy()
    b[1, 2] = [1.5, 1.25, 0.0, -np.inf]
    b[0, 1, 3] = 2.0
    found = rows(side(a), side(b))
    p, q = (np.exp(x) / np.exp(x).sum() for x in (a[1, 2, :3].astype(float), b[1, 2, :3].astype(float)))
    assert (found.count, found.flips) == (6, 1)
    worst = found.worst[0]
    assert (worst.index, worst.a, worst.b, worst.lead) == ((1, 2), 1, 0, 0.25)
    assert worst.kl == pytest.approx((p * np.log(p / q)).sum())
    assert [row.index for row in found.worst] == [(1, 2), (0, 1)]
    assert rows(side(a), side(a)).max_kl == 0
    b[0, 0, 0] = np.nan
    assert rows(side(a), side(b)).max_kl == math.inf
    assert rows(side(np.zeros((), np.float32)), side(np.zeros((), np.float32))) is None
