"""Distance of one output from its reference: every number that decides or explains, from one pass over the data.

The pass itself is oracles.judging.measure_numba (numba), or oracles.judging.measure_numpy (numpy) where numba is
missing or KERNEL_ASSAY_NO_NUMBA=1, and in each process until there has been so much that numba is worth its start.
Both count alike to the last element; their sums may differ in the last digits.
"""

import importlib
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.oracles.judging import measure_numpy
from kernel_assay.oracles.judging.measure_numpy import (
    ABS_AT,
    BAD,
    BLOCK,
    CLASS_BAD,
    COUNTS,
    FIRST_BAD,
    FIRST_BADS,
    FIRST_CLASS,
    GOT_NONFINITE,
    HISTOGRAM,
    MAX_ABS,
    MAX_REL,
    MISROUNDED,
    OVER,
    PAIRS,
    PEAK,
    REAL_ULP,
    REL_AT,
    RHO,
    RHO_AT,
    SIGMAS,
    SUM_EE,
    SUM_RR,
    SUM_YY,
    SUM_Z,
    ULP,
    ULP_AT,
    WANT_NONFINITE,
    Ints,
    Operands,
    Reals,
)  # fmt: skip

Sweep = Callable[[Operands, int, Ints, Reals], None]

THREADED = 1 << 18
"""More elements than this are split between two threads; always two halves, so that sums do not depend on the host."""
SLAB = 1 << 18
"""Elements whose converted or broadcast operands are in memory at a time, per thread."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Results of one pass over an output. Indices are flat, in C order; -1: no element has it.

    An element is a pair when both got and want are finite; sizes, sums and ulps speak of pairs only. excess is the
    distance of want from the reals that round to got, rho = excess / error (numerics.md 0); rho is inf where error is 0
    (or negative, or NaN) and excess is not, and 0 where excess is 0 whatever the error.
    """

    count: int
    """Elements."""
    bad: int
    """Elements that fail: class_bad + over."""
    class_bad: int
    """Elements whose class (number, zero, Inf, NaN) is not accepted."""
    over: int
    """Finite elements judged by the interval whose excess is above the error."""
    misrounded: int
    """Elements judged by the interval that are not the correctly rounded want."""
    rho: float
    """Largest rho of the elements judged by the interval; those accepted for their class do not count."""
    rho_index: int
    first_bad: tuple[int, ...]
    """Up to 16 failing elements, ascending."""
    worst_index: int
    """The first class failure, else the element with the largest rho if that fails."""
    max_ulp: int
    """Most representable steps between got and the rounded want, where that is finite; integers: |got-want|."""
    max_ulp_index: int
    max_ulp_real: float
    """Largest |got-want| / ulp(want) (Goldberg; 0.5 is correctly rounded); 0 for integers."""
    ulp_histogram: tuple[int, ...]
    """Pairs by steps: 0, 1, 2, 3-4, 5-8, ...; as long as it must be."""
    nmse: float
    """sum (got-want)**2 / sum want**2; 0 when nothing differs (empty too), inf on a class failure or if want is 0."""
    cosine: float
    """In [-1, 1]; 1 if all is zero or empty, 0 if one side is zero, on a class failure, or if a sum overflows."""
    psnr: float
    """10 log10(max|want|**2 / mean (got-want)**2) dB; inf when nothing differs, -inf on a class failure or want 0."""
    max_abs: float
    max_abs_index: int
    max_rel: float
    """Largest |got-want| / |want| of pairs with want != 0."""
    max_rel_index: int
    z: float | None
    """sqrt(mean(((got-want)/sigma_total)**2)), sigma_total**2 = (0.2887 ulp(want))**2 + sigma**2 (numerics.md 2.3).

    Over pairs judged by the interval; 0 if there are none, inf instead of NaN, None without sigma. The judge divides it
    by failure_mask.ideal_z, for ties.
    """
    z_count: int
    """How many pairs z is made of."""
    got_nonfinite: int
    want_nonfinite: int


