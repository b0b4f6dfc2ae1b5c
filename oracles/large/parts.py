"""Parts of a large case: some indices of its separable dims, and the case of the same op that they make by themselves.

A part's inputs are those rows, columns and blocks of the case's inputs, made without the whole
(corpus/inputs/slices.py). Its recipes have smaller shapes and say what the values are like, so that its budgets are
those of the whole; they do not say which values: only `Part.inputs` does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random

import numpy as np

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.materialize import Tensors
from kernel_assay.corpus.inputs.slices import Indices, taken
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.remote_array import Outputs, Remote
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.spec.axes import Attrs, Dims, filled, parse_axis, shape_of
from kernel_assay.oracles.spec.contract import Contract

Picks = Mapping[str, Indices]
"""For some of the separable dims, which of their indices, ascending; of the others all."""

BEYOND = (1 << 31, 1 << 32)
"""Elements, and bytes, that an index of 32 bits counts, with a sign and without: both sides are looked at."""
LINES = 64
"""Indices of a dim in a sample: 64 rows and 64 columns are 4096 elements."""
LONE = 1024
"""Indices of the only separable dim, of which each may have one element."""
PIECE = 8
"""Indices that follow one another, of a dim whose index the op computes with."""
TILES = (8, 16, 32, 64, 128)
"""Widths of tiles at whose edges kernels go wrong."""
MOST = 1 << 22
"""Elements of all inputs and outputs of a part."""
GROUPS = 8
"""Parts that are made around single elements, at most."""
WORK = 1 << 26
"""Multiplications of a part, where the contract counts them: a fraction of a second."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a case, as a case of its own."""

    contract: Contract
    whole: Case
    case: Case
    """Of the part's shapes; its recipes are never materialized."""
    axes: Mapping[str, Mapping[int, Indices]]
    """Of every input and output: for each axis that is cut, the indices in the whole."""
    picked: bool = False
    """By what a subject gave there (`around`)."""

    def inputs(self) -> Tensors:
        """The values, out of the recipes of the whole."""
        return {name: taken(recipe, self.axes[name]) for name, recipe in self.whole.tensors.items()}

    def reference(self) -> Reference:
        """The oracle's answer to the part; its values, inputs and budgets are those of the whole there."""
        reference = Reference(self.contract, self.case, self.inputs())
        reference.picked = self.picked
        return reference

    def of(self, outputs: Outputs) -> Tensors:
        """The part of each output of the whole, as host arrays."""
        return {name: np.ascontiguousarray(cut(array, self.axes[name])) for name, array in outputs.items()}

    def place(self, name: str, index: Sequence[int]) -> tuple[int, ...]:
        """The place in the whole of an element of the part."""
        along = self.axes[name]
        return tuple(int(along[axis][i]) if axis in along else int(i) for axis, i in enumerate(index))


def cut(array: Array | Remote, along: Mapping[int, Indices]) -> Array:
    """Some indices of some axes of an array, the most selective axis first."""
    shape = array.shape
    order = sorted(along, key=lambda a: len(along[a]) / max(1, shape[a]))
    if isinstance(array, Remote):
        return array.take({axis: along[axis] for axis in order})
    for axis in order:
        array = np.take(array, along[axis], axis)
    return array


def part_of(contract: Contract, case: Case, picks: Picks) -> Part:
    """The part with these indices. Raises InternalError for a dim that is not separable, or a gap where none may be."""
    dims, attrs = contract.dims_of(case), contract.attrs_of(case)
    if lost := sorted(picks.keys() - set(contract.separable)):
        raise InternalError(f"{contract.name} cannot be judged by some indices of {lost[0]!r}")
    named = {name: contract.inputs[name].axes for name in case.tensors}
    named |= {name: spec.axes for name, spec in contract.outputs.items()}
    axes = {name: _cuts(mine, dims, attrs, picks) for name, mine in named.items()}
    tensors = {
        name: recipe.but(shape=tuple(len(axes[name].get(a, range(n))) for a, n in enumerate(recipe.shape)))
        for name, recipe in case.tensors.items()
    }
    own = dict(case.attrs)
    for dim in picks.keys() & contract.placed.keys():
        first, last = int(picks[dim][0]), int(picks[dim][-1])
        if last - first + 1 != len(picks[dim]):
            raise InternalError(f"{contract.name} cannot be judged by indices of {dim!r} that leave a gap")
        own |= contract.placed[dim](own, first, dims[dim] - 1 - last)
    return Part(contract, case, case.but(tensors=tensors, attrs=own), axes)


