"""The promise of an operation: its inputs, its reference, its error budget, its laws.

A contract file, oracles/contracts/<op>.py or a user's own anywhere, defines `CONTRACT`. The op's definition comes in
two functions:

    reference(**inputs, **attrs) -> {output: array}           obviously right, nothing else
    budget(Question) -> {output: Budget}                      how wrong each element may be before the final rounding

A reference gets floats one width up (float64 as longdouble, narrower ones as float64) and computes in that type; a
budget gets a `Question` with the inputs as they were and everything else it may depend on. Without a budget one is
estimated from the reference (oracles/numerics/estimate.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array, compute_format, compute_unit, format_of
from kernel_assay.corpus.model.base import Scalar
from kernel_assay.corpus.model.case import Case, Fill
from kernel_assay.corpus.model.findings import GroupOf
from kernel_assay.corpus.model.subject import EVERY, Numerics, TensorSpec
from kernel_assay.oracles.spec.axes import Attrs as Attrs  # noqa: PLC0414  contract files take both from here
from kernel_assay.oracles.spec.axes import Dims as Dims  # noqa: PLC0414
from kernel_assay.oracles.spec.axes import filled, is_packed, packed_format, shape_of, solve
from kernel_assay.oracles.spec.balls import Ball
from kernel_assay.oracles.spec.elsewhere import Elsewhere
from kernel_assay.oracles.spec.fidelity import Fidelity as Fidelity  # noqa: PLC0414

Reals = NDArray[np.float64]

INTERVAL, ZERO, PINF, NINF, NAN = 1, 2, 4, 8, 16
"""Bits of an accept mask: which classes of result are right for an element."""
ALL = INTERVAL | ZERO | PINF | NINF | NAN
"""The mask of an element that may be anything."""

OPEN_END = 1e4
"""How far a range with one end reaches: to this much beyond its end or beyond zero, whichever is farther."""


@dataclass(frozen=True, slots=True)
class Dim:
    """The range of one named dimension, inclusive, its multiples, and where most cases end (0: high)."""

    low: int = 0
    high: int = 4096
    multiple: int = 1
    usual: int = 0

    @property
    def least(self) -> int:
        """The smallest extent there is."""
        return -(-self.low // self.multiple) * self.multiple

    @property
    def most(self) -> int:
        """The largest extent that is tried in most cases."""
        end = min(self.high, self.usual) if 0 < self.usual >= self.least else self.high
        return end // self.multiple * self.multiple


@dataclass(frozen=True, slots=True)
class Input:
    """One input tensor."""

    axes: tuple[str, ...]
    """Names of dimensions, or products of them (oracles/spec/axes.py)."""
    below: str = ""
    """For indices: values are integers in [0, that dimension)."""
    upto: str = ""
    """For lengths: values are integers in [0, that dimension], the end included."""
    distributions: tuple[str, ...] = ()
    """Names it may be filled with; () means every one that suits its dtype."""
    layouts: tuple[str, ...] = ()
    """Names; () means all."""
    specials: bool = True
    """Whether NaN, Inf and friends may be sprinkled in."""
    scaled: bool = False
    """Whether its values may be scaled even if there are no specials."""
    low: float | None = None
    """All values are at least this, also when rounded to the dtype; of special values those in the range are drawn."""
    high: float | None = None
    """All values are at most this. With one end only, the other is OPEN_END away, or where the dtype ends."""
    structure: str = ""
    """Of the last two axes, which are alike: diagonal, lower, upper or symmetric, in every case."""
    inner: bool = True
    """Whether an input with a range is given small integers, and special values, that lie in it."""

    def __post_init__(self) -> None:
        """Raises UsageError for a range that has nothing in it or has no meaning."""
        ends = [end for end in (self.low, self.high) if end is not None]
        if not all(map(math.isfinite, ends)):
            raise UsageError(f"the range of an input must have finite ends, not {ends}; leave out an end that is open")
        if sorted(ends) != ends:
            raise UsageError(f"the range of an input is empty: low={self.low} is above high={self.high}")
        if ends and (self.below or self.upto or self.distributions not in {(), ("either",)}):
            raise UsageError("an input has either a range or `below` and distributions of its own, not both")

    @property
    def ranged(self) -> bool:
        """Whether all values must lie in [low, high]."""
        return self.low is not None or self.high is not None

    def holds(self, value: float) -> bool:
        """Whether a number lies in its range; without one, any does."""
        if not self.ranged:
            return True
        params = self.params({}, {})
        return params["low"] <= value <= params["high"]

    @property
    def counts(self) -> bool:
        """Whether its values are indices or lengths, which nobody computes with."""
        return bool(self.below or self.upto)

    @property
    def packed(self) -> bool:
        """Whether it holds packed blocks."""
        return bool(self.axes) and is_packed(self.axes[-1])

    def params(self, dims: Dims, attrs: Attrs) -> dict[str, int | float]:
        """Parameters of its fills: the range, where indices end, or how blocks are packed."""
        if self.counts:
            return {"below": dims[self.below] if self.below else dims[self.upto] + 1}
        if self.packed:
            form = packed_format(self.axes[-1], attrs)
            return {"block": form.size, "scales": form.scales}
        found: dict[str, int | float] = {self.structure: 1} if self.structure else {}
        if self.ranged:
            found["low"] = float(min(self.high or 0.0, 0.0) - OPEN_END if self.low is None else self.low)
            found["high"] = float(max(self.low or 0.0, 0.0) + OPEN_END if self.high is None else self.high)
        return found


@dataclass(frozen=True, slots=True)
class Output:
    """One output tensor."""

    axes: tuple[str, ...]
    like: str = ""
    """Has the dtype of this input, ..."""
    widened: str = ""
    """... but this one if that has only 8 bits..."""
    dtype: str = ""
    """... or this one; `{to}` is the value of the attribute `to`."""
    layouts: tuple[str, ...] = ("contiguous", "offset_one")
    """In what memory it may be wanted; a kernel is given dense memory."""
    views: tuple[str, ...] = ()
    """Inputs in whose memory it may lie."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """The effect of rounding to a type on a number: none, unless the type is narrower than the arithmetic."""

    unit: float = 0.0
    """Relative to the number; false: there is no such rounding."""
    half: float = 0.0
    """Half of the smallest step, absolutely."""
    top: float = math.inf
    """The largest number there is."""

    def __bool__(self) -> bool:
        """Whether anything is rounded."""
        return self.unit > 0.0

    def of(self, x: Reals, times: float = 1.0) -> Reals:
        """The error of some numbers that are rounded so often."""
        return times * (self.unit * np.abs(x) + self.half)


@dataclass(frozen=True)
class Question:
    """The question that was asked, as the budget sees it."""

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
    as_wide: bool = False
    """The reference computed in float64 for a float64 subject, and is as wrong as that may be."""
    made: dict[Callable[[Question], Any], Any] = field(default_factory=dict, compare=False, repr=False)
    """See `once`; shared by the questions about one case."""

    @cached_property
    def u(self) -> float:
        """Unit roundoff of the arithmetic: 2**-53 for float64 inputs, else 2**-24."""
        return compute_unit(self.case.dtype)

    @cached_property
    def tiny(self) -> float:
        """Smallest normal number of the arithmetic, 0 if the subject does not flush subnormals."""
        if not self.numerics.ftz:
            return 0.0
        return 2.0**-1022 if self.case.dtype == "float64" else 2.0**-126

    def rounding(self, name: str, *, alone: bool = False) -> Rounding:
        """That of a named intermediate result, claimed by its name or (not alone) as one of all (numerics.md 2.4)."""
        said = self.numerics.intermediate(name, self.case.dtype, alone=alone)
        fmt = format_of(said) if said else None
        narrow = fmt is not None and fmt.is_float and fmt.unit > self.u
        return Rounding(fmt.unit, fmt.eta / 2.0, fmt.max) if fmt is not None and narrow else Rounding()

    @cached_property
    def every(self) -> Rounding:
        """The rounding of every operation's result."""
        return self.rounding(EVERY)

    @property
    def least(self) -> float:
        """Error of a result near 0: the smallest normal number if subnormals are flushed, else the smallest."""
        return self.tiny or compute_format(self.case.dtype).eta

    def once(self, make: Callable[[Question], Any]) -> Any:
        """What a function makes of the question, which depends on no arithmetic and is made once for all of them."""
        return self.made[make] if make in self.made else self.made.setdefault(make, make(self))

    def real(self, name: str) -> Reals:
        """An input as float64."""
        with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
            return np.asarray(self.inputs[name], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for the distance of each element of one output from the reference. Everything broadcasts to its shape."""

    error: Reals | float
    """E: bound on the error before the one final rounding; 0 demands the correctly rounded value."""
    accept: NDArray[np.uint8] | None = None
    """Accept masks; None: INTERVAL where the reference is finite, else exactly its own class."""
    sigma: Reals | float | None = None
    """Expected deviation of the internal error; None: the Z statistic is not used."""
    bitwise: bool = False
    """The output must equal `bits_of` bit for bit, NaN payloads and signs of zero included (copies)."""
    signed: bool = False
    """A zero must have the sign of the reference, which may round to it."""
    rows: int = 1
    """Number of independent groups of errors, for the Z line."""
    estimated: bool = False
    """Not derived by a person, but estimated from the reference (numerics.md 6)."""
    instead: tuple[str, ...] = ()
    """Forms that an estimate has followed instead of the reference's own, where that cancels."""

    def settled(self, want: Reals) -> Reals:
        """The reference, but 0 where it is NaN or Inf and anything is right: no number is near those."""
        if self.accept is None or np.isfinite(want).all():
            return want
        return np.where((self.accept == ALL) & ~np.isfinite(want), 0.0, want)

    def column(self, index: int) -> Budget:
        """The budget of one column, of that of a matrix."""
        accept = None if self.accept is None else self.accept[:, index]
        sigma = self.sigma[:, index] if isinstance(self.sigma, np.ndarray) else self.sigma
        return replace(self, error=np.asarray(self.error)[:, index], accept=accept, sigma=sigma)


View = tuple[slice, ...]
"""A part of an output: one slice an axis, from the first on; () is all of it."""


@dataclass(frozen=True, slots=True)
class Law:
    """A relation between two runs of the same subject that needs no oracle.

    transform changes a case through its recipe: scales, shifts, cuts or reverses tensors, or changes attributes (None:
    the law does not apply to it). The second run's outputs must then be those of the first (of which `view` says which
    part, in which order), times a power of two or -1, equal bit for bit wherever both are normal numbers.
    """

    name: str
    transform: Callable[[Case], Case | None]
    factor: float = 1.0
    """Of the outputs."""
    view: Callable[[Case], View] | None = None
    """What of the first run's outputs, from the first case; None: all of it."""
    within: float = 0.0
    """Not bit for bit: the two may be that many error budgets apart, and the rounding of both. 2 is what two right
    results may be, of a library that may take another path for another shape or order."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Elements of an output that belong together, in groups of `count`."""

    starts: NDArray[np.int64]
    """The flat index (C order) of each group's first element; an array of any shape, whose indices name the groups."""
    step: int
    """From one element of a group to the next."""
    count: int
    wanted: Reals | float
    """What each group must give, exactly."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """A law without a pair: one run's output must keep it, element errors and rounding granted.

    Silent about groups with an element that may be other than a number.
    """

    name: str
    of: GroupOf
    """What elements that belong together give."""
    each: str
    """What such a group is called."""
    groups: Callable[[Question], Groups | None]
    """None: this case has none."""
    output: str = "out"


@dataclass(frozen=True, slots=True)
class Domain:
    """All 2**32 inputs of an op, or pairs of them, that a GPU can be tried on: `prove --device cuda`."""

    dtype: str
    """The dtype of all inputs."""
    fills: Mapping[str, Mapping[str, int]]
    """Input -> parameters of the distribution `every_bits`."""
    kernel: str
    """The kernel of oracles/device/sweep.cu that judges a part."""
    attrs: Mapping[str, Scalar] = field(default_factory=dict)


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
    intermediates: Mapping[str, str] = field(default_factory=dict)
    """Intermediate results that a subject may say it rounds to a narrower type: name -> what it is."""
    optional: tuple[str, ...] = ()
    """Attributes that a kernel need not take (one without is tried with the plainest value only), and inputs that a
    case need not have; those a kernel is given by name."""
    together: tuple[tuple[str, ...], ...] = ()
    """Optional inputs of which a case has all or none."""
    reference: Callable[..., Mapping[str, Reals]]
    budget: Callable[[Question], Mapping[str, Budget]] | None = None
    """None: estimated from the reference, or every bit if the op has `copies`."""
    element: Callable[[Mapping[str, Array], Attrs, tuple[int, ...]], Ball] | None = None
    """One element of the only output in ball arithmetic, from inputs, attributes and its index: the formula as it is
    written on paper, with plain loops, independent of `reference`. Close calls are decided by it (numerics.md 7)."""
    factor: float = 2.0
    """Of an estimated budget, without unit: how many times the error of the reference's own formula a kernel may make
    that computes the same in another way."""
    copies: Callable[..., Mapping[str, Array]] | None = None
    """For ops that only move bits: the exact output in its own dtype (used with Budget.bitwise)."""
    choices: Callable[[Mapping[str, Array], Mapping[str, Array], Attrs], Mapping[str, NDArray[np.bool_]]] | None = None
    """For ops with several right answers, as the index of a maximum: from outputs, inputs and attributes, where an
    output is one of them. The reference gives one for the places where it is not."""
    fidelity: Fidelity | None = None
    """For ops that lose something by design, as quantizers do."""
    laws: tuple[Law | Invariant, ...] = ()
    probe: Callable[[Dims, Mapping[str, str]], Mapping[str, Fill]] | None = None
    """Fills for which every intermediate is exactly representable whatever the order (numerics.md 4), from the dims
    and the dtypes; inputs it does not name keep an exact distribution of their own."""
    elementwise: bool = False
    """Each element of an output depends on the one at its place in the only input (of packed blocks, on that quant and
    its block's scales): all inputs can be counted out."""
    domains: tuple[Domain, ...] = ()
    """Inputs that can be counted out on a GPU, besides those of a narrow type of an elementwise op."""
    product: Literal["", "real", "integer"] = ""
    """For alpha * a @ b + beta * c, whose rows are checked by their sums (oracles/large/freivalds.py): of what numbers;
    integers wrap at 32 bits."""
    on_device: str = ""
    """The formula by which a device computes `out` in float64 for large cases, as `rows.SILU` of oracles/device/."""
    separable: tuple[str, ...] = ()
    """Dims along which each index of the outputs needs of the inputs its own index only, and all of those without that
    dim: a large case is judged by a few of them (oracles/large/sampled.py)."""
    placed: Mapping[str, Callable[[Attrs, int, int], Attrs]] = field(default_factory=dict)
    """For those of them whose index the op computes with: the attributes of a part in one piece, from those of the
    whole, how many indices stand before the piece, and how many behind it."""
    max_elements: int = 1 << 16
    """Of the largest tensor of a case in a campaign of small shapes."""
    work: Callable[[Dims], int] | None = None
    """Multiplications of a case; kept below 2**24 so that a slow subject does not stall the search."""
    shapes: tuple[Dims, ...] = ()
    """Extents that its author names: the first cases have them, with plain values."""
    origin: str = ""
    """The file of a user's own, or where a user's reference is; '' for a built-in one."""
    elsewhere: Elsewhere | None = None
    """Who answers for the reference, and what its outputs' shapes are, if it runs in a process of its own."""

    @property
    def estimated(self) -> bool:
        """Whether its budgets are estimated from the reference."""
        return self.budget is None and self.copies is None

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Dtypes of the first input, plainest first."""
        return tuple(dict.fromkeys(next(iter(variant.values())) for variant in self.variants))

    @property
    def axes(self) -> list[tuple[str, ...]]:
        """Axes of all tensors, inputs first."""
        return [*(i.axes for i in self.inputs.values()), *(o.axes for o in self.outputs.values())]

    def group(self, name: str) -> tuple[str, ...]:
        """An optional input and those that a case has together with it."""
        return next((names for names in self.together if name in names), (name,))

    def narrowed(
        self, unused: Collection[str], needed: Collection[str], layouts: Mapping[str, tuple[str, ...]]
    ) -> Contract:
        """The contract without what nobody takes: optional attributes and inputs, layouts; and with what all need."""
        gone = set(self.optional) & set(unused)
        inputs = {name: replace(i, layouts=layouts.get(name, i.layouts)) for name, i in self.inputs.items()}
        return replace(
            self,
            inputs={name: spec for name, spec in inputs.items() if name not in gone},
            attrs={name: values[:1] if name in gone else values for name, values in self.attrs.items()},
            optional=tuple(name for name in self.optional if name not in {*gone, *needed}),
        )

    def check(self, case: Case) -> None:
        """Raises UsageError for a case the op cannot have: other inputs or attributes, or shapes that do not fit."""
        for what, mine, theirs in (("inputs", self.inputs, case.tensors), ("attributes", self.attrs, case.attrs)):
            if (set(mine) - set(self.optional)) - set(theirs) or set(theirs) - set(mine):
                names = (", ".join(some) or "none" for some in (mine, theirs))
                raise UsageError(f"the {what} of {self.name} are {{}}, but those of the case are {{}}".format(*names))
        for group in self.together:
            if len({name in case.tensors for name in group}) == 2:
                raise UsageError(f"a case of {self.name} has all of {', '.join(group)} or none of them")
        dtypes = {name: t.dtype for name, t in case.tensors.items()}
        if all(dtypes != {name: variant[name] for name in dtypes} for variant in self.variants):
            raise UsageError(f"{self.name} does not take {', '.join(f'{n} as {t}' for n, t in dtypes.items())}")
        for axis in (axis for axes in self.axes for axis in axes if is_packed(axis)):
            packed_format(axis, self.attrs_of(case))
        for spec in self.output_specs(case).values():
            format_of(spec.dtype)
        for name, layout in case.outputs.items():
            if name not in self.outputs or layout not in self.outputs[name].layouts:
                raise UsageError(f"no output of {self.name} is called {name} and can be {layout}")

    def attrs_of(self, case: Case) -> Attrs:
        """The attributes of a case; one that it leaves out has its plainest value."""
        return {**{name: self.attrs[name][0] for name in self.optional if name in self.attrs}, **case.attrs}

    def dims_of(self, case: Case) -> dict[str, int]:
        """The value of every dimension, read from the shapes. Raises UsageError if shapes contradict one another."""
        extents: list[tuple[str, int]] = []
        attrs = self.attrs_of(case)
        for name, recipe in case.tensors.items():
            if len(recipe.shape) != len(self.inputs[name].axes):
                raise self._misfit(case, name)
            extents += zip([filled(axis, attrs) for axis in self.inputs[name].axes], recipe.shape, strict=True)
        found = solve(tuple(extents))
        if found is None:
            raise self._misfit(case, next(name for n, name in enumerate(case.tensors, 1) if not self._fit(case, n)))
        return dict(found)

    def _fit(self, case: Case, first: int) -> bool:
        """Whether the first so many tensors agree with one another."""
        some, attrs = list(case.tensors.items())[:first], self.attrs_of(case)
        axes = ((filled(a, attrs), e) for n, t in some for a, e in zip(self.inputs[n].axes, t.shape, strict=True))
        return solve(tuple(axes)) is not None

    def _misfit(self, case: Case, name: str) -> UsageError:
        shape, axes = case.tensors[name].shape, ", ".join(self.inputs[name].axes)
        return UsageError(f"{name} has shape {shape}, which does not fit the axes ({axes}) of {self.name}")

    def output_specs(self, case: Case) -> dict[str, TensorSpec]:
        """Shape, dtype and layout of every output of a case. Raises OutsideError as Elsewhere does."""
        dims, attrs, layouts = self.dims_of(case), self.attrs_of(case), case.outputs
        shapes = self.elsewhere.shapes(case) if self.elsewhere else {}
        return {
            name: TensorSpec.trusted(
                shape=shapes[name] if shapes else shape_of(out.axes, dims, attrs),
                dtype=self._output_dtype(out, case),
                layout=layouts.get(name, "contiguous"),
            )
            for name, out in self.outputs.items()
        }

    def _output_dtype(self, out: Output, case: Case) -> str:
        dtype = case.tensors[out.like].dtype if out.like else out.dtype.format(**self.attrs_of(case))
        return out.widened if out.like and out.widened and format_of(dtype).bits == 8 else dtype
