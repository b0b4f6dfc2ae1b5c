"""The search for cliffs, by imagined costs with the noise of a machine that others use."""

import math
import time
from random import Random

import numpy as np
import pytest

from kernel_assay.fuzz.cliffs.patterns import labels, rule_of
from kernel_assay.fuzz.cliffs.probes import LEAST, Line, lines
from kernel_assay.fuzz.cliffs.search import FACTOR, Pair, Search
from kernel_assay.oracles.catalog import contract_of

SILU = contract_of("silu")
COLS = Line("cols", {"rows": 64}, LEAST, 4096, 1)


class Clock:
    """Each round has noise of its own, and one in ten is disturbed."""

    def __init__(self, work, seed=0, noise=0.02, disturbed=0.1):
        self.work, self.random, self.noise, self.disturbed = work, np.random.default_rng(seed), noise, disturbed
        self.shapes = self.fresh = 0

    def __call__(self, shapes, rounds, *, fresh=False):
        self.shapes += len(shapes)
        self.fresh += fresh
        size = len(shapes), rounds
        spikes = (self.random.random(size) < self.disturbed) * self.random.exponential(1.5, size)
        true = np.array([[1e-6 + 1e-9 * d["rows"] * self.work(d["cols"])] for d in shapes])
        return true * np.exp(self.random.normal(0, self.noise, size) + spikes)


def search(work, *, line=COLS, seed=0, **more):
    made = Search(SILU, Clock(work, seed), seed=seed, **more)
    return list(made.run([line])), made


