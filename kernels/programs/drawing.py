"""The `draw` of `def inputs(draw)`: what the search chooses, and shrinks towards the first, or the smallest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kernel_assay.corpus.formats import Array

_WARP = 32


class Graph(NamedTuple):
    """A directed graph in CSR form: the edges of vertex v end at cols[rows[v]] up to cols[rows[v + 1] - 1]."""

    rows: Array
    """int32[vertices + 1]."""
    cols: Array
    """int32[edges]."""


class Marked(NamedTuple):
    """An array, and what the kernel does with it."""

    role: str
    array: Array


class Draw:
    """Chooses numbers, arrays, graphs and launches. Called with a strategy of Hypothesis it draws from that."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        """draw: Hypothesis' own."""
        self._draw = draw

    def __call__(self, strategy: st.SearchStrategy[Any]) -> Any:
        """Draw from any strategy of Hypothesis."""
        return self._draw(strategy)

    def integer(self, least: int, most: int) -> int:
        """Draw a whole number; both ends are possible."""
        return int(self._draw(st.integers(least, most)))

    def one_of(self, values: Sequence[Any]) -> Any:
        """Choose one; the first is the simplest."""
        return self._draw(st.sampled_from(values))

    def threads(self, most: int = 1024) -> int:
        """Draw the threads of a block, as often whole warps as any number."""
        number, whole = self.integer(1, most), self.one_of((False, True))
        return number // _WARP * _WARP if whole and number >= _WARP else number

    def array(self, shape: int | tuple[int, ...], dtype: Any, least: float, most: float) -> Array:
        """Draw an array of numbers between two, both possible: an input, unless it is marked."""
        kind = np.dtype(dtype)
        elements = (
            st.integers(int(least), int(most)) if kind.kind in "iu" else st.floats(least, most, width=8 * kind.itemsize)
        )
        return np.asarray(self._draw(arrays.arrays(kind, shape, elements=elements)))

    def indices(self, size: int, below: int) -> Array:
        """Draw int32[size] of indices into something of so many elements; they may repeat."""
        return self.array(size, np.int32, 0, below - 1)

    def distinct(self, size: int, below: int) -> Array:
        """Draw int32[size] of indices of which no two are the same."""
        return np.array(self._draw(st.permutations(range(below)))[:size], np.int32)

    def graph(self, vertices: int, degree: int = 3) -> Graph:
        """Draw a graph of so many vertices, each of which has up to `degree` edges; any may end at itself."""
        degrees = self.array(vertices, np.int32, 0, degree)
        rows = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
        return Graph(rows, self.indices(int(rows[-1]), vertices))

    @staticmethod
    def inout(array: Any) -> Marked:
        """Mark an array that the kernel reads and writes."""
        return Marked("inout", np.array(array))

    @staticmethod
    def out(shape: int | tuple[int, ...], dtype: Any) -> Marked:
        """Give an array that the kernel only writes: reading it before that is a finding."""
        return Marked("out", np.zeros(shape, dtype))
