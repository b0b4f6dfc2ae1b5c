"""Sizes come near tiles, tie with one another and know the code's own constants; all else is Hypothesis' own."""

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.data import ConjectureData
from hypothesis.internal.conjecture.provider_conformance import run_conformance_test

from kernel_assay.fuzz.generation import size_distribution
from kernel_assay.fuzz.generation.size_distribution import KernelProvider, provider_kw

N = 4000


def draws(low, high, *, count=N, hints=(), seed=0, **settings):
    found = []
    for i in range(count):
        data = ConjectureData(random=Random(f"{seed}:{i}"), provider=KernelProvider, provider_kw=provider_kw(hints))
        found.append(data.draw_integer(low, high, **settings))
    return found


def share(found, wanted):
    return sum(map(wanted, found)) / len(found)


def test_hypothesis_own_conformance_suite_passes():
    run_conformance_test(
        KernelProvider,
        settings=settings(
            max_examples=20, stateful_step_count=20, suppress_health_check=list(HealthCheck), deadline=None
        ),
    )


@pytest.mark.parametrize(("low", "high"), [(0, 4096), (1, 512), (0, 64), (5, 5), (-300, 300), (0, 1 << 15), (100, 140)])
def test_draws_stay_in_range(low, high):
    found = draws(low, high, count=800, hints=(48, 4096))
    assert low <= min(found) <= max(found) <= high


def test_sizes_lie_at_tiles_more_often_than_elsewhere():
    found = draws(0, 4096)
    assert 0.20 < share(found, lambda n: n > 3 and min(n % 32, -n % 32) <= 1) < 0.60  # evenly: 0.09
    assert 0.05 < share(found, lambda n: n % 64 == 0) < 0.40
    assert 0.10 < share(found, lambda n: n > 3 and n % 16 in {1, 15}) < 0.60
    for tile in (32, 128, 1024):
        for size in (tile - 1, tile, tile + 1):
            assert found.count(size) > 3


def test_small_and_extreme_sizes_are_frequent():
    found = draws(0, 4096)
    assert 0.25 < share(found, lambda n: n < 20) < 0.60
    assert share(found, lambda n: n == 0) > 0.02
    assert share(found, lambda n: n == 4096) > 0.005
    assert share(found, lambda n: n > 2048) > 0.01
    assert len(set(found)) > 300


def test_sizes_tie_with_earlier_sizes():
    def pair(i):
        data = ConjectureData(random=Random(i), provider=KernelProvider, provider_kw={})
        return [data.draw_integer(0, 4096) for _ in range(3)]

    found = [pair(i) for i in range(3000)]
    ties = sum(len(set(p)) < 3 for p in found) / len(found)
    assert 0.10 < ties < 0.40
    assert sum(len(set(p)) == 1 for p in found) > 3


def test_hints_are_used_with_their_neighbours():
    plain, hinted = Counter(draws(0, 4096)), Counter(draws(0, 4096, hints=(733,)))
    assert sum(plain[n] for n in (732, 733, 734)) < 20
    assert all(hinted[n] > 40 for n in (732, 733, 734))


def test_choices_from_lists_and_seeds_are_even():
    found = Counter(draws(0, 9))
    assert set(found) == set(range(10))
    assert min(found.values()) > 0.7 * N / 10
    seeds = draws(0, (1 << 16) - 1)
    assert 0.45 < share(seeds, lambda n: n < 1 << 15) < 0.55
    assert len(set(seeds)) > 0.95 * N
    wide = draws(0, (1 << 60) - 1, count=500)
    assert 0.4 < share(wide, lambda n: n & 1) < 0.6, "no bits of a 60-bit seed are lost"


def test_weights_do_not_bring_hypothesis_distribution_back():
    assert draws(0, 4096, count=300) == draws(0, 4096, count=300, weights={0: 0.9})


def test_integers_of_a_strategy_take_the_same_road():
    size_distribution.register()
    found = []

    @settings(
        max_examples=1500, backend=size_distribution.BACKEND, database=None, phases=(Phase.generate,), deadline=None
    )
    @given(st.integers(0, 4096))
    def collect(n):
        found.append(n)

    collect()
    assert 0.20 < share(found, lambda n: n > 3 and min(n % 32, -n % 32) <= 1) < 0.60  # evenly: 0.09


def test_open_ranges_are_hypothesis_own():
    data = ConjectureData(random=Random(1), provider=KernelProvider, provider_kw={})
    assert isinstance(data.draw_integer(), int)
    assert isinstance(data.draw_float(), float)
    assert data.draw_integer(5, None) >= 5
