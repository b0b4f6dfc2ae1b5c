"""Costs of imagined kernels, with cliffs and without, and a clock for them as noisy as a machine that others use."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from kernel_assay.fuzz.cliffs.probes import Line
from kernel_assay.oracles.spec.axes import Dims
from kernel_assay.oracles.spec.contract import Reals

Cost = Callable[[int, int], float]
"""Seconds by rows and columns."""
Hit = Callable[[int, int], bool]
"""Whether a slow size and its neighbour are what was planted."""
CLEAR = 1.5
"""The jump between neighbours, somewhere on the lines that are searched, that a planted cliff has at least."""


@dataclass
class Clock:
    """Noise: of each round, of all that is timed in a round, and rounds that something else disturbs."""

    cost: Cost
    random: np.random.Generator
    noise: float
    drift: float
    disturbed: float

    def __call__(self, shapes: Sequence[Dims], rounds: int, *, fresh: bool = False) -> Reals:
        del fresh
        size, draw = (len(shapes), rounds), self.random
        true = np.array([[self.cost(d["rows"], d["cols"])] for d in shapes])
        spikes = (draw.random(size) < self.disturbed) * draw.exponential(1.0, size)
        common = self.drift * np.sin(np.arange(rounds) / 7 + draw.uniform(0, 6))
        return true * np.exp(draw.normal(0, self.noise, size) + spikes + common)


def clock(cost: Cost, random: Random) -> Clock:
    draw = np.random.default_rng(random.getrandbits(32))
    return Clock(
        cost, draw, random.choice((0.005, 0.02, 0.05)), random.choice((0, 0.1)), random.choice((0, 0.05, 0.15))
    )


def planted(kind: str, random: Random, lines: Sequence[Line]) -> tuple[Cost, Hit]:
    """A kernel with such a cliff, which shows on one of these lines."""
    while True:
        launch, rate = random.choice((0.0, 2e-6, 1e-5)), 10 ** random.uniform(-10, -9)
        work, hit = _PLANTED[kind](random)

        def cost(rows: int, cols: int, launch: float = launch, rate: float = rate, work: Work = work) -> float:
            return launch + rate * rows * work(cols)

        if any(_jump(cost, line) > CLEAR for line in lines):
            return cost, hit


def _jump(cost: Cost, line: Line) -> float:
    """The largest jump between neighbours."""
    times = [cost(line.others["rows"], n) for n in range(line.low, line.high + 1)]
    steps = zip(range(line.low, line.high), times, times[1:], strict=False)
    return max(max(b / a * n / (n + 1), a / b) for n, a, b in steps)


Work = Callable[[int], float]


def _misaligned(random: Random) -> tuple[Work, Hit]:
    m, factor = random.choice((2, 4, 8, 16)), random.uniform(1.6, 4)
    return (lambda n: n * (factor if n % m else 1)), lambda slow, fine: slow % m > 0 == fine % m


def _power_of_two(random: Random) -> tuple[Work, Hit]:
    m, factor = random.choice((256, 512, 1024, 2048)), random.uniform(1.6, 4)
    return (lambda n: n * (factor if n % m == 0 else 1)), lambda slow, fine: fine % m > 0 == slow % m


def _tail(random: Random) -> tuple[Work, Hit]:
    m, factor = random.choice((32, 64, 128, 256)), random.uniform(3, 8)
    return (lambda n: n - n % m + factor * (n % m)), lambda slow, fine: slow % m > 0 == fine % m


def _tail_block(random: Random) -> tuple[Work, Hit]:
    m, factor = random.choice((32, 64, 128, 256)), random.uniform(1.6, 4)
    return (lambda n: n - n % m + factor * m * (n % m > 0)), lambda slow, fine: slow % m > 0 == fine % m


def _spill(random: Random) -> tuple[Work, Hit]:
    end, factor = round(2 ** random.uniform(5, 11.8)), random.uniform(1.6, 4)
    return (lambda n: n * (factor if n > end else 1)), lambda slow, fine: fine <= end < slow


def _wave(random: Random) -> tuple[Work, Hit]:
    m = random.choice((32, 64, 108, 128, 132, 256))
    return (lambda n: math.ceil(n / m) * m), lambda slow, fine: fine % m == 0 < slow % m


_PLANTED = {
    "misaligned row": _misaligned,
    "power-of-two stride": _power_of_two,
    "tail, element by element": _tail,
    "tail block": _tail_block,
    "spill": _spill,
    "one more wave": _wave,
}
KINDS = tuple(_PLANTED)


def flat(kind: str, random: Random) -> Cost:
    """A kernel without a cliff, whatever its cost does."""
    launch, rate = random.choice((0.0, 2e-6, 1e-5)), 10 ** random.uniform(-10, -9)
    full, factor, power = 2 ** random.uniform(12, 17), random.uniform(1.5, 4), random.uniform(0.3, 1)
    works: dict[str, Callable[[int, int], float]] = {
        "linear": lambda rows, cols: rows * cols,
        "n log n": lambda rows, cols: rows * cols * math.log2(cols + 1),
        "a cache gets full": lambda rows, cols: rows * cols * (1 + (factor - 1) / (1 + (full / (rows * cols)) ** 2)),
        "a power": lambda rows, cols: (rows * cols) ** power,
        "launch only": lambda *_: 0,
    }
    return lambda rows, cols: max(launch, 1e-7) + rate * works[kind](rows, cols)


FLAT = ("linear", "n log n", "a cache gets full", "a power", "launch only")
