"""A whole product checked by two matrix-vector products: out x = alpha A (B x) + beta C x, for random signs x.

Source: Freivalds, "Probabilistic machines can use less running time", 1977. With rounding: if each element of a row is
off by e_j, where |e_j| <= E_j and the rounding to the output's format, then their sum with random signs is off by at
most SIGNS times their Euclidean norm, but for 1 in 10**13 (Hoeffding, 1963), and never by more than sqrt(n) times. The
norms of rows of E come from norms of the operands (oracles/numerics/products.py), so nothing larger than a vector is
kept. The signs depend on the case alone, and no kernel knows them.

A row whose sum is off by more holds an element that is off by more than its budget. Which one that is, `worst` finds;
the ordinary oracle then judges it (oracles/large/parts.py). A single error e in a row is seen if |e| is above the
tolerance, about SIGNS sqrt(n) typical budgets: much coarser than an element's own, but no element is left out. Integers
have no tolerance: a wrong element is always seen, several wrong ones in a row each time with a chance of one half at
least.

Rows with a NaN or Inf, in operands or output, are left out and counted; so are saturated ones. Matrices may be those
of any library that has +, -, *, /, @, <, abs and slices; what is made of them is float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.field import hashed
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.coverage_share import Share
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.oracles.judging.reference import is_iid
from kernel_assay.oracles.large.parts import around
from kernel_assay.oracles.large.sampled import Sampled, judge_parts
from kernel_assay.oracles.numerics.products import RowNorms, least_aligned, least_operand, row_norms_budget
from kernel_assay.oracles.spec.contract import Contract, Question, Reals

TRIALS = 2
"""Vectors of signs."""
SIGNS = 8.0
"""Norms that a sum with random signs may be; 2 exp(-32) is the chance that it is more."""
SLAB = 1 << 21
"""Elements of a matrix whose float64 is in memory at a time."""
MOST = 64
"""Elements that `worst` names."""


@dataclass(frozen=True, slots=True)
class Library:
    """Operations on matrices of a library, which become float64, and its vectors numpy's; of numpy by default."""

    wide: Callable[[Any], Any] = lambda slab: np.asarray(slab, np.float64)
    given: Callable[[Reals], Any] = lambda vector: vector
    """A vector of numpy as one of the library, where the matrices are."""
    told: Callable[[Any], Reals] = lambda vector: np.asarray(vector, np.float64)


NUMPY = Library()


@dataclass(frozen=True, slots=True)
class Algebra:
    """Results of two sums of each row."""

    rho: Reals
    """The larger distance of each row by its tolerance; above 1 it holds a wrong element. NaN: it is left out."""
    columns: int

    @property
    def suspects(self) -> NDArray[np.int64]:
        """Rows that hold a wrong element, the worst first."""
        order = np.argsort(-np.nan_to_num(self.rho, nan=-1.0, posinf=np.inf), kind="stable")
        return order[self.rho[order] > 1.0]

    @property
    def left_out(self) -> int:
        """Rows of which nothing is known."""
        return int(np.isnan(self.rho).sum())

    @property
    def elements(self) -> int:
        """The number of elements that were looked at."""
        return (len(self.rho) - self.left_out) * self.columns


@dataclass(frozen=True, slots=True)
class Product:
    """A case of gemm or gemm_int8, with its matrices, all of one library."""

    contract: Contract
    case: Case
    inputs: Mapping[str, Any]
    """a: (m, k); b: (k, n); c: (m, n), where the case has one."""
    out: Any
    """(m, n)."""
    library: Library = NUMPY

    @property
    def attrs(self) -> tuple[float, float]:
        """Alpha, and beta, which is 0 without c."""
        attrs = self.contract.attrs_of(self.case)
        beta = float(attrs.get("beta", 1.0)) if "c" in self.inputs else 0.0
        return float(attrs.get("alpha", 1.0)), beta

    @property
    def dims(self) -> tuple[int, int, int]:
        """The sizes m, n and k."""
        dims = self.contract.dims_of(self.case)
        return dims["m"], dims["n"], dims["k"]


def algebra(product: Product, numerics: Numerics) -> Algebra:
    """Check every row of a product under a declared arithmetic.

    Raises UsageError for an op that is no product of two matrices of numbers, or a sum that float64 cannot hold.
    """
    if not product.contract.product:
        raise UsageError(
            f"{product.contract.name} is no product of two matrices of numbers: its rows have no such sums"
        )
    signs = [_signs(product.case, trial, product.dims[1]) for trial in range(TRIALS)]
    with np.errstate(all="ignore"):
        if product.contract.product == "integer":
            return _exactly(product, signs)
        return _within(product, numerics, signs)