def measure(
    got: Array,
    want: Array,
    error: Reals | float,
    accept: NDArray[np.uint8] | int | None = None,
    sigma: Reals | float | None = None,
) -> Measured:
    """Compare an output with its reference.

    got: array of any format of corpus.formats, any layout; want: float64 or float32, same shape (exact integers up to
    2**53 for integer formats); error: bound E on the error before the final rounding, accept: masks of
    oracles.spec.contract (None: INTERVAL where want is finite, else its own class, NAN for Inf where the format has
    none), sigma: expected deviation of the error; the last three broadcast to the shape and are never expanded as a
    whole.
    An element passes if any of its accepted classes holds; INTERVAL: finite, or overflowed, with excess <= error.
    Raises UsageError if the shapes differ or do not broadcast, or a dtype is unknown.
    """
    if got.shape != want.shape:
        raise UsageError(f"got has shape {got.shape}, want {want.shape}; they must be equal")
    counts, values = _Job(got, want, error, accept, sigma).swept()
    return report(got.size, counts, values, scored=sigma is not None)


class Tally:
    """Measure an output that comes in pieces, in their order, with memory for one of them.

    There is no budget: only an element of another class fails, and misrounded says how many others differ. It counts
    as `measure` does of the whole; sums may differ in the last digits.
    """

    def __init__(self) -> None:
        self.count = 0
        """Elements so far."""
        self._counts, self._values = measure_numpy.fresh()

    def add(self, got: Array, want: Array) -> None:
        """Measure the next piece. want: of any known format; int64 is compared exactly with int64."""
        counts, values = _Job(got, want, math.inf, None, None, base=self.count).swept()
        if counts[GOT_NONFINITE]:  # where no error is too large, Inf would pass for any number; this takes longer
            counts, values = _Job(got, want, 0.0, None, None, base=self.count).swept()
        _merge(self._counts, self._values, counts, values)
        self.count += got.size

    def measured(self) -> Measured:
        """Say what there is to say of all pieces so far."""
        return report(self.count, self._counts, self._values, scored=False)


@cache
def engine() -> str:
    """The module that sweeps: measure_numba, or measure_numpy without numba or if KERNEL_ASSAY_NO_NUMBA=1."""
    if os.environ.get("KERNEL_ASSAY_NO_NUMBA") == "1":
        return "kernel_assay.oracles.judging.measure_numpy"
    try:
        importlib.import_module("numba")
    except ImportError:
        return "kernel_assay.oracles.judging.measure_numpy"
    return "kernel_assay.oracles.judging.measure_numba"


_PAYS, _CALL = 1 << 22, 1 << 12
"""Elements in whose sweeps numpy loses the half second that numba takes to start; a call counts as so many."""
_SWEPT = [0]
"""Elements so far."""
_UNTIL: list[Callable[[], bool]] = []
"""At most one: whether the machine code of oracles.judging.measure_numba is there by now."""


def prefer_numpy_until(compiled: Callable[[], bool]) -> None:
    """Sweep with oracles.judging.measure_numpy until that is true, which is asked where numba is worth its start."""
    _UNTIL[:] = [compiled]


def prefer_numba() -> None:
    """Sweep with the engine from now on, however little there is."""
    _SWEPT[0] = _PAYS


def _ready_engine(size: int) -> str:
    """The engine, or oracles.judging.measure_numpy as long as it would have to be started or compiled first."""
    _SWEPT[0] += size + _CALL
    if _SWEPT[0] < _PAYS:
        return "kernel_assay.oracles.judging.measure_numpy"
    if _UNTIL and engine() != "kernel_assay.oracles.judging.measure_numpy":
        if not _UNTIL[0]():
            return "kernel_assay.oracles.judging.measure_numpy"
        _UNTIL.clear()
    return engine()


@cache
def _sweep(name: str) -> Sweep:
    sweep: Sweep = importlib.import_module(name).sweep
    return sweep


_FLOAT64 = np.dtype(np.float64)
_FLOAT32 = np.dtype(np.float32)
_INT64 = np.dtype(np.int64)
_MASKS = np.dtype(np.uint8)
_NO_MASK = np.zeros(0, dtype=np.uint8)
_NO_SIGMA = np.zeros(0)


@dataclass(frozen=True, slots=True)
class _Profile:
    """Constants for measuring one dtype."""

    carrier: np.dtype[Any]
    wants: tuple[np.dtype[Any], ...]
    """What the reference may come in; else it is converted to the first, slab by slab."""
    facts: Reals
    table: Reals
    steps: np.dtype[Any]
    convert: bool
    """Whether the output itself is swept as float64 (int32)."""
    sweep: Sweep