def check_separable(whole: Reference) -> None:
    """Raises UsageError if the last index of a dim said to be separable is another alone than in the whole."""
    contract, case = whole.contract, whole.case
    for dim, extent in contract.dims_of(case).items():
        if dim not in contract.separable or extent < 2:
            continue
        part = part_of(contract, case, {dim: np.array([extent - 1])})
        for name, want in part.reference().want.items():
            due = cut(whole.want[name], part.axes[name])
            if due.shape != want.shape or not np.allclose(want, due, 1e-6, 1e-9, equal_nan=True):
                raise UsageError(
                    f"{contract.origin or contract.name}: {dim!r} is not separable, because {name} is another for the "
                    f"last of its indices alone than among the others"
                )


def _cuts(axes: Sequence[str], dims: Dims, attrs: Attrs, picks: Picks) -> dict[int, Indices]:
    """The indices that picks leave of each axis that they cut."""
    parsed = enumerate(parse_axis(filled(axis, attrs)) for axis in axes)
    return {at: _along(names, factor, dims, picks) for at, (names, factor) in parsed if picks.keys() & set(names)}


def _along(names: Sequence[str], factor: int, dims: Dims, picks: Picks) -> Indices:
    """An axis that is a product counts its last dim fastest, and whole blocks of `factor` elements."""
    place = np.zeros(1, np.int64)
    for name in names:
        along = picks[name] if name in picks else np.arange(dims[name])
        place = (place[:, None] * dims[name] + along).reshape(-1)
    return np.asarray((place[:, None] * factor + np.arange(factor)).reshape(-1), np.int64)


def sample(contract: Contract, case: Case) -> list[Part]:
    """The parts by which a case is judged, bounded in size and work: 64 indices or so of each separable dim.

    Always the first and the last, edges of tiles near both ends, what lies beside BEYOND elements or bytes of a tensor,
    the rest by chance, which the case decides. A dim that has no more is taken whole, so a small case is one part, all
    of it. Raises UsageError if no part is small enough.
    """
    dims = contract.dims_of(case)
    most = LINES if len(contract.separable) > 1 else LONE
    counts = _affordable(contract, case, {d: min(most, dims[d]) for d in contract.separable})
    random = Random(f"{case.id}:sample")
    fixed = {d: places(dims[d], counts[d], random) for d in contract.separable if d not in contract.placed}
    for dim, some in _crossings(contract, case).items():
        if dim in fixed:
            fixed[dim] = np.union1d(fixed[dim], some)
    pieces: list[Picks] = [fixed]
    for dim in contract.placed:
        runs = _pieces(dims[dim], counts[dim], random)
        pieces = [{**picks, dim: run} for picks in pieces for run in runs]
    return [part_of(contract, case, {d: i for d, i in picks.items() if len(i) < dims[d]}) for picks in pieces]


def tiles(contract: Contract, case: Case) -> Iterator[Part]:
    """All of a case in parts that are bounded in size and work; each element of an output is in one of them.

    Raises UsageError if no part is small enough.
    """
    dims = contract.dims_of(case)
    counts = _affordable(contract, case, {d: dims[d] for d in contract.separable})
    runs = [
        [(d, np.arange(low, min(low + n, dims[d]))) for low in range(0, dims[d], n)]
        for d, n in counts.items()
        if n < dims[d]
    ]
    for picks in product(*runs):
        yield part_of(contract, case, dict(picks))


def is_beyond(contract: Contract, case: Case) -> bool:
    """Whether a tensor has more elements than an index of 32 bits with a sign counts."""
    shapes = [t.shape for t in case.tensors.values()]
    shapes += [spec.shape for spec in contract.output_specs(case).values()]
    return max(map(math.prod, shapes)) > BEYOND[0]