def _signs(case: Case, trial: int, n: int) -> Reals:
    """Ones of either sign."""
    words = hashed(int(case.id, 16) + trial, (0,), (n,))
    return np.where(words >> np.uint64(63), 1.0, -1.0)


def _exactly(p: Product, signs: Sequence[Reals]) -> Algebra:
    """Modulo 2**32; float64 holds all sums of 8-bit integers and of results."""
    m, n, k = p.dims
    if k * n >= 1 << 36:
        raise UsageError(f"a product of {m} x {k} and {k} x {n} is too large for exact sums in float64")
    alpha, beta = (int(x) for x in p.attrs)
    off = np.zeros(m, np.bool_)
    through = _folded(p.inputs["b"], k, n, p.library, lambda s: [s @ p.library.given(x) for x in signs])
    left = _folded(p.inputs["a"], m, k, p.library, lambda s: [s @ p.library.given(x) for x in through])
    added = _folded(p.inputs["c"], m, n, p.library, lambda s: [s @ p.library.given(x) for x in signs])
    given = _folded(p.out, m, n, p.library, lambda s: [s @ p.library.given(x) for x in signs])
    for one, c, got in zip(left, added, given, strict=True):
        due = np.int64(alpha) * one.astype(np.int64) + np.int64(beta) * c.astype(np.int64)
        off |= (got.astype(np.int64) - due) % (1 << 32) != 0
    return Algebra(np.where(off, np.inf, 0.0), n)


def _within(p: Product, numerics: Numerics, signs: Sequence[Reals]) -> Algebra:
    m, n, k = p.dims
    (alpha, beta), lib = p.attrs, p.library
    q = Question(
        p.case, {}, p.contract.attrs_of(p.case), {}, numerics.spelled_out(p.case.dtype), is_iid(p.case, p.contract)
    )
    limits = Limits(least_operand(q, abs(alpha)), least_aligned(q))
    through, b = _of_columns(p, signs, limits)
    left, a = _of_rows(p, through, b, limits)
    (*given, total, square) = _sums(p.out, m, n, lib, signs)
    (*added, more, c_square) = _sums(p.inputs["c"], m, n, lib, signs) if beta else [np.zeros(m)] * (TRIALS + 2)
    wide = p.case.dtype == "float64"  # whose squares may vanish: sums bound norms as well
    out, c = (total, more) if wide else (np.sqrt(square), np.sqrt(c_square))
    acc = np.minimum(a["size"], (out + abs(beta) * c) / abs(alpha)) if alpha else a["size"]
    norms = RowNorms(acc, a["size"], a["root"], a["lost"], out, c if "c" in p.inputs else None, a["more"])
    fmt = format_of(str(p.contract.output_specs(p.case)["out"].dtype))
    rounded = fmt.unit * (1.0 + 2.0 * fmt.unit) * out + 0.5 * fmt.eta * math.sqrt(n)
    own = (n + k + 16) * 2.0**-53 * (abs(alpha) * a["sum"] + abs(beta) * more + total)
    room = min(SIGNS, math.sqrt(n)) * (row_norms_budget(q, k, n, norms) + rounded) + own
    rho = np.zeros(m)
    for got, one, c_one in zip(given, left, added, strict=True):
        rho = np.maximum(rho, _ratio(np.abs(got - (alpha * one if alpha else 0.0) - beta * c_one), room))
    known = np.isfinite(total) & np.isfinite(room) & np.isfinite(rho)
    if numerics.store == "saturate":
        known &= _folded(p.out, m, n, lib, lambda s: [(abs(s) * (abs(s) >= fmt.max)) @ lib.given(np.ones(n))])[0] == 0
    return Algebra(np.where(known, rho, np.nan), n)


def _ratio(off: Reals, room: Reals) -> Reals:
    """The ratio; a row that is off by nothing has 0, whatever its room."""
    return np.where(off == 0.0, 0.0, off / room)


class Limits(NamedTuple):
    """Magnitudes at which operands count otherwise; 0: none do."""

    least: float
    """Below it they may be taken for zero."""
    normal: float
    """Below it they are aligned as if they were this."""

    def lost(self, size: Any) -> Any:
        """Magnitudes, of numpy or torch, that may be taken for zero."""
        return size * (size < self.least) if self.least else size

    def more(self, size: Any) -> Any:
        """The growth of sums where products are aligned."""
        return (self.normal - size) * ((size > 0.0) & (size < self.normal))


