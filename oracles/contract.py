"""What an operation promises: its inputs, its reference, its error budget, its laws.

A contract file, oracles/contracts/<op>.py or a user's own anywhere, defines `CONTRACT`. The op's definition comes in
two functions:

    reference(**inputs, **attrs) -> {output: array}           obviously right, nothing else
    budget(Question) -> {output: Budget}                      how wrong each element may be before the final rounding

A reference gets floats one width up (float64 as longdouble, narrower ones as float64) and computes in that type; a
budget gets a `Question` with the inputs as they were and everything else it may depend on. Without a budget one is
estimated from the reference (oracles/estimate.py).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from corpus.errors import UsageError
from corpus.formats import Array, compute_unit, format_of
from corpus.record import Scalar
from corpus.records import Case, Fill, Numerics, TensorSpec

Reals = NDArray[np.float64]
Dims = Mapping[str, int]
Attrs = Mapping[str, Scalar]

INTERVAL, ZERO, PINF, NINF, NAN = 1, 2, 4, 8, 16
"""Bits of an accept mask: which classes of result are right for an element."""

OPEN_END = 1e4
"""How far a range with one end reaches: to this much beyond its end or beyond zero, whichever is farther."""


@dataclass(frozen=True, slots=True)
class Dim:
    """The range of one named dimension, inclusive, and what it should be a multiple of."""

    low: int = 0
    high: int = 4096
    multiple: int = 1


@dataclass(frozen=True, slots=True)
class Input:
    """One input tensor."""

    axes: tuple[str, ...]
    """Names of dimensions; `half*2` is twice the dimension half."""
    below: str = ""
    """For indices: values are integers in [0, that dimension)."""
    distributions: tuple[str, ...] = ()
    """Names it may be filled with; () means every one that suits its dtype."""
    layouts: tuple[str, ...] = ()
    """Names; () means all."""
    specials: bool = True
    """Whether NaN, Inf and friends may be sprinkled in."""
    low: float | None = None
    """All values are at least this, also when rounded to the dtype; a range excludes specials and distributions."""
    high: float | None = None
    """All values are at most this. With one end only, the other is OPEN_END away, or where the dtype ends."""

    def __post_init__(self) -> None:
        """Raises UsageError for a range that has nothing in it or has no meaning."""
        ends = [end for end in (self.low, self.high) if end is not None]
        if not all(map(math.isfinite, ends)):
            raise UsageError(f"the range of an input must have finite ends, not {ends}; leave out an end that is open")
        if sorted(ends) != ends:
            raise UsageError(f"the range of an input is empty: low={self.low} is above high={self.high}")
        if ends and (self.below or self.distributions):
            raise UsageError("an input has either a range or `below` and distributions of its own, not both")

    @property
    def ranged(self) -> bool:
        """Whether all values must lie in [low, high]."""
        return self.low is not None or self.high is not None

    def params(self, dims: Dims) -> dict[str, int | float]:
        """What its fills are told: the range, or where indices end."""
        if self.below:
            return {"below": dims[self.below]}
        if not self.ranged:
            return {}
        low = min(self.high or 0.0, 0.0) - OPEN_END if self.low is None else self.low
        high = max(self.low or 0.0, 0.0) + OPEN_END if self.high is None else self.high
        return {"low": float(low), "high": float(high)}


@dataclass(frozen=True, slots=True)
class Output:
    """One output tensor."""

    axes: tuple[str, ...]
    like: str = ""
    """Has the dtype of this input..."""
    dtype: str = ""
    """... or this one; `{to}` is the value of the attribute `to`."""


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked, as the budget sees it."""

    case: Case
    inputs: Mapping[str, Array]
    attrs: Attrs
    want: Mapping[str, Reals]
    """The reference's answer."""
    numerics: Numerics = field(default_factory=Numerics)
    iid: bool = False
    """All inputs are independent draws: bounds for sums of random terms (2.1 `exch`) may be used."""
    exact: bool = False
    """All inputs are exact-probe distributions: the budget may find that no rounding can happen at all."""

    @property
    def u(self) -> float:
        """Unit roundoff of the arithmetic: 2**-53 for float64 inputs, else 2**-24."""
        return compute_unit(self.case.dtype)

    @property
    def tiny(self) -> float:
        """Smallest normal number of the arithmetic, 0 if the subject does not flush subnormals."""
        if not self.numerics.ftz:
            return 0.0
        return 2.0**-1022 if self.case.dtype == "float64" else 2.0**-126

    def real(self, name: str) -> Reals:
        """An input as float64."""
        return np.asarray(self.inputs[name], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Budget:
    """How far each element of one output may be from the reference. Everything broadcasts to the output's shape."""

    error: Reals | float
    """E: bound on the error before the one final rounding; 0 demands the correctly rounded value."""
    accept: NDArray[np.uint8] | None = None
    """Accept masks; None: INTERVAL where the reference is finite, else exactly its own class."""
    sigma: Reals | float | None = None
    """Expected deviation of the internal error; None: the Z statistic is not used."""
    bitwise: bool = False
    """The output must equal `bits_of` bit for bit, NaN payloads and signs of zero included (copies)."""
    rows: int = 1
    """Number of independent groups of errors, for the Z line."""
    estimated: bool = False
    """Not derived by a person, but estimated from the reference (numerics.md 6)."""

    def column(self, index: int) -> "Budget":
        """The budget of one column, of that of a matrix."""
        accept = None if self.accept is None else self.accept[:, index]
        sigma = self.sigma[:, index] if isinstance(self.sigma, np.ndarray) else self.sigma
        return replace(self, error=np.asarray(self.error)[:, index], accept=accept, sigma=sigma)


@dataclass(frozen=True, slots=True)
class Law:
    """A relation between two runs of the same subject that needs no oracle.

    transform changes a case (through its recipe) and says by which factor every output must change; the outputs must
    then be equal bit for bit after multiplying with that power of two (or -1), wherever both are normal numbers.
    None: the law does not apply to this case.
    """

    name: str
    transform: Callable[[Case], Case | None]
    factor: float = 1.0
    """Of the outputs."""
    shift: float = 0.0
    """What the transformation adds to every value of the tensors it changes."""


@dataclass(frozen=True, kw_only=True)
class Contract:
    """The specification of one op."""

    name: str
    summary: str
    dims: Mapping[str, Dim]
    inputs: Mapping[str, Input]
    outputs: Mapping[str, Output]
    variants: tuple[Mapping[str, str], ...]
    """Admitted combinations of input dtypes, plainest first: {input: dtype}."""
    attrs: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    """Values each attribute is tried with, plainest first."""
    optional: tuple[str, ...] = ()
    """Attributes that a kernel need not take; one without is tried with the plainest value only."""
    reference: Callable[..., Mapping[str, Reals]]
    budget: Callable[[Question], Mapping[str, Budget]] | None = None
    """None: estimated from the reference, or every bit if the op has `copies`."""
    factor: float = 2.0
    """Of an estimated budget, without unit: how many times the error of the reference's own formula a kernel may make
    that computes the same in another way."""
    copies: Callable[..., Mapping[str, Array]] | None = None
    """For ops that only move bits: the exact output in its own dtype (used with Budget.bitwise)."""
    choices: Callable[[Mapping[str, Array], Mapping[str, Array], Attrs], Mapping[str, NDArray[np.bool_]]] | None = None
    """For ops with several right answers, as the index of a maximum: from outputs, inputs and attributes, where an
    output is one of them. The reference gives one for the places where it is not."""
    laws: tuple[Law, ...] = ()
    probe: Callable[[Dims, Mapping[str, str]], Mapping[str, Fill]] | None = None
    """Fills for which every intermediate is exactly representable whatever the order (numerics.md 4), from the dims
    and the dtypes; inputs it does not name keep an exact distribution of their own."""
    elementwise: bool = False
    """Each element of an output depends on the one at its place in the only input: all inputs can be counted out."""
    max_elements: int = 1 << 16
    """Of the largest tensor of a case in a campaign of small shapes."""
    work: Callable[[Dims], int] | None = None
    """Multiplications of a case; kept below 2**24 so that a slow subject does not stall the search."""
    origin: str = ""
    """The file of a user's own; '' for the house's."""

    @property
    def estimated(self) -> bool:
        """Whether its budgets are estimated from the reference."""
        return self.budget is None and self.copies is None

    def check(self, case: Case) -> None:
        """Raises UsageError for a case the op cannot have: other inputs or attributes, or shapes that do not fit."""
        for what, mine, theirs in (("inputs", self.inputs, case.tensors), ("attributes", self.attrs, case.attrs)):
            if (set(mine) ^ set(theirs)) - set(self.optional):
                names = (", ".join(some) or "none" for some in (mine, theirs))
                raise UsageError(f"the {what} of {self.name} are {{}}, but those of the case are {{}}".format(*names))
        dtypes = {name: case.tensors[name].dtype for name in self.inputs}
        if all(dtypes != dict(variant) for variant in self.variants):
            raise UsageError(f"{self.name} does not take {', '.join(f'{n} as {t}' for n, t in dtypes.items())}")
        for spec in self.output_specs(case).values():
            format_of(spec.dtype)

    def dims_of(self, case: Case) -> dict[str, int]:
        """The value of every dimension, read from the shapes. Raises UsageError if shapes contradict one another."""
        found: dict[str, int] = {}
        for name, spec in self.inputs.items():
            shape = case.tensors[name].shape
            fits = len(shape) == len(spec.axes)
            for axis, extent in zip(spec.axes, shape, strict=False):
                dim, factor = parse_axis(axis)
                value, rest = divmod(extent, factor)
                fits = fits and not rest and found.setdefault(dim, value) == value
            if not fits:
                axes = ", ".join(spec.axes)
                raise UsageError(f"{name} has shape {shape}, which does not fit the axes ({axes}) of {self.name}")
        return found

    def output_specs(self, case: Case) -> dict[str, TensorSpec]:
        """Shape and dtype of every output of a case."""
        dims = self.dims_of(case)
        return {
            name: TensorSpec(shape=shape_of(out.axes, dims), dtype=self._output_dtype(out, case))
            for name, out in self.outputs.items()
        }

    def _output_dtype(self, out: Output, case: Case) -> str:
        if out.like:
            return case.tensors[out.like].dtype
        return out.dtype.format(**case.attrs)


@cache
def parse_axis(axis: str) -> tuple[str, int]:
    """`half*2` -> ("half", 2)."""
    dim, _, factor = axis.partition("*")
    return dim, int(factor or 1)


def shape_of(axes: tuple[str, ...], dims: Dims) -> tuple[int, ...]:
    """The shape that axes have for given dims."""
    return tuple([dims[d] * f for d, f in map(parse_axis, axes)])  # a list is built faster than a generator runs
