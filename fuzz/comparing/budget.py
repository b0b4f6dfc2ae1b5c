"""Outputs in files under the error budget of their op, which is derived from the inputs that lie beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.materialize import Tensors
from kernel_assay.corpus.model.base import Scalar
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.checking.selection import can_claim
from kernel_assay.fuzz.comparing.distance import Side, distance
from kernel_assay.fuzz.comparing.files import Named
from kernel_assay.fuzz.comparing.result import Compared, Distance
from kernel_assay.fuzz.comparing.tensors import PIECE, Tensor
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.judge import judge
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.large.parts import Part, tiles
from kernel_assay.oracles.large.sampled import judge_form, moved
from kernel_assay.oracles.spec.contract import Contract

_MOST = 1 << 28
"""Elements of all inputs and outputs, which are in memory; what is computed of them is made in parts."""
_UNKNOWN = Fill(distribution="raw_bits")
"""Values of which nothing is known: no bound may count on their being independent, or exact."""


def judged(op: str, attrs: Sequence[str], numerics: Numerics, a: Named, b: Named) -> list[Compared]:
    """Judge the outputs of an op in B, and those in A if there are any, for the inputs that lie beside them.

    attrs: `NAME=VALUE`. Raises UsageError if something is missing, or is none of the op's.
    """
    contract = contract_of(op)
    can_claim(contract, numerics)
    if contract.elsewhere is not None:
        raise UsageError(
            f"{op} is a reference of yours, which answers for its own cases only; name an op with a contract"
        )
    if len(b) == len(contract.outputs) == 1:
        b = dict(zip(contract.outputs, b.values(), strict=True))
    _check_names(contract, a, b)
    inputs = _inputs(contract, a, b)
    case = _case(contract, attrs, inputs, {**b, **a})
    sides = [
        _Outputs(contract, case, Subject(op=op, name=who, backend="numpy", numerics=numerics), side)
        for who, side in (("A", a), ("B", b))
        if next(iter(contract.outputs)) in side
    ]
    truth = {name: np.zeros(spec.shape) for name, spec in contract.output_specs(case).items()}
    for part in tiles(contract, case):
        reference = Reference(contract, part.case, part.of(inputs))
        for name, want in reference.want.items():
            truth[name][_place(part, name, want.shape)] = want
        for side in sides:
            side.judge(part, reference)
    return [_compared(name, want, sides) for name, want in truth.items()]


def _check_names(contract: Contract, a: Named, b: Named) -> None:
    """Refuse files in which something of the op is missing, or more than belongs to it, and what is too large."""
    needed = ", ".join(f"[{name}]" if name in contract.optional else name for name in contract.inputs)
    outputs = ", ".join(contract.outputs)
    wanted = f"{contract.name} takes {needed} and gives {outputs}"
    lost = [
        f"{name} is in neither file"
        for name in contract.inputs
        if name not in {**a, **b, **dict.fromkeys(contract.optional)}
    ]
    lost += [f"{name} is not in B" for name in contract.outputs if name not in b]
    lost += [
        f"{name} is not in A, but another output is"
        for name in contract.outputs
        if name not in a and set(a) & set(contract.outputs)
    ]
    lost += [f"{name} is none of them" for name in {**a, **b} if name not in {**contract.inputs, **contract.outputs}]
    if lost:
        raise UsageError(f"{wanted}: {lost[0]}")
    if (size := sum(tensor.size for side in (a, b) for tensor, _ in side.values())) > _MOST:
        raise UsageError(f"{size:,} elements are too many to derive a budget for; up to {_MOST:,} can be")


def _inputs(contract: Contract, a: Named, b: Named) -> Tensors:
    """The inputs, which must be the same ones if both files have them."""
    found: Tensors = {}
    for side in (a, b):
        for name in (name for name in contract.inputs if name in side):
            values = _whole(contract, contract.inputs[name].axes, side[name])
            known = found.setdefault(name, values)
            if (values.shape, values.tobytes()) != (known.shape, known.tobytes()):
                raise UsageError(f"{name} is another one in B than in A; a budget holds for one and the same input")
    return {name: found[name] for name in contract.inputs if name in found}


def _whole(contract: Contract, axes: Sequence[str], one: tuple[Tensor, str]) -> Array:
    """All of a tensor. More axes than the op has are its first one, if what lies along that has no part in the rest."""
    tensor, shape = one[0], one[0].shape
    side, values = Side(*one), np.empty(tensor.size, tensor.format.dtype)
    for low, high in tensor.spans(PIECE):
        values[low:high] = side.part(low, high)
    more = len(shape) - len(axes)
    if more >= -1 and axes and axes[0] in set(contract.separable) - set(contract.placed):
        shape = (math.prod(shape[: more + 1]), *shape[more + 1 :])
    return values.reshape(shape)


def _case(contract: Contract, attrs: Sequence[str], inputs: Tensors, files: Named) -> Case:
    """The inputs as a case. Raises UsageError for shapes, types, values and attributes that the op does not take."""
    recipes = {n: TensorRecipe(shape=x.shape, dtype=files[n][0].dtype, fill=_UNKNOWN) for n, x in inputs.items()}
    given = dict(_attribute(contract, text) for text in attrs)
    if lost := [name for name in contract.attrs if name not in {**given, **dict.fromkeys(contract.optional)}]:
        usual = contract.attrs[lost[0]][0]
        raise UsageError(f"{contract.name} has an attribute {lost[0]}; say which, as in --attr {lost[0]}={usual}")
    case = Case(op=contract.name, tensors=recipes, attrs=given)
    contract.check(case)
    dims, said = contract.dims_of(case), contract.attrs_of(case)
    for name, values in inputs.items():
        range_ = contract.inputs[name].params(dims, said)
        low, high = (
            (0, range_["below"] - 1)
            if "below" in range_
            else (range_.get("low", -math.inf), range_.get("high", math.inf))
        )
        if (low, high) != (-math.inf, math.inf) and not ((values >= low) & (values <= high)).all():
            raise UsageError(f"{name} has elements outside of {low:g} to {high:g}, which {contract.name} does not take")
    return case


def _attribute(contract: Contract, text: str) -> tuple[str, Scalar]:
    """A name and its value: one of those that the op is tried with, or another number of that kind."""
    name, _, written = text.partition("=")
    if name not in contract.attrs:
        names = ", ".join(contract.attrs) or "none"
        raise UsageError(f"{text!r} is no attribute of {contract.name} as NAME=VALUE; it has {names}")
    tried = {str(value).lower(): value for value in contract.attrs[name]}
    if written.lower() in tried:
        return name, tried[written.lower()]
    in_shapes = any(f"{{{name}}}" in axis for axes in contract.axes for axis in axes)
    kind = str if in_shapes else type(contract.attrs[name][0])
    try:
        number = kind(written) if kind in {int, float} else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        what = {int: "a whole number", float: "a number"}.get(kind) or f"one of {', '.join(tried)}"
        raise UsageError(f"--attr {name} must be {what}, not {written!r}")
    return name, number


class _Outputs:
    """The outputs of one side, and what the oracle says of them."""

    def __init__(self, contract: Contract, case: Case, subject: Subject, files: Named) -> None:
        self.files = {name: files[name] for name in contract.outputs}
        self.arrays = {n: _whole(contract, contract.outputs[n].axes, one) for n, one in self.files.items()}
        self._subject = subject
        form = [OutputReport(name=n, shape=x.shape, dtype=self.files[n][0].dtype) for n, x in self.arrays.items()]
        self._ran = Execution(status=Status.OK, subject=subject.key)
        self._form = judge_form(contract, case, subject, self._ran.but(outputs=tuple(form)), self.arrays)
        self._verdicts: list[Verdict] = []

    def judge(self, part: Part, reference: Reference) -> None:
        """Judge the values of a part."""
        if self._form is not None:
            return
        verdict = judge(reference, self._subject, self._ran, part.of(self.arrays))
        if verdict.kind is not Kind.PASS and part.axes[verdict.output]:
            verdict = verdict.but(message=f"{moved(verdict.message, part, verdict.output)}, in one part of it")
        self._verdicts.append(verdict)

    @property
    def verdict(self) -> Verdict:
        """The verdict on all of it: that on the worst part."""
        return self._form or max(self._verdicts, key=lambda v: (v.failed, v.kind is not Kind.PASS, v.rho))

    def trouble(self, name: str) -> str:
        """Words for what is wrong with an output; the oracle names the first that fails, and looks no further."""
        v = self.verdict
        if v.kind is Kind.PASS:
            return ""
        return f"{v.kind.value}: {v.message}" if v.output in {"", name} else f"not judged, for {v.output} fails"

    def distance(self, name: str, want: Array) -> Distance | None:
        """How far an output is from the formula's answer; None if it has another shape."""
        if want.shape != self.arrays[name].shape:
            return None
        tensor, file = self.files[name]
        kind = tensor.format if not tensor.format.is_float else format_of("float64")
        flat = want.reshape(-1).astype(kind.dtype, copy=False)
        return distance(
            Side(Tensor(name, tensor.shape, kind.name, lambda low, high: flat[low:high]), file), Side(tensor, file)
        )

    @property
    def rho(self) -> float | None:
        """How much of the budget is used, if it is values that were judged."""
        return self.verdict.rho if self.verdict.kind in {Kind.PASS, Kind.MISMATCH, Kind.INCONCLUSIVE} else None


def _place(part: Part, name: str, shape: tuple[int, ...]) -> tuple[Array, ...]:
    """The places in the whole of an output's part."""
    return np.ix_(*(part.axes[name].get(axis, np.arange(n)) for axis, n in enumerate(shape)))


def _compared(name: str, want: Array, sides: Sequence[_Outputs]) -> Compared:
    """All that is known of an output; want: the formula's answer."""
    b, a = sides[-1], sides[0] if len(sides) > 1 else None
    tensor = b.files[name][0]
    return Compared(
        name=name,
        shape=tensor.shape,
        dtypes=((a or b).files[name][0].dtype, tensor.dtype),
        elements=tensor.size,
        trouble=b.trouble(name),
        distance=b.distance(name, want),
        baseline=a.distance(name, want) if a else None,
        rho=b.rho,
        baseline_rho=a.rho if a else None,
        baseline_trouble=a.trouble(name) if a else "",
    )
