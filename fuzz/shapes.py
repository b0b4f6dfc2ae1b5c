"""Shapes of language models, as starting points: sizes that a search of small shapes does not reach.

Products as they are in models (one token or few by wide layers, prompts by all), and shapes at which kernels and
libraries change their path. A contract gets those whose dims have the names it uses; other ops of one's own get none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from corpus.blocks import ELEMENTS
from corpus.records import Case
from fuzz.strategies import Choose, build
from oracles.axes import Dims
from oracles.contract import Contract

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

SHAPES: dict[frozenset[str], tuple[Dims, ...]] = {
    frozenset(shapes[0]): _unique(shapes)
    for shapes in (
        [{"m": m, "n": n, "k": k} for m, n, k in PRODUCTS],
        [{"m": m, "n": n, "blocks": _packed(k)} for m, n, k in PRODUCTS],
        [{"m": m, "k": k} for m, n, k in PRODUCTS],
        [{"m": m, "blocks": _packed(k)} for m, n, k in PRODUCTS],
        list(_ROWS),
        [{"rows": shape["rows"], "blocks": _packed(shape["cols"])} for shape in _ROWS],
        [{"vocab": words, "tokens": tokens, "width": width} for words, tokens, width in TABLES],
        [{"tokens": tokens, "heads": heads, "half": half} for tokens, heads, half in TURNS],
        [
            dict(zip(("batch", "kv_heads", "group", "queries", "keys", "head"), sizes, strict=True))
            for sizes in ATTENTIONS
        ],
    )
}
"""By the names of an op's dims."""


def shapes_of(contract: Contract) -> tuple[Dims, ...]:
    """The shapes for an op, smaller ones first; of one of the user's own, only those within its ranges."""
    dims = contract.dims
    found = SHAPES.get(frozenset(dims), ())
    fitting = [s for s in found if all(n >= dims[d].low and n % dims[d].multiple == 0 for d, n in s.items())]
    return tuple(s for s in fitting if not contract.origin or all(n <= dims[d].high for d, n in s.items()))


def turn(contract: Contract, run_seed: int, number: int) -> tuple[Dims, ...]:
    """What case `number` of an op may have as its shape, the wanted one first; () if it is an ordinary case.

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

    Everything but the dims is chosen by `choose`, as for any case (fuzz/strategies.py).
    """
    for shape in shapes_of(contract):
        case = build(contract, choose, dtypes=dtypes, memory=memory, shapes=(shape,))
        if contract.dims_of(case) == dict(shape):
            yield case
