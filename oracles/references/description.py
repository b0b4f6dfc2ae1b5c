"""The description of a reference: its inputs and weights, and the ranges of its dimensions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.arguments import Argument
from kernel_assay.corpus.inputs.structures import STRUCTURES
from kernel_assay.corpus.process.channel import Message

MOST = {0: (4096, 0), 1: (4096, 0), 2: (4096, 0), 3: (512, 256)}
"""Largest extent of dimensions that nobody gives a range, by how many there are, and that of most cases (0: the same).
With many, few can be large at once; yet a tile of 64 or 128 goes wrong behind its end only."""
MOST_OF_MANY = (300, 48)
"""The same of more dimensions."""
SMALL = (5, 7, 6, 9, 11, 13, 10, 15, 17, 19, 21, 23)
"""Extents that stand for large ones while axes are probed."""
LARGE = 24
"""Extents above this are replaced by small ones."""


@dataclass
class Tensor:
    """One input, or a weight."""

    name: str
    axes: list[str]
    dtype: str
    low: float | None = None
    high: float | None = None
    below: str = ""
    upto: str = ""
    weight: str = ""
    """Its name in the module's state; empty: an input of the call."""
    shape: tuple[int, ...] = ()
    """Of the example."""
    two: bool = False
    """Its ends are all the numbers that there are."""
    structure: str = ""
    """Of its last two axes (corpus/inputs/structures.py)."""


@dataclass
class Described:
    """A reference as the oracle knows it."""

    tensors: list[Tensor]
    attrs: dict[str, Any] = field(default_factory=dict)
    """The plainest value of each."""
    tried: dict[str, list[Any]] = field(default_factory=dict)
    """All values of those that have several."""
    optional: set[str] = field(default_factory=set)
    """Inputs and attributes that a case, or a kernel, may do without."""
    arguments: list[Argument] = field(default_factory=list)
    """Those that are no plain tensors, or are changed in place."""
    dims: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The least and the largest extent, what it must be a multiple of, if anything, and the largest of most cases."""
    init: list[Any] = field(default_factory=list)
    init_dims: dict[int, str] = field(default_factory=dict)
    """Which arguments of the class are dimensions."""
    example: dict[str, int] = field(default_factory=dict)
    """Extents with which the reference runs."""
    untold: list[str] = field(default_factory=list)
    """Parameters that are None in every case, because nothing says what else they may be."""
    shapes: list[dict[str, int]] = field(default_factory=list)
    """Extents that its author names."""

    def init_of(self, dims: Mapping[str, int]) -> list[Any]:
        """Arguments of the class for some extents."""
        return [dims[self.init_dims[i]] if i in self.init_dims else value for i, value in enumerate(self.init)]

    def message(self) -> Message:
        """As JSON."""
        return {
            "tensors": [{k: v for k, v in vars(t).items() if k != "shape"} for t in self.tensors],
            "attrs": {name: self.tried.get(name, [value]) for name, value in self.attrs.items()},
            "optional": sorted(self.optional),
            "arguments": [asdict(one) for one in self.arguments],
            "dims": self.dims,
            "init": self.init,
            "init_dims": {str(i): dim for i, dim in self.init_dims.items()},
            "shapes": self.shapes,
            "untold": self.untold,
        }


def usual_range(dims: int) -> tuple[int, ...]:
    """Ends of a dimension that nobody gives a range, its multiple, and the largest extent of most cases."""
    most, usual = MOST.get(dims, MOST_OF_MANY)
    return 1, most, 1, usual


def random_tensor(t: Tensor, shape: Sequence[int], dims: Mapping[str, int], seed: int) -> Any:
    """Small numbers of an input's kind, as a numpy array: floats as float64."""
    draw = np.random.default_rng(seed)
    fmt = format_of(t.dtype)
    if fmt.is_float:
        low, high = -2.0 if t.low is None else t.low, 2.0 if t.high is None else t.high
        made = draw.choice([low, high], shape) if t.two else draw.uniform(low, high, shape)
        return STRUCTURES[t.structure](made) if t.structure else made
    low, high = (0, dims[t.below] - 1) if t.below else (int(t.low or 0), int(t.high or 0))
    high = dims[t.upto] if t.upto else high
    return draw.integers(low, high + 1, shape).astype(fmt.dtype)


def safe_name(name: str) -> str:
    """A name with which anything may be called."""
    return re.sub(r"\W", "_", name)