PLANTED = {
    "misaligned": (lambda n: n * (1 + (n % 8 > 0)), "remainder", "when cols % 8 != 0, as at {slow}"),
    "two": (lambda n: n * (1 + (n % 2 > 0)), "remainder", "when cols % 2 != 0, as at {slow}"),
    "stride": (lambda n: n * (1 + (n % 512 == 0)), "multiples", "when cols % 512 == 0, as at {slow}"),
    "power": (lambda n: n * (1 + (n in {128, 256, 512, 1024, 2048, 4096})), "powers of two", "when cols is a power of"),
    "tail": (lambda n: n + 5 * (n % 128), "tail", "when the last block of 128 is nearly full, as at cols = {slow}"),
    "block": (lambda n: n - n % 64 + 256 * (n % 64 > 0), "remainder", "when cols % 64 != 0, as at {slow}"),
    "spill": (lambda n: n * (1 + (n > 1024)), "from", "from cols = 1025 on"),
    "odd spill": (lambda n: n * (1 + (n > 777)), "from", "from cols = 778 on"),
    "small": (lambda n: n * (1 + (n < 300)), "up to", "up to cols = 299"),
    "wave": (lambda n: math.ceil(n / 108) * 108, "wave", "behind each multiple of 108, as from cols = {slow} on"),
    "one": (lambda n: n * (1 + (n == 1000)), "only", "at cols = 1000 only"),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_cliff_is_found_at_its_boundary_and_named(name, seed):
    work, pattern, where = PLANTED[name]
    found, made = search(work, seed=seed)
    first = found[0]
    assert (first.axis, first.pattern) == ("cols", pattern)
    assert first.where.startswith(where.format(slow=first.slow))
    assert abs(first.slow - first.fine) == 1
    fine, slow = (1e-6 + 64e-9 * work(n) for n in (first.fine, first.slow))
    extra = max(1.0, first.slow / first.fine)
    assert first.factor == pytest.approx(slow / fine / extra, rel=0.1)
    assert FACTOR < first.least <= first.factor
    assert first.noise < 0.15
    assert len(first.seconds_slow) == len(first.seconds_fine) >= 62
    assert len(found) == 1, [one.where for one in found]
    assert made.complete
    assert made.searched["cols"] > 80
    assert made.clock.fresh >= 2


FLAT = {
    "linear": lambda n: n,
    "nothing": lambda n: 0,
    "n log n": lambda n: n * math.log2(n + 1),
    "a cache gets full": lambda n: n * (1 + 2 / (1 + (1000 / n) ** 2)),
    "a launch more now and then": lambda n: n + 3 * (n // 128),
    "a small step": lambda n: n * (1 + 0.15 * (n > 500)),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", FLAT)
def test_nothing_is_found_where_there_is_no_cliff(name, seed):
    assert search(FLAT[name], seed=seed)[0] == []


def test_what_counts_is_asked():
    step = PLANTED["spill"][0]
    assert search(step, factor=2.5)[0] == []
    assert search(lambda n: n * (1 + 0.3 * (n > 500)), factor=1.15)[0][0].slow == 501


def test_what_the_baseline_has_too_is_a_note():
    work = PLANTED["stride"][0]
    found, made = search(work, baseline=Clock(work, 7), baseline_name="silu/other")
    assert found == []
    assert made.notes[0].startswith("not counted, as the baseline has it, too: cols = ")
    assert "2x of silu/other" in made.notes[0]
    (one,), _ = search(work, baseline=Clock(FLAT["linear"], 7), baseline_name="silu/other")
    assert one.baseline == "silu/other"
    assert one.baseline_factor == pytest.approx(1, abs=0.05)
    assert "silu/other: 1.0" in one.sentence


def test_it_is_said_with_how_little_else_it_shows():
    class OnlyWide(Clock):
        def __call__(self, shapes, rounds, *, fresh=False):
            seconds = super().__call__(shapes, rounds, fresh=fresh)
            return seconds * np.array([[2.0 if d["rows"] >= 10 and d["cols"] > 700 else 1.0] for d in shapes])

    (one,) = Search(SILU, OnlyWide(FLAT["linear"])).run([COLS])
    assert one.shown == {"rows": 10}
    start = "1.9x slower from cols = 701 on; 700 is fine (rows = 64; seen from rows = 10 on; noise "
    assert one.sentence.replace("2x", "1.9x").startswith(start)


def test_sizes_that_cannot_be_timed_are_left_out():
    def work(n):
        return math.nan if n % 2 else PLANTED["spill"][0](n)

    assert search(work)[0] == []  # 1026 is the next size that can be timed, and no neighbour of 1024
    found, _ = search(lambda n: math.nan if n > 3000 else PLANTED["spill"][0](n))
    assert [one.slow for one in found] == [1025]


def test_extents_are_the_multiples_that_a_contract_asks_for():
    line = Line("cols", {"rows": 64}, 32, 4096, 32)
    assert all(n % 32 == 0 for n in line.sizes(Random(0)))
    (one,), made = search(lambda n: n * (1 + (n > 1024)), line=line)
    assert (one.slow, one.fine) == (1056, 1024)
    assert made.clock.shapes > 0


def test_time_that_is_over_ends_it():
    found, made = search(PLANTED["misaligned"][0], deadline=time.monotonic() - 1)
    assert (found, made.complete) == ([], False)


def test_a_dimension_that_takes_too_long_is_searched_in_part():
    slow = Clock(FLAT["linear"])
    made = Search(SILU, lambda *words, **more: slow(*words, **more) * 1e5, deadline=time.monotonic() + 60)
    assert list(made.run([COLS])) == []
    (note,) = made.notes
    assert note.startswith("cols is searched up to ")
    assert int(note.removeprefix("cols is searched up to ").split(":")[0]) < 100


def test_every_op_has_lines_within_its_ranges_and_some_time():
    for name in ("silu", "gemm", "attention", "qgemm", "embedding", "rope"):
        contract = contract_of(name)
        for device, most in (("cpu", 1 << 18), ("cuda", 1 << 25)):
            found = lines(contract, device, Random(0), 2)
            assert found, name
            for line in found:
                dim = contract.dims[line.axis]
                assert max(LEAST, dim.low) <= line.low < line.high
                assert line.high <= (dim.high if device == "cpu" else max(dim.high, 1 << 14))
                assert math.prod(line.at(line.high).values()) > 64
                shape = line.at(line.high)
                assert all(n >= contract.dims[d].least for d, n in shape.items())
                assert contract.work is None or contract.work(shape) <= most << 6


@pytest.mark.parametrize("line", lines(contract_of("rmsnorm"), "cpu", Random(0), 1), ids=lambda line: line.axis)
def test_sizes_have_what_kernels_are_built_around(line):
    sizes = line.sizes(Random(3))
    assert sizes == sorted(set(sizes))
    assert {31, 32, 33, 255, 256, 257, line.high} <= set(sizes)
    assert any(set(range(n, n + 17)) <= set(sizes) for n in sizes)
    assert line.sizes(Random(4)) != sizes


def test_labels_leave_out_what_is_between():
    assert labels({1: 0.0, 2: 0.1, 3: 0.5, 4: 0.9}, 1.0) == {1: False, 2: False, 4: True}


def test_a_rule_is_said_only_if_all_agree():
    main = {n: float(n % 4 > 0) for n in range(84, 117)}
    beside = {n: main[n] for n in range(98, 105)}
    assert rule_of("m", 101, 100, [main, beside], 1.0).where == "when m % 4 != 0, as at 101"
    assert rule_of("m", 101, 100, [main, beside, {n: float(n % 4 > 0) for n in range(196, 203)}], 1.0).broad
    at = rule_of("m", 101, 100, [main, beside, dict.fromkeys(range(196, 203), 0.0) | {200: 1.0}], 1.0)
    assert (at.pattern, at.where) == ("at", "at m = 101")
    assert at.explains(100, 101)
    assert not at.explains(100, 102)


def test_an_interval_holds_what_is_true():
    random = np.random.default_rng(0)
    misses = 0
    for _ in range(2000):
        logs = random.standard_t(2, 31) * 0.1 + math.log(2)
        low, high = Pair(2, 1, logs, np.ones((2, 31))).limits
        misses += not low <= math.log(2) <= high
    assert misses <= 12  # 2 in 1,000 are allowed
