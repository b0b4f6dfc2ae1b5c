"""Sizes that are timed along a dimension, and how large the other dimensions are meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from kernel_assay.fuzz.generation.model_shapes import elements_of
from kernel_assay.oracles.spec.axes import Dims
from kernel_assay.oracles.spec.contract import Contract

LEAST = 16
"""Smaller sizes are not looked at: there each further element is a large part of the work."""
GRID = 2.0**0.25
"""From one size to the next, where nothing is special."""
TILES = (16, 32, 64, 128, 256)
"""Numbers around multiples of which kernels change their path; one multiple of each is tried, which chance chooses."""
ROUND = 1000
WINDOW = 17
"""Sizes in a row, which have every remainder modulo 2 to 16 at least once."""
LARGEST = {"cpu": 0, "cuda": 1 << 14}
"""How far a built-in op's dimensions are searched where a device is made for more than its contract's usual sizes."""
ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 25}
"""Elements of the largest tensor at the end of a dimension: more than a launch costs, and done in a millisecond."""
WORK = 1 << 6
"""Multiplications for each of them, where a contract counts those."""
SPREAD = 4
"""From one choice of the other dimensions to the next there are so many times fewer elements."""


@dataclass(frozen=True, slots=True)
class Line:
    """The sizes of one dimension, all others fixed."""

    axis: str
    others: Dims
    low: int
    high: int
    step: int

    def at(self, size: int) -> Dims:
        """The extents of all dimensions."""
        return {**self.others, self.axis: size}

    def sizes(self, random: Random) -> list[int]:
        """The sizes that are timed first, sorted: a grid, and those beside numbers that kernels are built around."""
        tried = {*_grid(self.low, self.high), self.high, *_special(self.high, random)}
        for start in (random.randint(self.low, self.high), random.randint(max(self.low, self.high // 2), self.high)):
            tried.update(start + i * self.step for i in range(WINDOW))
        return self.fitting(tried)

    def fitting(self, sizes: Iterable[int]) -> list[int]:
        """Those of the sizes, moved to the multiples that the contract asks for, that lie on this line."""
        found = {size // self.step * self.step for size in sizes}
        return sorted(n for n in found if self.low <= n <= self.high)


def _grid(low: int, high: int) -> Iterator[int]:
    size = float(low)
    while size <= high:
        yield round(size)
        size = max(size + 1, size * GRID)


def _special(high: int, random: Random) -> Iterator[int]:
    middles = [1 << k for k in range(4, high.bit_length())] + [ROUND * k for k in (1, 2, 4, 8)]
    middles += [tile * random.randint(2, max(2, high // tile)) for tile in TILES]
    for middle in middles:
        yield from (middle - 1, middle, middle + 1)


def lines(contract: Contract, device: str, random: Random, choices: int) -> list[Line]:
    """Every dimension of an op that has enough sizes, with several choices of the others: first all with the first."""
    kind = device.split(":", maxsplit=1)[0]
    found = []
    for choice in range(choices):
        for axis, dim in contract.dims.items():
            low = max(dim.least, -(-LEAST // dim.multiple) * dim.multiple)
            high = dim.high if contract.origin else max(dim.high, LARGEST[kind])
            room = ELEMENTS[kind] // SPREAD**choice
            others = _others(contract, axis, low, room, random)
            while high > low and not _fits(contract, {**others, axis: high}, room):
                high //= 2
            if high >= 2 * low:
                found.append(Line(axis, others, low, high // dim.multiple * dim.multiple, dim.multiple))
    return found


def _others(contract: Contract, axis: str, low: int, room: int, random: Random) -> dict[str, int]:
    """Extents of the other dimensions, doubled in turn until there is no more room at the end of the axis."""
    dims = {name: max(dim.least, dim.multiple) for name, dim in contract.dims.items()}
    dims[axis] = max(low, contract.dims[axis].most)
    while not _fits(contract, dims, room) and dims[axis] > low:
        dims[axis] //= 2
    growing = [name for name in dims if name != axis]
    random.shuffle(growing)
    while growing:
        name = growing.pop(0)
        more = {**dims, name: dims[name] * 2}
        if more[name] <= contract.dims[name].high and _fits(contract, more, room):
            dims = more
            growing.append(name)
    return {name: n for name, n in dims.items() if name != axis}


def _fits(contract: Contract, dims: Dims, room: int) -> bool:
    return elements_of(contract, dims) <= room and (contract.work is None or contract.work(dims) <= room * WORK)


def log_work(contract: Contract, dims: Dims) -> float:
    """Logarithm of the work of a shape: its multiplications if the contract counts them, else its elements."""
    return math.log(max(1, contract.work(dims) if contract.work is not None else elements_of(contract, dims)))
