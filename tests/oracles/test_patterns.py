import numpy as np
import pytest

from kernel_assay.corpus.formats import FORMATS
from kernel_assay.oracles.judging.patterns import error_pattern, index_pattern
from kernel_assay.oracles.numerics.rounding import round_to


def mask(shape, *places):
    bad = np.zeros(shape, dtype=bool)
    for place in places:
        bad[place] = True
    return bad


WHOLE = slice(None)
PLACES = [
    ("none", mask((4, 5))),
    ("none", mask((0, 5))),
    ("all", mask((4, 5), ...)),
    ("all", mask((1,), 0)),
    ("first_element", mask((4, 5), (0, 0))),
    ("last_element", mask((4, 5), (3, 4))),
    ("single", mask((4, 5), (2, 3))),
    ("tile_tail_columns", mask((4, 70), (WHOLE, slice(64, None)))),
    ("tile_tail_columns", mask((4, 33), (WHOLE, 32))),
    ("tile_tail_columns", mask((1000,), slice(768, None))),
    ("tile_tail_columns", mask((2, 4, 21), (..., slice(16, 20)))),
    ("tile_tail_rows", mask((130, 3), slice(128, None))),
    ("tile_tail_rows", mask((2, 33, 7), (WHOLE, 32, slice(0, 3)))),
    ("one_row", mask((9, 64), (3, slice(5, 20)))),
    ("one_row", mask((2, 4, 5), (1, 2))),
    ("one_column", mask((9, 64), (slice(2, 5), 7))),
    ("rows", mask((9, 64), 3, 5)),
    ("columns", mask((9, 64), (WHOLE, 3), (WHOLE, 5))),
    ("scattered", mask((9, 64), (1, 2), (5, 9), (8, 63))),
    ("scattered", mask((64,), 3, 7)),
    ("columns", mask((4, 70), (WHOLE, slice(63, None)))),
    ("scattered", mask((4, 70), (slice(0, 3), slice(63, None)))),
]


@pytest.mark.parametrize(("word", "bad"), PLACES)
def test_places(word, bad):
    assert index_pattern(bad, bad.shape) == word
    assert index_pattern(np.flatnonzero(bad), bad.shape) == word


def test_places_of_a_scalar():
    assert index_pattern(np.array([0]), ()) == "all"


def test_many_failures_are_thinned_out_evenly():
    bad = mask((1 << 10, 1 << 10), (WHOLE, slice(0, 1 << 10, 2)))
    assert index_pattern(bad, bad.shape) == "columns"
    tail = mask((1 << 12, 100), (WHOLE, slice(64, None)))
    assert index_pattern(tail, tail.shape) == "tile_tail_columns"


WANT = np.random.default_rng(0).standard_normal((8, 40))
F32 = WANT.astype(np.float32)


def filled(value, like=F32):
    return np.full_like(like, value)


def holding(value):
    want = WANT.copy()
    want[:] = value
    return want


VALUES = [
    ("nan", filled(np.nan), WANT),
    ("inf", filled(-np.inf), WANT),
    ("missing_nan", F32, holding(np.nan)),
    ("missing_inf", F32, holding(np.inf)),
    ("zeros", filled(0.0), WANT),
    ("sign", -F32, WANT),
    ("shifted", np.roll(F32, 1, axis=1), WANT),
    ("shifted", np.roll(F32, -1, axis=1), WANT),
    ("scaled", F32 * 2, WANT),
    ("scaled", F32 * np.float32(-0.125), WANT),
    ("low_precision", round_to(WANT, FORMATS["bfloat16"]).astype(np.float32), WANT),
    ("low_precision", WANT.astype(np.float16).astype(np.float32), WANT),
    ("low_precision", (F32.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32), WANT),
    ("low_precision", F32.astype(np.float64), WANT),
    ("small", (F32.view(np.uint32) + np.uint32(5)).view(np.float32), WANT),
    ("other", F32 + np.sin(np.arange(320, dtype=np.float32)).reshape(8, 40), WANT),
    ("other", filled(7.0), holding(1.0)),
    ("sign", np.array([-3, 5], dtype=np.int32), np.array([3.0, -5.0])),
    ("other", np.array([3], dtype=np.int64), np.array([300.0])),
]


@pytest.mark.parametrize(("word", "got", "want"), VALUES)
def test_values(word, got, want):
    everything = np.ones(got.shape, dtype=bool)
    assert error_pattern(got, want, everything) == word
    assert error_pattern(got, want, np.arange(got.size)) == word
    assert error_pattern(np.asfortranarray(got), np.asfortranarray(want), everything) == word


def test_only_failing_elements_count():
    got = F32.copy()
    got[3, 5:9] = 0.0
    assert error_pattern(got, WANT, got != F32) == "zeros"
    assert error_pattern(got, WANT, np.zeros(got.shape, dtype=bool)) == "none"


def test_one_in_ten_may_differ_but_not_more():
    got = filled(np.nan)
    got[0, :30] = 1.0
    bad = np.ones(got.shape, dtype=bool)
    assert error_pattern(got, WANT, bad) == "nan"
    got[:2] = 1.0
    assert error_pattern(got, WANT, bad) == "other"


def test_poison_is_told_from_nan():
    got = np.full(F32.shape, 0xFFFFFFFF, dtype=np.uint32).view(np.float32)
    bad = np.ones(F32.shape, dtype=bool)
    assert error_pattern(got, WANT, bad, poison=0xFF) == "poison"
    assert error_pattern(got, WANT, bad, poison=0xA5) == "nan"


def test_a_known_rho_makes_it_small():
    got = F32 + np.sin(np.arange(320, dtype=np.float32)).reshape(8, 40)
    bad = np.ones(F32.shape, dtype=bool)
    assert error_pattern(got, WANT, bad, rho=99.0) == "small"
    assert error_pattern(got, WANT, bad, rho=101.0) == "other"
