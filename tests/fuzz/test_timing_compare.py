"""SAME, FASTER, SLOWER or UNSURE: how often equal versions are told apart, and what is found, under any noise."""

import itertools
import math

import numpy as np
import pytest

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.model.timing import Change
from kernel_assay.fuzz.timing.compare import (
    FALSE_ALARM,
    LEAST,
    WANTED,
    centre,
    compare,
    critical_rank,
    least_samples,
    walsh,
)

LAUNCHES, ROUNDS = 40, 6
NAMES = np.repeat(np.arange(LAUNCHES), ROUNDS)
TOLD_APART = {Change.FASTER, Change.SLOWER}


def walk(random, n, step):
    return np.cumsum(random.standard_normal(n)) * step


def own_of_each_launch(random, deviation):
    """What a process is by chance, for as long as it lives."""
    return np.repeat(random.standard_normal(LAUNCHES) * deviation, ROUNDS)


def both(make):
    return lambda random: (make(random), make(random))


def shared(random):
    common = walk(random, len(NAMES), 0.02)
    return tuple(common + random.standard_normal(len(NAMES)) * 0.02 for _ in range(2))


SHAPE = (LAUNCHES, ROUNDS)
N = LAUNCHES * ROUNDS
NOISES = {
    "normal": both(lambda r: r.standard_normal(N) * 0.02),
    "drift and wandering that both share": shared,
    "one launch is not another": both(lambda r: own_of_each_launch(r, 0.012) + r.standard_normal(N) * 0.02),
    "wandering within each launch": both(
        lambda r: (np.cumsum(r.standard_normal(SHAPE), axis=1) * 0.008).ravel() + r.standard_normal(N) * 0.01
    ),
    "heavy tails": both(lambda r: np.abs(r.standard_t(2, N)) * 0.02),
    "outliers": both(lambda r: r.standard_normal(N) * 0.01 + (r.random(N) < 0.1) * r.exponential(1, N)),
    "two clock frequencies": both(
        lambda r: np.repeat(r.random(LAUNCHES) < 0.5, ROUNDS) * 0.03 + r.standard_normal(N) * 0.005
    ),
}


def said(noise, random, slowdown=0.0):
    a, b = noise(random)
    return compare(np.exp(a), np.exp(b) * (1 + slowdown), launches=NAMES)


@pytest.mark.parametrize("name", NOISES)
def test_equal_versions_are_not_told_apart(name):
    random = np.random.default_rng(1)
    changes = [said(NOISES[name], random).change for _ in range(300)]
    assert not TOLD_APART & set(changes)
    assert changes.count(Change.SAME) > 150, "and most often it is known that they are the same"


@pytest.mark.parametrize("name", NOISES)
def test_what_it_says_it_would_find_is_found(name):
    random = np.random.default_rng(2)
    three = [said(NOISES[name], random, 0.03) for _ in range(200)]
    able = [c.change for c in three if c.detects <= 1 + WANTED]
    assert able.count(Change.SLOWER) >= 0.99 * len(able)
    ten = [said(NOISES[name], random, 0.1).change for _ in range(50)]
    assert ten.count(Change.SLOWER) >= 45
    assert set(ten) <= {Change.SLOWER, Change.UNSURE}


def test_the_level_is_kept_where_nothing_else_protects_it():
    """No margin, a lax level: the signed-rank interval itself leaves out 0 as often as it says, and not more often."""
    random, level, wrong = np.random.default_rng(3), 0.05, 0
    for _ in range(2000):
        a, b = NOISES["one launch is not another"](random)
        c = compare(np.exp(a), np.exp(b), launches=NAMES, false_alarm=level, least=0.0)
        wrong += c.change in TOLD_APART
    assert 0.03 < wrong / 2000 < 0.065


def test_slower_and_faster_mirror_one_another():
    random = np.random.default_rng(4)
    a, b = (np.exp(x) for x in NOISES["normal"](random))
    slower, faster = compare(a, b * 1.05, launches=NAMES), compare(b * 1.05, a, launches=NAMES)
    assert (slower.change, faster.change) == (Change.SLOWER, Change.FASTER)
    assert slower.ratio == pytest.approx(1 / faster.ratio)
    assert slower.low == pytest.approx(1 / faster.high)
    assert slower.low < 1.05 < slower.high


def test_a_change_below_the_smallest_that_counts_is_none():
    quiet = np.exp(np.random.default_rng(5).standard_normal((2, N)) * 1e-3)
    assert compare(quiet[0], quiet[1] * 1.007, launches=NAMES).change is Change.SAME
    assert compare(quiet[0], quiet[1] * 1.013, launches=NAMES).change is Change.SLOWER


def test_rounds_of_one_launch_say_little():
    """A process may be some per cent slower than its twin for as long as it lives: nothing in its rounds shows that."""
    random = np.random.default_rng(6)
    a, b = (np.exp(random.standard_normal(400) * 0.01) for _ in range(2))
    c = compare(a, b * 1.04)
    assert c.change is Change.UNSURE
    assert "launches are few" in c.reason
    assert compare(a, b * 1.15).change is Change.SLOWER


def test_too_few_samples_are_unsure_and_say_how_many_are_needed():
    c = compare([1.0] * 10, [2.0] * 10)
    assert (c.change, c.high, c.ratio) == (Change.UNSURE, math.inf, pytest.approx(2.0))
    assert str(least_samples()) in c.reason
    assert compare([1.0] * 11, [2.0] * 11).change is Change.SLOWER


def test_noise_is_told_with_what_would_help():
    random = np.random.default_rng(7)
    a, b = np.exp(random.standard_normal((2, N)) * 0.3)
    c = compare(a, b, launches=NAMES)
    assert c.change is Change.UNSURE
    assert c.detects > 1.1
    assert "may be missed" in c.reason
    assert "samples would find 3%" in c.reason


def test_a_clock_that_is_too_coarse_shows_in_the_interval():
    random = np.random.default_rng(8)
    a, b = (np.round(np.exp(random.standard_normal(N) * 0.002) * 20) / 20 for _ in range(2))
    c = compare(a, b, launches=NAMES)
    assert (c.change, c.reason) == (Change.UNSURE, "all times are equal: the clock is too coarse for them")
    a, b = (np.round(np.exp(random.standard_normal(N) * 0.02) * 20) / 20 for _ in range(2))
    c = compare(a, b, launches=NAMES)
    assert c.change is Change.UNSURE, "times are 0.95, 1.00 or 1.05"
    assert c.high - c.low > 0.09


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_times_that_are_none_are_our_fault(bad):
    with pytest.raises(InternalError):
        compare([1.0] * 19 + [bad], [1.0] * 20)
    with pytest.raises(InternalError):
        compare([1.0] * 20, [1.0] * 21)


def test_critical_ranks_are_those_of_all_signs():
    """By definition: all 2**n ways to give the ranks 1 to n a sign."""
    for n, level in itertools.product((5, 9, 12), (FALSE_ALARM, 0.02, 0.1)):
        sums = sorted(sum(ranks) for ranks in itertools.product(*((0, rank) for rank in range(1, n + 1))))
        fits = [k for k in range(sums[-1]) if sum(s <= k for s in sums) / 2**n <= level / 2]
        assert critical_rank(n, level) == max(fits, default=None)
        assert (critical_rank(n, level) is None) == (n < least_samples(level))


def test_the_centre_heeds_no_outlier():
    assert centre(np.array([1.0, 2.0, 3.0, 4.0, 1e9])) == pytest.approx(3.0)
    assert list(walsh(np.array([0.0, 1.0]))) == [0.0, 0.5, 1.0]
    assert LEAST < WANTED