@cache
def _profile(dtype: np.dtype[Any], engine: str) -> _Profile:
    fmt = format_of(dtype)
    single = fmt.name == "float32"
    return _Profile(
        fmt.carrier,
        (_FLOAT64, _FLOAT32) if single else (_FLOAT64, _INT64) if fmt.name == "int64" else (_FLOAT64,),
        measure_numpy.facts_of(fmt.name),
        measure_numpy.table_of(fmt.name),
        np.dtype(np.uint32) if single else np.dtype(np.uint64),
        fmt.name == "int32",
        # float64 holds no int64 exactly; numpy's pass compares those as integers.
        measure_numpy.sweep if fmt.name == "int64" else _sweep(engine),
    )


class _Job:
    """The operands of one measurement, cut to flat slabs without ever expanding a broadcast as a whole."""

    def __init__(self, got: Array, want: Array, error: Any, accept: Any, sigma: Any, *, base: int = 0) -> None:
        """base: the flat index of the first element in what is measured in pieces."""
        self.base = base
        self.profile = _profile(got.dtype, _ready_engine(got.size))
        self.got, self.want, self.shape = got, want, got.shape
        self.error = _operand(error, _FLOAT64, self.shape)
        self.accept = _NO_MASK if accept is None else _operand(accept, _MASKS, self.shape)
        self.sigma = _NO_SIGMA if sigma is None else _operand(sigma, _FLOAT64, self.shape)

    def swept(self) -> tuple[Ints, Reals]:
        """Sweep all there is."""
        size = self.got.size
        if size <= THREADED:
            return self.run(0, size) if size else measure_numpy.fresh()
        middle = size // 2
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(self.run, middle, size)
            counts, values = self.run(0, middle)
            _merge(counts, values, *second.result())
        return counts, values

    def run(self, low: int, high: int) -> tuple[Ints, Reals]:
        """Sweep a flat range."""
        counts, values = measure_numpy.fresh()
        step = SLAB if high - low > SLAB and not self._direct() else high - low
        for start in range(low, high, step):
            self.profile.sweep(self._operands(start, min(start + step, high)), self.base + start, counts, values)
        return counts, values

    def _direct(self) -> bool:
        """Whether every operand can be read where it lies."""
        rows = (self.got, self.want, self.error, self.accept, self.sigma)
        flat = all(row.size <= 1 or row.flags.c_contiguous for row in rows)
        return flat and self.want.dtype in self.profile.wants and not self.profile.convert

    def _operands(self, low: int, high: int) -> Operands:
        p = self.profile
        got, want = _cut(self.got, low, high), _cut(self.want, low, high)
        if want.dtype not in p.wants:
            want = want.astype(p.wants[0])
        bits = got.view(p.carrier)
        if p.table.size > 1:
            got = np.empty(BLOCK)
        elif p.convert:
            got = got.astype(np.float64)
            bits = got.view(np.uint64)
        error, accept, sigma = self.error, self.accept, self.sigma
        return Operands(
            bits,
            got,
            want,
            error if error.size <= 1 else _cut(error, low, high),
            accept if accept.size <= 1 else _cut(accept, low, high),
            sigma if sigma.size <= 1 else _cut(sigma, low, high),
            p.facts,
            p.table,
            np.empty(BLOCK, p.steps),
        )


def _cut(row: Array, low: int, high: int) -> Array:
    """row.reshape(-1)[low:high], contiguous."""
    if not row.flags.c_contiguous:
        return np.ascontiguousarray(_flat_part(row, low, high))
    return row[low:high] if row.ndim == 1 else row.reshape(-1)[low:high]