def _of_columns(p: Product, signs: Sequence[Reals], limits: Limits) -> tuple[list[Reals], dict[str, Reals]]:
    """B times the signs; and of each row of B the sum of magnitudes, the norm, its square, and that of what is lost."""
    _, n, k = p.dims
    lib, one = p.library, p.library.given(np.ones(n))
    vectors = [lib.given(x) for x in signs]
    wide = p.case.dtype == "float64"  # whose squares may vanish: sums bound norms as well

    def folds(s: Any) -> list[Any]:
        size = abs(s)
        measured = [size, limits.lost(size), *([limits.more(size)] if limits.normal else [])]
        return [*(s @ x for x in vectors), size @ one, *((x if wide else x * x) @ one for x in measured)]

    through, (total, square, *others) = _split(_folded(p.inputs["b"], k, n, lib, folds))
    norms = (x if wide else np.sqrt(x) for x in (square, *others))
    return through, {"sum": total, "square": square, **dict(zip(("norm", "lost", "more"), norms, strict=False))}


def _of_rows(
    p: Product, through: Sequence[Reals], b: Mapping[str, Reals], limits: Limits
) -> tuple[list[Reals], dict[str, Reals]]:
    """A times what B makes of the signs; and of each row what the budget is made of."""
    m, _, k = p.dims
    lib = p.library
    vectors, of = [lib.given(x) for x in through], {name: lib.given(x) for name, x in b.items()}

    def folds(s: Any) -> list[Any]:
        size = abs(s)
        sums = [size @ of["sum"], size @ of["norm"], (s * s) @ of["square"]]
        if limits.normal:
            more = limits.more(size)
            sums.append((size + more) @ of["more"] + more @ of["norm"])
        if limits.least:
            sums.append(limits.lost(size) @ of["norm"] + size @ of["lost"])
        return [*(s @ x for x in vectors), *sums]

    left, sums = _split(_folded(p.inputs["a"], m, k, lib, folds))
    root = sums[1] if p.case.dtype == "float64" else np.sqrt(sums[2])
    lost, more = (sums.pop() if limit else np.zeros(m) for limit in (limits.least, limits.normal))
    return left, {"sum": sums[0], "size": sums[1], "root": root, "more": more, "lost": lost}


def _split(vectors: list[Reals]) -> tuple[list[Reals], list[Reals]]:
    return vectors[:TRIALS], vectors[TRIALS:]


def _sums(matrix: Any, height: int, width: int, lib: Library, signs: Sequence[Reals]) -> list[Reals]:
    """Sums of each row with the signs, of magnitudes, and of squares."""
    vectors, one = [lib.given(x) for x in signs], lib.given(np.ones(width))
    return _folded(matrix, height, width, lib, lambda s: [*(s @ x for x in vectors), abs(s) @ one, (s * s) @ one])


def _folded(matrix: Any, height: int, width: int, lib: Library, folds: Callable[[Any], Sequence[Any]]) -> list[Reals]:
    """Apply functions to each row of a matrix, slab by slab; each gives a vector of as many."""
    slabs = [[lib.told(v) for v in folds(lib.wide(matrix[some]))] for some in _slabs(height, width)]
    return [np.concatenate(pieces) for pieces in zip(*slabs, strict=True)]


def _slabs(height: int, width: int) -> Iterator[slice]:
    """Stretches of rows; one of none, of a matrix that has none."""
    step = max(1, SLAB // max(1, width))
    return (slice(start, start + step) for start in range(0, max(1, height), step))


def worst(product: Product, found: Algebra, most: int = MOST) -> list[int]:
    """The elements of suspicious rows that are farthest from the product, as flat indices; at most two of a row.

    Their rows are computed in float64; the oracle decides.
    """
    _, n, k = product.dims
    alpha, beta = product.attrs
    lib, named = product.library, []
    for row in found.suspects[: most // 2].tolist():
        a = lib.told(lib.wide(product.inputs["a"][row]))
        due = np.zeros(n)
        for some in _slabs(k, n):
            due += lib.told(lib.given(a[some]) @ lib.wide(product.inputs["b"][some]))
        due = alpha * due + (beta * lib.told(lib.wide(product.inputs["c"][row])) if beta else 0.0)
        off = np.abs(lib.told(lib.wide(product.out[row])) - due)
        if product.contract.product == "integer":
            off = np.abs((off + 2.0**31) % 2.0**32 - 2.0**31)
        named += [row * n + int(j) for j in np.argsort(-off, kind="stable")[:2]]
    return named


def judge_product(product: Product, subject: Subject) -> tuple[Sampled, Algebra]:
    """Check every row, and let the oracle judge what is suspicious. For matrices of numpy; raises as algebra does."""
    found = algebra(product, subject.numerics)
    outputs = {"out": product.out}
    share = Share(output="out", of=product.out.size, algebra=found.elements)
    said = Sampled(Verdict(kind=Kind.PASS), (share,))
    if len(found.suspects):
        parts, _ = around(product.contract, product.case, "out", worst(product, found))
        said = said.plus(judge_parts(parts, subject, outputs))
    return said, found
