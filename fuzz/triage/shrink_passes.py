"""Passes of shrinking: small functions, Case -> candidates, boldest first. To add one, write one with @shrink_pass.

A move need not look whether its candidates are within the ranges of the contract: the shrinker drops the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, permutations
from typing import Any

import numpy as np

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.materialize import materialize
from kernel_assay.corpus.inputs.specials import PLACES, VALUES
from kernel_assay.corpus.model.base import Scalar
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.fuzz.generation.strategies import distributions_for, specials_for
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.spec.axes import Dims, shape_of
from kernel_assay.oracles.spec.contract import Dim, Input

ShrinkPass = Callable[[Case], Iterator[Case]]
SHRINK_PASSES: list[ShrinkPass] = []

MAX_POKES = 16
"""A tensor is written out element by element only if that many suffice."""
SHORTER, OTHER_FIELDS = 2, 16
"""Extents closest to the present one, and fields, on which a cut is tried again."""
MAX_DATA = 1 << 12
"""Elements of a tensor whose single elements are still tried."""


def shrink_pass(candidates: ShrinkPass) -> ShrinkPass:
    """Enter a pass into the table; the order of definition is the order of trying."""
    SHRINK_PASSES.append(candidates)
    return candidates


def weight(case: Case) -> tuple[Any, ...]:
    """The weight that shrinking lowers: elements, specials, then everything that needs explaining."""
    tensors = list(case.tensors.values())
    contract = contract_of(case.op)
    dims = contract.dims_of(case)
    return (
        case.elements,
        sum(len(t.specials) for t in tensors),
        sum(t.layout != "contiguous" for t in tensors) + len(case.outputs),
        max(dims.values(), default=0),
        sum(min(len(t.pokes), MAX_POKES + 1) + _plainness(t) for t in tensors),
        sum(t.fill.scale != 1.0 for t in tensors),
        sum(_rank(case, name, value) for name, value in case.attrs.items()),
        sum(list(VALUES).index(s.value) + list(PLACES).index(s.place) for t in tensors for s in t.specials),
        sum(t.fill.seed for t in tensors),
        sum(sum(t.origin) for t in tensors),
        sum(bits.bit_count() for t in tensors for _, bits in t.pokes),
    )


def _plainness(t: TensorRecipe) -> int:
    return DISTRIBUTIONS[t.fill.distribution].rank


def _rank(case: Case, name: str, value: Any) -> int:
    values = contract_of(case.op).attrs[name]
    return values.index(value) if value in values else len(values)


def with_dims(case: Case, changes: Mapping[str, int], *, front: bool = False) -> Case:
    """The case with other extents; what stays is the end of each changed axis if front is cut, else its beginning."""
    contract = contract_of(case.op)
    attrs, dims = contract.attrs_of(case), {**contract.dims_of(case), **changes}
    tensors = {}
    for name, recipe in case.tensors.items():
        spec = contract.inputs[name]
        shape = shape_of(spec.axes, dims, attrs)
        cut = tuple(max(0, a - b) if front else 0 for a, b in zip(recipe.shape, shape, strict=True))
        params = {**recipe.fill.params, **spec.params(dims, attrs)} if spec.counts else recipe.fill.params
        tensors[name] = recipe.but(
            shape=shape,
            origin=tuple(o + c for o, c in zip(recipe.origin or (0,) * len(shape), cut, strict=True)),
            pokes=_moved_pokes(recipe, shape, cut, int(params["below"]) if spec.counts else None),
            fill=recipe.fill.but(params=params),
        )
    return case.but(tensors=tensors)


def _moved_pokes(
    recipe: TensorRecipe, shape: tuple[int, ...], cut: tuple[int, ...], below: int | None
) -> tuple[tuple[int, int], ...]:
    """Pokes follow their elements; those that are cut off are gone."""
    moved = []
    for flat, bits in recipe.pokes:
        at = [int(i) - c for i, c in zip(np.unravel_index(flat, recipe.shape), cut, strict=True)]
        if all(0 <= i < n for i, n in zip(at, shape, strict=True)) and (below is None or bits < below):
            moved.append((int(np.ravel_multi_index(at, shape)) if shape else 0, bits))
    return tuple(moved)


def with_tensor(case: Case, name: str, **changes: Any) -> Case:
    """The case with another recipe of one input."""
    return case.but(tensors={**case.tensors, name: case.tensors[name].but(**changes)})


def with_output(case: Case, name: str, layout: str) -> Case:
    """The case with another layout of one output."""
    others = {n: kept for n, kept in case.outputs.items() if n != name}
    return case.but(outputs=others if layout == "contiguous" else {**others, name: layout})


def contiguous(case: Case) -> Case:
    """The case with all tensors in plain memory, the outputs too."""
    return case.but(tensors={n: t.but(layout="contiguous") for n, t in case.tensors.items()}, outputs={})


def livelier(case: Case) -> Case:
    """The same with random numbers in every input that may have them, and no special values: such hide little."""
    contract = contract_of(case.op)
    for seed, (name, t) in enumerate(case.tensors.items(), 1):
        spec = contract.inputs[name]
        lively = "between" if spec.ranged else "normal"
        if lively in distributions_for(spec, t.dtype):
            fill = _in_range(spec, Fill(distribution=lively, seed=seed))
            case = with_tensor(case, name, fill=fill, specials=(), pokes=())
    return case


def with_attrs(case: Case, attrs: dict[str, Scalar], dims: Dims) -> Case:
    """The case with other attributes; a tensor whose shape they decide is taken from the start of its field."""
    tensors = {}
    for name, recipe in case.tensors.items():
        spec = contract_of(case.op).inputs[name]
        shape = shape_of(spec.axes, dims, attrs)
        fill = recipe.fill.but(params={**recipe.fill.params, **spec.params(dims, attrs)})
        tensors[name] = recipe if shape == recipe.shape else recipe.but(shape=shape, origin=(), pokes=(), fill=fill)
    return case.but(attrs=attrs, tensors=tensors)


def _smaller(extent: int, dim: Dim) -> list[int]:
    """Extents worth trying below this one, smallest first."""
    wanted = {
        dim.least,
        *(dim.multiple * n for n in (0, 1, 2, 3)),
        extent // 4,
        extent // 2,
        extent * 3 // 4,
        extent - 1,
    }
    wanted |= {(1 << k) + d for k in range(1, extent.bit_length()) for d in (-1, 0, 1) if k > extent.bit_length() - 3}
    rounded = {w // dim.multiple * dim.multiple for w in wanted}
    return sorted(w for w in rounded if dim.least <= w < extent)


@shrink_pass
def cut_all_axes(case: Case) -> Iterator[Case]:
    """All axes at once: to one, to a quarter, to half."""
    contract = contract_of(case.op)
    for divisor in (1 << 20, 4, 2):
        small = {d: _part(n, divisor, contract.dims[d]) for d, n in contract.dims_of(case).items()}
        for front in (False, True):
            yield with_dims(case, small, front=front)


def _part(extent: int, divisor: int, dim: Dim) -> int:
    """Part of an extent, but not nothing of something."""
    return max(dim.least, min(extent, dim.multiple), extent // divisor // dim.multiple * dim.multiple)


@shrink_pass
def cut_axis(case: Case) -> Iterator[Case]:
    """One axis, from either end."""
    contract = contract_of(case.op)
    for dim, extent in contract.dims_of(case).items():
        for smaller in _smaller(extent, contract.dims[dim]):
            yield with_dims(case, {dim: smaller})
            yield with_dims(case, {dim: smaller}, front=True)


@shrink_pass
def cut_equal_axes(case: Case) -> Iterator[Case]:
    """Axes that are equal, together."""
    contract = contract_of(case.op)
    dims = contract.dims_of(case)
    for a, b in combinations(dims, 2):
        if dims[a] == dims[b] > 1:
            for smaller in _smaller(dims[a], contract.dims[a]):
                yield with_dims(case, {a: smaller, b: smaller})


@shrink_pass
def cut_axis_elsewhere(case: Case) -> Iterator[Case]:
    """One axis, on other fields: what is left may need other values to fail."""
    contract = contract_of(case.op)
    for dim, extent in contract.dims_of(case).items():
        for smaller in _smaller(extent, contract.dims[dim])[-SHORTER:]:
            yield from next_seeds(with_dims(case, {dim: smaller}), OTHER_FIELDS + 1)[1:]


@shrink_pass
def trade_axes(case: Case) -> Iterator[Case]:
    """Move a factor from one axis to another."""
    contract = contract_of(case.op)
    dims = contract.dims_of(case)
    for a, b in permutations(dims, 2):
        for factor in (2, 3, dims[a] // contract.dims[a].multiple):
            if factor > 1 and dims[a] % factor == 0 and dims[b] > 0:
                yield with_dims(case, {a: dims[a] // factor, b: dims[b] * factor})


@shrink_pass
def plain_layouts(case: Case) -> Iterator[Case]:
    """Contiguous: all tensors, then each."""
    special = [n for n, t in case.tensors.items() if t.layout != "contiguous"]
    if len(special) + len(case.outputs) > 1:
        yield contiguous(case)
    for name in special:
        yield with_tensor(case, name, layout="contiguous")
    for name in case.outputs:
        yield with_output(case, name, "contiguous")


@shrink_pass
def fewer_specials(case: Case) -> Iterator[Case]:
    """Drop special values: all, then each."""
    if sum(len(t.specials) for t in case.tensors.values()) > 1:
        yield case.but(tensors={n: t.but(specials=()) for n, t in case.tensors.items()})
    for name, t in case.tensors.items():
        for i in range(len(t.specials)):
            yield with_tensor(case, name, specials=t.specials[:i] + t.specials[i + 1 :])


@shrink_pass
def plainer_specials(case: Case) -> Iterator[Case]:
    """A more harmless value, an easier place."""
    contract = contract_of(case.op)
    for name, t in case.tensors.items():
        allowed = specials_for(contract.inputs[name], t.dtype)
        for i, special in enumerate(t.specials):
            for value in [v for v in list(VALUES)[: list(VALUES).index(special.value)] if v in allowed]:
                yield with_tensor(
                    case, name, specials=(*t.specials[:i], special.but(value=value), *t.specials[i + 1 :])
                )
            for place in list(PLACES)[: list(PLACES).index(special.place)]:
                yield with_tensor(
                    case, name, specials=(*t.specials[:i], special.but(place=place), *t.specials[i + 1 :])
                )


@shrink_pass
def plainer_distribution(case: Case) -> Iterator[Case]:
    """Zeros, ones, small integers, ...: whatever stands before the present one in the table."""
    contract = contract_of(case.op)
    for name, t in case.tensors.items():
        spec = contract.inputs[name]
        for other in dict.fromkeys(distributions_for(spec, t.dtype)):
            if DISTRIBUTIONS[other].rank < _plainness(t):
                yield with_tensor(case, name, fill=_in_range(spec, t.fill.but(distribution=other)))


def _in_range(spec: Input, fill: Fill) -> Fill:
    """The fill, told the range and the structure of an input that has one."""
    return fill.but(params=spec.params({}, {})) if spec.ranged or spec.structure else fill


@shrink_pass
def without_optional(case: Case) -> Iterator[Case]:
    """Drop inputs that it need not have."""
    contract = contract_of(case.op)
    for name in contract.optional:
        if name in case.tensors:
            yield case.but(tensors={n: t for n, t in case.tensors.items() if n not in contract.group(name)})


@shrink_pass
def plain_scale(case: Case) -> Iterator[Case]:
    """Scale 1: all tensors, then each."""
    yield case.but(tensors={n: t.but(fill=t.fill.but(scale=1.0)) for n, t in case.tensors.items()})
    for name, t in case.tensors.items():
        yield with_tensor(case, name, fill=t.fill.but(scale=1.0))


@shrink_pass
def plain_attributes(case: Case) -> Iterator[Case]:
    """The plainest value of each attribute."""
    contract = contract_of(case.op)
    attrs = dict(contract.attrs_of(case))
    for name, values in contract.attrs.items():
        if attrs[name] != values[0]:
            yield with_attrs(case, {**attrs, name: values[0]}, contract.dims_of(case))


@shrink_pass
def small_seeds(case: Case) -> Iterator[Case]:
    """Fields 0, 1, 2, ... and windows that start at the origin."""
    for base in range(4):
        yield reseeded(case, base)
    yield case.but(tensors={n: t.but(origin=()) for n, t in case.tensors.items()})
    for name, t in case.tensors.items():
        for seed in {0, 1, 2, 3, t.fill.seed // 2}:
            yield with_tensor(case, name, fill=t.fill.but(seed=seed))


@shrink_pass
def fewer_pokes(case: Case) -> Iterator[Case]:
    """Drop written-out elements: all, halves, each."""
    for name, t in case.tensors.items():
        for kept in subsets(t.pokes):
            yield with_tensor(case, name, pokes=kept)


@shrink_pass
def write_out(case: Case) -> Iterator[Case]:
    """Zeros (of a range, what is nearest to it) but for a few elements: the data that the failure needs."""
    contract = contract_of(case.op)
    for name, t in case.tensors.items():
        spec = contract.inputs[name]
        if (
            (t.fill.params and not spec.structure and not spec.ranged)
            or (spec.ranged and spec.distributions)
            or not 0 < t.size <= MAX_DATA
            or t.layout == "broadcast"
        ):
            continue
        plain = t.fill.but(distribution="least" if spec.ranged else "zeros", scale=1.0, seed=0)
        base = t.but(specials=(), origin=(), pokes=(), fill=_in_range(spec, plain))
        bits, plain_bits = _bits(t), _bits(base)
        present = tuple((int(i), int(bits[i])) for i in np.flatnonzero(bits != plain_bits))
        for kept in (present, *subsets(present)):
            if len(kept) <= MAX_POKES:
                yield case.but(tensors={**case.tensors, name: base.but(pokes=kept)})


def _bits(recipe: TensorRecipe) -> Array:
    """The bit patterns of all elements, in C order."""
    return materialize(recipe).reshape(-1).view(format_of(recipe.dtype).carrier)


@shrink_pass
def plainer_pokes(case: Case) -> Iterator[Case]:
    """The written-out elements as ones, as twos, with fewer bits."""
    contract = contract_of(case.op)
    for name, t in case.tensors.items():
        fmt, spec = format_of(t.dtype), contract.inputs[name]
        for i, (index, bits) in enumerate(() if spec.ranged and spec.distributions else t.pokes):
            for plain in _plainer_bits(bits, fmt.bits, fmt.precision, fmt.is_float):
                if spec.holds(fmt.number(plain)):
                    yield with_tensor(case, name, pokes=(*t.pokes[:i], (index, plain), *t.pokes[i + 1 :]))


def _plainer_bits(bits: int, width: int, precision: int, is_float: bool) -> Iterator[int]:
    if not is_float:
        yield from (b for b in (1, bits >> 1) if b.bit_count() < bits.bit_count())
        return
    mantissa = precision - 1
    bias = ((1 << (width - 1 - mantissa)) >> 1) - 1
    one = bias << mantissa
    for plain in (one, one + (1 << mantissa), bits & ~(1 << (width - 1)), bits >> mantissa << mantissa):
        if plain.bit_count() < bits.bit_count():
            yield plain


def subsets(items: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield none; halves, quarters, ... alone; then all but one piece, pieces getting smaller."""
    if not items:
        return
    yield ()
    pieces = 2
    while pieces <= min(len(items), 64):
        step = -(-len(items) // pieces)
        for start in range(0, len(items), step):
            yield items[start : start + step]
        pieces *= 2
    pieces = 2
    while pieces <= min(len(items), 64):
        step = -(-len(items) // pieces)
        for start in range(0, len(items), step):
            yield items[:start] + items[start + step :]
        pieces *= 2


def reseeded(case: Case, base: int) -> Case:
    """Tensor i on field base*n + i, as the strategies number them."""
    n = len(case.tensors)
    tensors = {name: t.but(fill=t.fill.but(seed=base * n + i)) for i, (name, t) in enumerate(case.tensors.items())}
    return case.but(tensors=tensors)


def next_seeds(case: Case, count: int) -> list[Case]:
    """The case, and the same on count - 1 other fields."""
    others = [
        case.but(tensors={n: t.but(fill=t.fill.but(seed=t.fill.seed + i)) for n, t in case.tensors.items()})
        for i in range(1, count)
    ]
    return [case, *others]