def _operand(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """One value as an array of length 1; anything else broadcast to the shape as a view."""
    row = np.asarray(value, dtype)
    if row.size == 1 and row.ndim <= len(shape):
        return row.reshape(1)
    if row.shape == shape:
        return row
    try:
        return np.broadcast_to(row, shape)
    except ValueError:
        raise UsageError(f"shape {row.shape} does not broadcast to that of the output, {shape}") from None


def _flat_part(view: Array, low: int, high: int) -> Array:
    """view.reshape(-1)[low:high] for 0 <= low < high, copying little more than that."""
    if view.ndim <= 1:
        return view.reshape(-1)[low:high]
    inner = view.size // view.shape[0]
    first, last = low // inner, -(-high // inner)
    if last - first == 1:
        return _flat_part(view[first], low - first * inner, high - first * inner)
    if inner > high - low:
        edge = (first + 1) * inner
        return np.concatenate([_flat_part(view, low, edge), _flat_part(view, edge, high)])
    return view[first:last].reshape(-1)[low - first * inner : high - first * inner]


_RECORDS = ((RHO, RHO_AT), (MAX_ABS, ABS_AT), (MAX_REL, REL_AT))
_SUMS = [BAD, CLASS_BAD, OVER, MISROUNDED, GOT_NONFINITE, WANT_NONFINITE]
_SUMS += [PAIRS, SIGMAS, *range(HISTOGRAM, COUNTS)]


def _merge(counts: Ints, values: Reals, more: Ints, others: Reals) -> None:
    """Add the tally of a later range to that of an earlier one, as if one sweep had made both."""
    seen = min(int(counts[BAD]), FIRST_BADS)
    start, stop = FIRST_BAD, HISTOGRAM
    counts[start + seen : stop] = more[start : stop - seen]
    if counts[FIRST_CLASS] < 0:
        counts[FIRST_CLASS] = more[FIRST_CLASS]
    if more.view(np.uint64)[ULP] > counts.view(np.uint64)[ULP]:
        counts[[ULP, ULP_AT]] = more[[ULP, ULP_AT]]
    for value, at in _RECORDS:
        if others[value] > values[value]:
            values[value], counts[at] = others[value], more[at]
    for peak in (REAL_ULP, PEAK):
        values[peak] = max(values[peak], others[peak])
    counts[_SUMS] += more[_SUMS]
    sums = [SUM_EE, SUM_RR, SUM_YY, SUM_Z]
    values[sums] += others[sums]


def report(count: int, counts: Ints, values: Reals, *, scored: bool) -> Measured:
    """The record of a tally, in the columns of measure_numpy; count: elements, scored: whether there was a sigma."""
    c, v = counts[:HISTOGRAM].tolist(), values.tolist()
    bad, class_bad = c[BAD], c[CLASS_BAD]
    first = c[FIRST_BAD : FIRST_BAD + min(bad, FIRST_BADS)] if bad else ()
    worst = c[FIRST_CLASS] if class_bad else c[RHO_AT] if bad else -1
    top = c[ULP] & 0xFFFFFFFFFFFFFFFF
    # max_ulp says where the histogram ends; without pairs it has no buckets.
    reach = 0 if not c[PAIRS] else 1 + (1 + (top - 1).bit_length() if top else 0)
    nmse, cosine, psnr = _quality(v, c[PAIRS], sound=not class_bad)
    return Measured(
        count=count,
        bad=bad,
        class_bad=class_bad,
        over=c[OVER],
        misrounded=c[MISROUNDED],
        rho=v[RHO],
        rho_index=c[RHO_AT],
        first_bad=tuple(first),
        worst_index=worst,
        max_ulp=top,
        max_ulp_index=c[ULP_AT],
        max_ulp_real=v[REAL_ULP],
        ulp_histogram=tuple(counts[HISTOGRAM : HISTOGRAM + reach].tolist()),
        nmse=nmse,
        cosine=cosine,
        psnr=psnr,
        max_abs=v[MAX_ABS],
        max_abs_index=c[ABS_AT],
        max_rel=v[MAX_REL],
        max_rel_index=c[REL_AT],
        z=_z(v[SUM_Z], c[SIGMAS]) if scored else None,
        z_count=c[SIGMAS] if scored else 0,
        got_nonfinite=c[GOT_NONFINITE],
        want_nonfinite=c[WANT_NONFINITE],
    )


def _quality(v: list[float], pairs: int, *, sound: bool) -> tuple[float, float, float]:
    """nmse, cosine and psnr; never NaN (see Measured)."""
    ee, rr, yy, peak = v[SUM_EE], v[SUM_RR], v[SUM_YY], v[PEAK]
    if not sound:
        return math.inf, 0.0, -math.inf
    nmse = ee / rr if rr > 0 and ee < math.inf else math.inf if ee else 0.0
    norms = math.sqrt(rr) * math.sqrt(yy)
    cosine = min(max((0.5 * rr + 0.5 * yy - 0.5 * ee) / norms, -1.0), 1.0) if 0 < norms < math.inf else 0.0
    if rr == yy == 0 and not ee:
        cosine = 1.0
    psnr = -math.inf
    if ee == 0:
        psnr = math.inf
    elif peak > 0 and ee < math.inf:
        psnr = 20 * math.log10(peak) - 10 * (math.log10(ee) - math.log10(pairs))
    return nmse, cosine, psnr


def _z(total: float, count: int) -> float:
    z = math.sqrt(total / count) if count else 0.0
    return math.inf if math.isnan(z) else z