def _crossings(contract: Contract, case: Case) -> dict[str, Indices]:
    """Indices of separable dims at which tensors reach BEYOND, and those beside them; of small cases none."""
    found: dict[str, set[int]] = {}
    outputs = contract.output_specs(case)
    tensors = [(contract.inputs[name].axes, t.shape, t.dtype) for name, t in case.tensors.items()]
    tensors += [(contract.outputs[name].axes, spec.shape, spec.dtype) for name, spec in outputs.items()]
    for axes, shape, dtype in tensors:
        size = math.prod(shape)
        for flat in {limit // width for limit in BEYOND for width in (1, format_of(dtype).dtype.itemsize)}:
            for at in (flat - 1, flat) if flat < size else ():
                index = tuple(int(i) for i in np.unravel_index(at, shape))
                for dim, some in _index_of(contract, case, axes, index).items():
                    found.setdefault(dim, set()).update(some)
    return {dim: np.array(sorted(some), np.int64) for dim, some in found.items()}


def fits(contract: Contract, case: Case, counts: Mapping[str, int]) -> bool:
    """Whether a part with so many indices of these dims is bounded in size and work."""
    return _load(contract, case, counts) <= 1.0


def _load(contract: Contract, case: Case, counts: Mapping[str, int]) -> float:
    """The size of a part, or its work, as a share of what it may be."""
    dims, attrs = {**contract.dims_of(case), **counts}, contract.attrs_of(case)
    tensors = [contract.inputs[name].axes for name in case.tensors] + [o.axes for o in contract.outputs.values()]
    elements = sum(math.prod(shape_of(axes, dims, attrs)) for axes in tensors)
    return max(elements / MOST, contract.work(dims) / WORK if contract.work else 0.0)


def _affordable(contract: Contract, case: Case, counts: dict[str, int]) -> dict[str, int]:
    """Halve what costs most until the part is bounded."""
    while (load := _load(contract, case, counts)) > 1.0:
        wide = sorted((d for d, n in counts.items() if n > 1), key=lambda d: -counts[d])
        fewer = [{**counts, d: -(-counts[d] // 2)} for d in wide]
        counts = min(fewer, key=lambda some: _load(contract, case, some), default=counts)
        if _load(contract, case, counts) >= load:
            why = f"not even one index of {', '.join(counts)}" if counts else "for its contract names no separable dims"
            raise UsageError(f"{contract.name}: no part of {case.label} is small enough to be judged, {why}")
    return counts


def around(contract: Contract, case: Case, output: str, flat: Iterable[int]) -> tuple[list[Part], list[int]]:
    """Parts that hold these elements of an output, few and bounded like those of a sample; and the elements left over.

    flat: indices in C order, the most important first. At most GROUPS parts are made.
    """
    groups: list[dict[str, set[int]]] = []
    left = []
    axes = contract.outputs[output].axes
    dims, shape = contract.dims_of(case), contract.output_specs(case)[output].shape
    for at in flat:
        index = _index_of(contract, case, axes, tuple(int(i) for i in np.unravel_index(at, shape)))
        index |= {d: set(range(dims[d])) for d in contract.separable if d not in index}
        wider = ({d: group[d] | some for d, some in index.items()} for group in groups)
        grown = next(((n, g) for n, g in enumerate(wider) if fits(contract, case, _reach(contract, g))), None)
        if grown:
            groups[grown[0]] = grown[1]
        elif len(groups) < GROUPS and fits(contract, case, _reach(contract, index)):
            groups.append(index)
        else:
            left.append(at)
    picks = [{d: _filled(contract, d, some) for d, some in group.items()} for group in groups]
    parts = [part_of(contract, case, {d: i for d, i in p.items() if len(i) < dims[d]}) for p in picks]
    return [replace(part, picked=True) for part in parts], left


def _index_of(contract: Contract, case: Case, axes: Sequence[str], index: tuple[int, ...]) -> dict[str, set[int]]:
    """The index of each separable dim that a tensor with these axes has, at one of its elements."""
    dims, attrs = contract.dims_of(case), contract.attrs_of(case)
    found: dict[str, set[int]] = {}
    for axis, at in zip(axes, index, strict=True):
        names, factor = parse_axis(filled(axis, attrs))
        place = at // factor
        for name in reversed(names):
            place, own = divmod(place, dims[name])
            if name in contract.separable:
                found[name] = {own}
    return found


def _filled(contract: Contract, dim: str, some: set[int]) -> Indices:
    """The indices, ascending; of a dim whose index the op computes with, all between them, too."""
    return np.arange(min(some), max(some) + 1) if dim in contract.placed else np.array(sorted(some), np.int64)


def _reach(contract: Contract, group: Mapping[str, set[int]]) -> dict[str, int]:
    return {d: len(_filled(contract, d, some)) for d, some in group.items()}


def places(extent: int, count: int, random: Random) -> Indices:
    """So many different indices below extent, ascending; both ends and edges of tiles among them."""
    if extent <= count:
        return np.arange(extent)
    edges = [e + by for t in TILES for e in (t, (extent - 1) // t * t) for by in (-1, 0, 1)]
    random.shuffle(edges)
    found = dict.fromkeys([0, extent - 1][:count])
    for place in edges[: count // 2]:
        if 0 <= place < extent and len(found) < count:
            found[place] = None
    while len(found) < count:
        found[random.randrange(extent)] = None
    return np.array(sorted(found), np.int64)


def _pieces(extent: int, count: int, random: Random) -> list[Indices]:
    """Stretches of up to PIECE indices, `count` in all: at both ends, across edges of tiles, the rest by chance."""
    if extent <= count:
        return [np.arange(extent)]
    size = min(PIECE, max(1, count // 2))
    starts = dict.fromkeys([extent - size, 0][: count // size])
    for tile in random.sample(TILES, len(TILES))[: count // size // 2]:
        edge = (extent - 1) // tile * tile - size // 2
        if size <= edge <= extent - 2 * size and len(starts) < count // size:
            starts[edge] = None
    tries: Iterator[int] = iter(range(4 * count))
    while len(starts) < count // size and next(tries, -1) >= 0:
        start = random.randrange(extent - size + 1)
        if all(abs(start - other) >= size for other in starts):
            starts[start] = None
    return [np.arange(start, start + size) for start in sorted(starts)]
