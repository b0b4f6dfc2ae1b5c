"""Shapes that a search of small ones does not reach: thin long ones in every run, and those of language models.

Products as they are in models (one token or few by wide layers, prompts by all), and shapes at which kernels and
libraries change their path. A contract gets those whose dims have the names it uses; other ops of one's own get none.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from kernel_assay.corpus.blocks import ELEMENTS
from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.model.case import Case
from kernel_assay.fuzz.generation.strategies import MAX_WORK, Choose, build, distributions_for, lowest_of, memory_of
from kernel_assay.oracles.spec.axes import Dims, dims_in, shape_of
from kernel_assay.oracles.spec.contract import Contract, Input

EVERY = 16
"""One case of an op in so many has such a shape, where there is room for one."""

PRODUCTS = (
    *((1, 1, 32), (1, 1, 64), (1, 512, 1024), (512, 1, 1024), (1000, 3, 2048), (1024, 5, 2048)),
    *((4096, 1, 4096), (4096, 1, 14336), (14336, 1, 4096), (4096, 7, 4096), (8192, 8, 14336), (1024, 128, 4096)),
    *((4096, 512, 4096), (4096, 1024, 14336), (4096, 4096, 4096), (14336, 2048, 4096), (4096, 4096, 14336)),
)
"""Outputs, tokens and the length of the sums (m, n, k): edges, then layers with hidden sizes of 4096 and 14336."""
TABLES = ((32000, 1, 4096), (32000, 512, 4096), (128256, 2048, 4096), (128256, 8192, 4096))
"""Words, tokens and hidden sizes."""
TURNS = ((1, 32, 64), (1, 8, 128), (512, 32, 64), (512, 32, 32), (2048, 8, 128), (8192, 32, 64), (8192, 8, 32))
"""Tokens, heads and halves of a head."""
ATTENTIONS = (
    *((1, 8, 4, 1, 512, 128), (1, 8, 4, 1, 8192, 128), (8, 8, 4, 1, 4096, 128), (1, 32, 1, 1, 2048, 64)),
    *((1, 8, 4, 512, 512, 128), (1, 8, 1, 1000, 1000, 96), (1, 4, 2, 1024, 4096, 256), (1, 8, 4, 2048, 2048, 128)),
    *((2, 8, 4, 4096, 4096, 64), (1, 8, 4, 8192, 8192, 128)),
)
"""Sequences, heads of keys, heads of queries that share them, queries, keys, and a head's size."""


def _packed(extent: int) -> int:
    return extent // ELEMENTS


def _unique(shapes: Sequence[Dims]) -> tuple[Dims, ...]:
    return tuple({tuple(shape.items()): shape for shape in shapes}.values())


_ROWS = _unique([{"rows": n, "cols": k} for m, n, k in PRODUCTS] + [{"rows": m, "cols": k} for m, n, k in PRODUCTS])
"""What goes into a product and comes out of one."""

Sizes = Sequence[tuple[int, ...]]


def by_dims(
    products: Sizes, rows: Sequence[Dims], tables: Sizes, turns: Sizes, attentions: Sizes
) -> dict[frozenset[str], tuple[Dims, ...]]:
    """Extents by the names of an op's dims; those of the matrices of products, and of rows, in blocks, too."""
    kinds: tuple[list[Dims], ...] = (
        [{"m": m, "n": n, "k": k} for m, n, k in products],
        [{"m": m, "n": n, "blocks": _packed(k)} for m, n, k in products],
        [{"m": m, "k": k} for m, n, k in products],
        [{"m": m, "blocks": _packed(k)} for m, n, k in products],
        list(rows),
        [{"rows": shape["rows"], "blocks": _packed(shape["cols"])} for shape in rows],
        [{"vocab": words, "tokens": tokens, "width": width} for words, tokens, width in tables],
        [{"tokens": tokens, "heads": heads, "half": half} for tokens, heads, half in turns],
        [
            dict(zip(("batch", "kv_heads", "group", "queries", "keys", "head"), sizes, strict=True))
            for sizes in attentions
        ],
    )
    return {frozenset(shapes[0]): _unique(shapes) for shapes in kinds}


SHAPES = by_dims(PRODUCTS, _ROWS, TABLES, TURNS, ATTENTIONS)


LONG = {1 << 24: 1 << 18, 1 << 20: 1 << 14, 1 << 16: 1 << 10, 1 << 12: 1 << 8}
"""Extents of a dim, and how many cases of an op there are to one of those: so that together they take a twentieth of
the time. float32 counts to the first, grids that are fixed cover the second, a grid has the third along y and z."""
BROAD = 1 << 20
"""From here on a fourth of them is long along two dims, which is about their square root; below, ordinary ones are."""
WIDER = 4
"""A long case has at most so many times as many elements, and that many times the work, as its dim alone tells."""
BESIDE = (-1, 0, 1, 1)
"""Multiples of a dim that such an extent is off, by chance."""
EARLY, EARLY_EVERY = 1 << 16, 32
"""The extent that each dim has once early in a run, for 16 bits count to it, and how many cases lie between two. Not of
an op with many dims: its kernels loop over some of them, and one such case took 20 s."""
DEEP, BESIDE_DEEP = (96, 160, 257), (1, 1, 2, 3, 17)
"""Extents of a dim that no output has, for what is carried from one tile of it to the next, and of the others."""
DEEP_EVERY, DEEP_FIRST, MANY_DIMS = 16, 6, 4
"""How many cases of an op there are to one that has such an extent, which is the first, and dims of which ops."""
FLAT = ("zeros", "ones", "constant_rows")
"""Distributions of half of the inputs of long cases: sums of many equal terms go wrong in their own way."""


@dataclass(frozen=True, slots=True)
class Long:
    """A case that is long along one dim, or two, and thin along the others."""

    contract: Contract
    dims: Dims


def long_turn(contract: Contract, most: int, run_seed: int, number: int, *, early: bool = False) -> Long | None:
    """The long case that case `number` of an op is, if it is one.

    most: elements of its largest tensor; early: each dim is long once before its turn.
    """
    due = next((base for base, every in LONG.items() if base < most and number % every == every // 4 + 3), None)
    turn, rest = divmod(number, EARLY_EVERY)
    early &= due is None and rest == 5 and 1 <= turn <= len(contract.dims) < MANY_DIMS and most > EARLY
    due = EARLY if early else due
    if due is None:
        return None
    random = Random(f"{run_seed}:{contract.name}:{number}:long")
    dims = list(contract.dims)
    random.shuffle(dims)
    if early:
        dims = [list(contract.dims)[turn - 1]]
    orders = (dims[i:] + dims[:i] for i in range(len(dims)))
    if due > BROAD:  # who judges it takes a part of it
        orders = (order for order in orders if order[0] in contract.separable)
    shapes = (_stretched(contract, due, order, random) for order in orders)
    fitting = (s for s in shapes if s is not None and elements_of(contract, s) <= most)
    shape = next(fitting, None)
    return None if shape is None else Long(_flattened(contract, random), shape)


TILED, TILED_EVERY = (64, 128, 256, 512), 6
"""Extents of one dim, beyond its usual ones, and how many cases of an op there are to one that has such an extent."""


def tiled_turn(contract: Contract, most: int | None, run_seed: int, number: int) -> tuple[Dims, ...]:
    """The extent that one dim has in case `number` of an op whose dims are small usually; () if it is an ordinary case.

    Dims come in turn, and the extents of each. most: elements of the largest tensor.
    """
    names = [name for name, dim in contract.dims.items() if dim.usual]
    if number % TILED_EVERY != 2 or not names:
        return ()
    times, at = divmod(number // TILED_EVERY, len(names))
    name, dim = names[at], contract.dims[names[at]]
    extents = [tile + off * dim.multiple for tile in TILED if tile <= dim.high for off in BESIDE]
    lowest, room = lowest_of(contract), most or contract.max_elements
    found = [{name: _near(contract, name, extent)} for extent in extents]
    fitting = tuple(s for s in found if not is_beyond(contract, {**lowest, **s}, room, MAX_WORK))
    return tuple(_shuffled(f"{contract.name}:{name}", fitting, run_seed))[times % max(1, len(fitting)) :][:1]


def deep_turn(contract: Contract, run_seed: int, number: int) -> tuple[Dims, ...]:
    """The shape that case `number` of an op has, if that is one whose sums go through several tiles; else ().

    Of an op with many dims each is small usually. One that no output has, as the keys of attention, is not here.
    """
    kept = {name for spec in contract.outputs.values() for axis in spec.axes for name in dims_in(axis)}
    names = [name for name in contract.dims if name not in kept]
    if number % DEEP_EVERY != DEEP_FIRST or len(contract.dims) < MANY_DIMS or not names or contract.origin:
        return ()
    random = Random(f"{run_seed}:{contract.name}:{number}:deep")
    extents = {name: random.choice(BESIDE_DEEP) for name in contract.dims}
    extents[random.choice(names)] = random.choice(DEEP)
    shape = {name: _near(contract, name, min(extent, contract.dims[name].high)) for name, extent in extents.items()}
    return () if is_beyond(contract, shape, contract.max_elements, MAX_WORK) else (shape,)


FAR = {1 << 32: 1 << 13, 1 << 31: 1 << 11}
"""Elements of the largest tensor behind which indices no longer fit into 32 bits, and how many cases of an op there are
to one that has more."""
WIDTHS = (1, 64, 96, 1000, 1024, 4097)
"""Extents of the other dims of such a case: who judges it takes whole rows."""
TRIES = 128
"""Shapes that are tried for one; where a contract counts multiplications, most have too many."""
BEHIND = 260
"""Indices of the long dim behind that: more than a tile has."""
MOST_WORK = 1 << 36
"""Multiplications of such a case, where the contract counts them: half a minute."""


def far_turn(contract: Contract, memory: int, run_seed: int, number: int) -> Iterator[Dims]:
    """Yield shapes of which case `number` of an op has the first that fits, if it is one with so many elements.

    memory: bytes that its tensors may take; each element takes one at least.
    """
    base = next((n for n, every in FAR.items() if n < memory and number % every == every // 4 + 3), None)
    if base is None:
        return
    random = Random(f"{run_seed}:{contract.name}:{number}:far")
    dims = [d for d in contract.dims if d in contract.separable and d not in contract.placed]
    for dim in (random.choice(dims) for _ in range(TRIES if dims else 0)):
        multiple = contract.dims[dim].multiple
        shape = {d: _near(contract, d, random.choice(WIDTHS)) for d in contract.dims} | {dim: BROAD * multiple}
        extent = -(-base * BROAD // elements_of(contract, shape)) + BEHIND
        shape[dim] = _near(contract, dim, extent * multiple)
        if elements_of(contract, shape) > base and (contract.work is None or contract.work(shape) <= MOST_WORK):
            yield shape


def _stretched(contract: Contract, base: int, order: Sequence[str], random: Random) -> dict[str, int] | None:
    """A shape with about so many elements along the first of these dims (sometimes the first two); None: it has not."""
    both = len(order) > 1 and base >= BROAD and random.random() < 0.25
    stretched = order[: 1 + both]
    shape = {d: _near(contract, d, random.choice((1, 1, 2, 3))) for d in contract.dims}
    extent = math.isqrt(base) if both else base
    excess = elements_of(contract, {**shape, **dict.fromkeys(stretched, extent)}) / base
    if excess > WIDER:
        extent = int(extent / (math.sqrt(excess) if both else excess))
    off = random.choice(BESIDE)
    shape |= {d: _near(contract, d, extent + off * contract.dims[d].multiple) for d in stretched}
    reached = all(shape[d] > extent - 2 * contract.dims[d].multiple for d in stretched)
    return shape if reached and (contract.work is None or contract.work(shape) <= WIDER * max(base, MAX_WORK)) else None


def _near(contract: Contract, name: str, extent: int) -> int:
    """An extent that a dim may have; only the user's own end somewhere."""
    dim = contract.dims[name]
    high = dim.high if contract.origin else max(dim.high, extent)
    return max(-(-dim.low // dim.multiple), min(high, extent) // dim.multiple) * dim.multiple


def elements_of(contract: Contract, dims: Dims) -> int:
    """Elements of the largest tensor, with the plainest attributes."""
    attrs = {name: values[0] for name, values in contract.attrs.items()}
    return max(math.prod(shape_of(axes, dims, attrs)) for axes in contract.axes)


def is_beyond(contract: Contract, dims: Dims, elements: int, work: int) -> bool:
    """Whether a case of these extents has more elements in its largest tensor, or more work."""
    return elements_of(contract, dims) > elements or (contract.work is not None and contract.work(dims) > work)


def _flattened(contract: Contract, random: Random) -> Contract:
    inputs = {n: _flat(contract, n, spec) if random.random() < 0.5 else spec for n, spec in contract.inputs.items()}
    return replace(contract, inputs=inputs)


def _flat(contract: Contract, name: str, spec: Input) -> Input:
    dtypes = {variant[name] for variant in contract.variants}
    if spec.ranged or spec.counts or spec.packed or not all(format_of(t).is_float for t in dtypes):
        return spec
    drawn = {d for t in dtypes for d in distributions_for(spec, t)}
    return replace(spec, distributions=tuple(d for d in FLAT if d in drawn) or spec.distributions)


def shapes_of(contract: Contract) -> tuple[Dims, ...]:
    """The shapes for an op, smaller ones first; of one of the user's own, only those within its ranges."""
    return allowed(contract, SHAPES)


def allowed(contract: Contract, known: Mapping[frozenset[str], tuple[Dims, ...]]) -> tuple[Dims, ...]:
    """Those of the shapes that an op has."""
    dims = contract.dims
    found = known.get(frozenset(dims), ())
    fitting = [s for s in found if all(n >= dims[d].low and n % dims[d].multiple == 0 for d, n in s.items())]
    return tuple(s for s in fitting if not contract.origin or all(n <= dims[d].high for d, n in s.items()))


def check_dims(contract: Contract, dims: Dims) -> None:
    """Raise UsageError for extents that an op does not have."""
    for name, extent in dims.items():
        dim = contract.dims[name]
        if contract.origin and dim.low == dim.high != extent:
            raise UsageError(f"{name} is {extent}, and {contract.name} has it fixed at {dim.low}")
        if extent < dim.low:
            raise UsageError(f"{name} is {extent}, which is less than {dim.low}")
        if extent % dim.multiple:
            raise UsageError(f"{name} is {extent}, which is no multiple of {dim.multiple}")


def must_fit(contract: Contract, dims: Dims) -> None:
    """Raise UsageError for extents of which a case would take more than a quarter of this machine's memory."""
    attrs = {name: values[0] for name, values in contract.attrs.items()}
    needed, whole = memory_of(contract, contract.variants[0], dims, attrs), memory_bytes()
    if needed > whole // 4:
        said = ", ".join(f"{name} {extent}" for name, extent in dims.items())
        raise UsageError(
            f"a case of {contract.name} with {said} has {needed / 2**30:,.3g} GiB; this machine has "
            f"{whole / 2**30:,.3g} GiB, of which it may be a quarter"
        )


def memory_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def turn(contract: Contract, run_seed: int, number: int) -> tuple[Dims, ...]:
    """Shapes that case `number` of an op may have, the wanted one first; () if it is an ordinary case.

    All shapes come in turn, in an order that the run's seed decides.
    """
    if number % EVERY != EVERY - 1:
        return ()
    shapes = list(_shuffled(contract.name, shapes_of(contract), run_seed))
    start = number // EVERY % max(1, len(shapes))
    return (*shapes[start:], *shapes[:start])


def _shuffled(op: str, shapes: tuple[Dims, ...], run_seed: int) -> Iterator[Dims]:
    order = list(range(len(shapes)))
    Random(f"{run_seed}:{op}:shapes").shuffle(order)
    return (shapes[i] for i in order)


def seed_cases(contract: Contract, choose: Choose, memory: int, *, dtypes: tuple[str, ...] = ()) -> Iterator[Case]:
    """One case of each shape whose inputs and outputs fit into so many bytes.

    Everything but the dims is chosen by `choose`, as for any case (fuzz/generation/strategies.py).
    """
    for shape in shapes_of(contract):
        case = build(contract, choose, dtypes=dtypes, memory=memory, shapes=(shape,))
        if contract.dims_of(case) == dict(shape):
            yield case
