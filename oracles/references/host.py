"""A user's reference in its process: run in float64 for the exact answer, followed for how wrong a kernel may be."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS, Array, format_of
from kernel_assay.corpus.inputs.arguments import AFTER, Argument, argued
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.reference_place import Target
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.process.import_limit import call_limit
from kernel_assay.corpus.process.recorded_operators import Operators, recorded
from kernel_assay.oracles.numerics.estimate import input_of, spans_of
from kernel_assay.oracles.numerics.following.interval_array import Followed
from kernel_assay.oracles.numerics.following.intervals import Arithmetic, Span, freed
from kernel_assay.oracles.references import rough
from kernel_assay.oracles.references.contract import contract_from
from kernel_assay.oracles.references.describing import describe
from kernel_assay.oracles.references.description import Described, Tensor, random_tensor
from kernel_assay.oracles.references.gradients import Derived
from kernel_assay.oracles.references.loading import Loaded, UnfitError, load, said_of
from kernel_assay.oracles.references.output_dtypes import OutputDtypes, asked
from kernel_assay.oracles.references.probing import learn_multiples
from kernel_assay.oracles.spec.axes import shape_of, solve
from kernel_assay.oracles.spec.contract import Contract, Dim, Question
from kernel_assay.oracles.spec.plain_case import plain_case

EXTENTS = (8, 16, 12, 32, 64, 60, 1, 128)
"""Extents of all dimensions that are tried where the reference refuses the first."""
_OF_NUMPY = {"float16", "float32", "float64"}
MOST_NAMED = 8
"""Reasons that are named."""


class Refused(Exception):  # noqa: N818  what happened, not an error of ours
    """The reference does not take these inputs."""


class Host:
    """One reference."""

    def __init__(self, place: str, folder: str, memory: int) -> None:
        """memory: a file that numbers are left in. Raises UsageError."""
        self.memory, self._process = memory, os.getpid()
        self.loaded: Loaded = load(place, Path(folder))
        self.unfollowed: set[str] = set()
        self._begun = False
        self._given: dict[str, Any] = {}
        """Of the last call, what the reference was given."""
        self.views: dict[str, list[str]] = {}
        self._positions: dict[str, tuple[int, Array, Array]] = {}
        self.derived: Derived | None = None
        """The maker of its gradient, if that is asked for."""
        self.unjudged = 0
        """Elements of the last answer that are not judged, of a gradient."""
        self.dtypes = OutputDtypes()
        self.described = describe(self.loaded, self._tried)
        self.outputs = self._outputs()
        if Target.read(place).grad:
            self._derive()
        self.contract: Contract = contract_from("op", self.message(), self._numpy)
        self._follow_once()

    def _derive(self) -> None:
        """Go on with the gradient. Raises UsageError."""
        derived = Derived(self.loaded, self.described, self.outputs, self._evaluated, self._tensor)
        self.outputs, self.views, self.derived = derived.outputs, {}, derived
        of = derived.gradient.cotangents
        self.dtypes.fixed = {of[name] for name in self.dtypes.fixed & of.keys()}

    def message(self) -> Message:
        """The description."""
        said = self.described.message()
        gradient = self.derived.gradient if self.derived else None
        of = "the gradient of " if gradient else ""
        kind = "module" if self.loaded.is_module else "function"
        mode = f", {self.loaded.mode} mode" if self.loaded.is_module else ""
        name = getattr(self.loaded.target, "__name__", "reference")
        return {
            **said,
            "name": name,
            "stem": self.loaded.stem,
            "file": str(self.loaded.file),
            "digest": self.loaded.digest,
            "library": "torch" if self.loaded.torch is not None else "numpy",
            "mode": self.loaded.mode if self.loaded.is_module else "",
            "summary": f"{of}the {kind} {name} of {self.loaded.file.name}{mode}",
            "outputs": self.outputs,
            "fixed": sorted(self.dtypes.fixed),
            "floats": self.dtypes.floats,
            "views": self.views,
            "gradient": gradient.message() if gradient else None,
            "unfollowed": sorted(self.unfollowed),
            "told": self.loaded.said("TOLD", ""),
            "operators": self._operators,
        }

    @cached_property
    def _operators(self) -> Operators:
        """The operators of torch that it calls."""
        if self.loaded.torch is None:
            return {}
        return recorded(self.loaded.torch, lambda: self._tried(self.described, self.described.example))

    def _tried(
        self, described: Described, dims: Mapping[str, int], width: str | Mapping[str, str] = "float64"
    ) -> dict[str, Any]:
        """Run it on small random inputs."""
        arrays = {
            t.name: random_tensor(t, shape_of(t.axes, dims, {}), dims, seed) for seed, t in enumerate(described.tensors)
        }
        with call_limit(self.loaded.place):
            return self._called(described, dims, arrays, described.attrs, width)

    def _called(
        self,
        described: Described,
        dims: Mapping[str, int],
        arrays: Mapping[str, Any],
        attrs: Mapping[str, Any],
        width: str | Mapping[str, str] = "float64",
    ) -> dict[str, Any]:
        """Outputs by name. arrays: numpy's, or what is followed; of torch references tensors are made of the former."""
        if self.derived is not None and isinstance(width, str):
            return self.derived.called(dims, arrays, attrs, width)
        return self._evaluated(described, dims, arrays, attrs, width)

    def _evaluated(
        self,
        described: Described,
        dims: Mapping[str, int],
        arrays: Mapping[str, Any],
        attrs: Mapping[str, Any],
        width: str | Mapping[str, str],
    ) -> dict[str, Any]:
        """The same of the function itself, whatever is made of it. width: of all floats, or of each by its name."""
        widths, native = (dict.fromkeys(arrays, width), width) if isinstance(width, str) else (width, "float32")
        numbers = next(iter(widths.values()), native)
        with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
            given = {name: self._tensor(a, widths.get(name, native)) for name, a in arrays.items()}
        given = {t.name: given[t.name] for t in described.tensors if t.name in given}
        for name in (t.name for t in described.tensors if t.structure and t.name in given and self.loaded.torch):
            given[name] = given[name].clone()  # as if its zeros were computed: they may leave out (torch/left_out.py)
        weights = {t.weight: given.pop(t.name) for t in described.tensors if t.weight}
        made = argued(given, described.arguments)
        positional, named = self._arguments({**made, **attrs})
        by_formula = self.loaded.formulas() if isinstance(width, str) else nullcontext()
        with np.errstate(all="ignore"), warnings.catch_warnings(), self.loaded.width(native), by_formula:
            warnings.simplefilter("ignore")
            result = self.loaded.call(self.loaded.model(described.init_of(dims), numbers), positional, weights, named)
        if os.getpid() != self._process:  # it has forked, and nobody asks its child
            os._exit(0)
        if self.loaded.mode == "train":
            self._must_keep({t.weight: arrays[t.name] for t in described.tensors if t.weight}, weights)
        self._given = given
        changed = {f"{one.name}{AFTER}": made[one.name] for one in described.arguments if one.inout}
        if changed:
            return {**changed, **self._outputs_of(_new(result, changed.values()))}
        if isinstance(result, tuple | list) and not result:
            raise UnfitError(f"{self.loaded.place}: it returns {result!r}, and no tensor")
        return self._outputs_of(result)

    def _must_keep(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Raise UsageError if a call changes weights."""
        for name, old in before.items():
            if isinstance(old, np.ndarray) and not np.array_equal(old, after[name].numpy(), equal_nan=True):
                raise UnfitError(
                    f"{self.loaded.place}: in train mode it changes its buffer {name}, and only what it returns is "
                    "judged: leave out MODE"
                )

    def _arguments(self, given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """By position as far as parameters are, by name after that."""
        positional: list[Any] = []
        for p in self.loaded.parameters:
            if p.kind is p.VAR_POSITIONAL:
                return [*positional, *given.values()], {}
            if p.kind is p.KEYWORD_ONLY or p.name not in given:
                break
            positional.append(given.pop(p.name))
        return positional, given

    def _tensor(self, a: Any, width: str) -> Any:
        if not isinstance(a, np.ndarray):
            return a
        fmt = format_of(a.dtype) if a.dtype != np.longdouble else None
        if fmt is None or fmt.is_float:
            wide = format_of(width).dtype if fmt is not None else a.dtype
            foreign = self.loaded.torch is not None and width not in _OF_NUMPY
            a = a.astype(np.float64 if foreign else wide)
            if foreign:
                return self.loaded.torch.from_numpy(np.array(a)).to(getattr(self.loaded.torch, width))
        return self.loaded.torch.from_numpy(np.array(a)) if self.loaded.torch is not None else np.array(a)

    def _outputs_of(self, result: Any) -> dict[str, Any]:
        if isinstance(result, tuple | list) and not result:
            return {}
        if isinstance(result, Mapping):
            return {re.sub(r"\W", "_", str(name)): one for name, one in result.items()}
        names = list(self.loaded.said("OUTPUTS") or {})
        several = list(result) if isinstance(result, tuple | list) else [result]
        if len(names) == len(several):
            return dict(zip(names, several, strict=True))
        if isinstance(result, tuple | list):
            return {f"out{i}": one for i, one in enumerate(result)} if len(result) > 1 else {"out": result[0]}
        return {"out": result}

    def _outputs(self) -> dict[str, str]:
        """Dtypes of the outputs, for inputs of the dtypes described. Raises UsageError for what is no tensor."""
        try:
            self._tried_somehow()
        except UsageError:
            raise
        except (Exception, SystemExit) as error:
            said = said_of(error, self.loaded.file)
            raise UsageError(
                f"{self.loaded.place}: the reference raises for every shape that was tried ({said}); say what its "
                'inputs are, as INPUTS = {"x": "float32[rows, cols]"} and DIMS = {"rows": (1, 64)}'
            ) from error
        found, about = self._with_changed(), self.described
        about.optional -= {t.name for t in about.tensors if t.name in about.optional and not self._does_without(t)}
        given, floats = self._given, {n for n, x in found.items() if "float" in str(getattr(x, "dtype", ""))}
        self.dtypes = asked(self.described, floats, lambda dtypes: self._tried(about, about.example, dtypes))
        kept = {f"{one.name}{AFTER}" for one in self.described.arguments if one.inout}
        made = {}
        for name, value in found.items():
            if not hasattr(value, "dtype") or not hasattr(value, "shape"):
                what = type(value).__name__
                raise UsageError(f"{self.loaded.place}: its output {name} is a {what}; it must be a tensor or an array")
            dtype = str(value.dtype).removeprefix("torch.")
            if dtype not in {*FORMATS, "float64"}:
                raise UsageError(
                    f"{self.loaded.place}: its output {name} is {dtype}, which is none of {', '.join(FORMATS)}"
                )
            said = (self.loaded.said("OUTPUTS") or {}).get(name, "")
            made[name] = said or self.dtypes.of.get(name, dtype)
            self.dtypes.fixed -= {name} if said else set()
            self.views[name] = [n for n, x in given.items() if name not in kept and _share(x, value)]
        self._must_repeat(found)
        learn_multiples(self.described, self._takes)
        return made

    def _does_without(self, tensor: Tensor) -> bool:
        """Whether it runs without an input."""
        rest = [t for t in self.described.tensors if t is not tensor]
        return self._runs(replace(self.described, tensors=rest), self.described.example)

    def _takes(self, dims: Mapping[str, int]) -> bool:
        """Whether it runs with some extents."""
        return self._runs(self.described, dims)

    def _runs(self, described: Described, dims: Mapping[str, int]) -> bool:
        try:
            self._tried(described, dims)
        except (Exception, SystemExit):  # noqa: BLE001  a user's own code
            return False
        return True

    def _with_changed(self) -> dict[str, Any]:
        """Run it once more: outputs, with arguments that it changes. Raises UsageError if it returns others besides."""
        about, dims = self.described, self.described.example
        said = {name for argument in about.arguments for name in argument.tensors}
        before = {t.name: random_tensor(t, shape_of(t.axes, dims, {}), dims, i) for i, t in enumerate(about.tensors)}
        again = self._tried(about, dims)
        inputs = [t.name for t in about.tensors if not t.weight and t.name not in said]
        changed = [n for n in inputs if not np.array_equal(np.asarray(self._given[n]), before[n], equal_nan=True)]
        if not changed:
            return again
        given = [self._given[name] for name in inputs]
        if self.loaded.is_module or not all(x is None or any(x is y for y in given) for x in again.values()):
            raise UsageError(
                f"{self.loaded.place}: it changes its input {changed[0]!r} besides what it returns; write inout behind "
                "what the input is, if a kernel must change it too, or let the reference copy it first"
            )
        about.arguments += [Argument(name, "tensor", (name,), inout=True) for name in changed]
        return self._tried(about, dims)

    def _tried_somehow(self) -> dict[str, Any]:
        """Run it with the extents of its examples, or others, if it refuses those; raises what it raises to them."""
        usual, ends = self.described.example, self.described.dims
        others = [{name: min(max(n, one[0]), Dim(*one).most) for name, one in ends.items()} for n in EXTENTS]
        for trial in (usual, *others):
            try:
                found = self._tried(self.described, trial)
            except UsageError:
                raise
            except (Exception, SystemExit):  # noqa: BLE001, S112  the first one is told below
                continue
            self.described.example = dict(trial)
            return found
        return self._tried(self.described, usual)

    def _must_repeat(self, first: Mapping[str, Any]) -> None:
        """Raise UsageError for a reference that gives something else the second time."""
        second = self._tried(self.described, self.described.example)
        for name, value in first.items():
            if not np.array_equal(np.asarray(value), np.asarray(second[name]), equal_nan=True):
                said = "it draws random numbers, or keeps something between calls"
                train = "; in train mode dropout does: leave out MODE" if self.loaded.mode == "train" else ""
                raise UsageError(f"{self.loaded.place}: two runs of the reference on one input differ: {said}{train}")

    def _follow_once(self) -> None:
        """Find what cannot be followed, on small inputs. Raises UsageError for outputs that hold positions."""
        self.answer(plain_case(self.contract, self.described.example), Numerics())

    def _numpy(self, **given: Any) -> dict[str, Any]:
        """The reference as a contract has it, for one that is made of numpy."""
        attrs = {name: given.pop(name) for name in self.described.attrs if name in given}
        there = [t for t in self.described.tensors if t.name in given]
        for t in there:
            if not format_of(t.dtype).is_float and isinstance(given[t.name], Followed):
                given[t.name] = given[t.name].span.value
        pairs = [(axis, n) for t in there for axis, n in zip(t.axes, given[t.name].shape, strict=True)]
        return self._called(self.described, solve(tuple(pairs)) or {}, given, attrs)

    def answer(self, case: Case, numerics: Numerics) -> tuple[dict[str, Array], dict[str, Span]]:
        """The exact outputs, and the limits between which a kernel's may lie. Raises Refused."""
        inputs = materialize_all(case)
        dims = self.contract.dims_of(case)
        if self.derived is not None and (why := self.derived.refuses(inputs)):
            raise Refused(why)
        try:
            made = self._called(self.described, dims, inputs, case.attrs)
            want = {name: np.asarray(made[name]).astype(np.float64) for name in self.outputs}
        except (Exception, SystemExit) as error:
            raise Refused(said_of(error, self.loaded.file)) from error
        q = Question(case=case, inputs=inputs, attrs=case.attrs, want=want, numerics=numerics.spelled_out(case.dtype),
                     as_wide=case.dtype == "float64")  # fmt: skip
        self._positions = {}
        with np.errstate(all="ignore"):
            try:
                spans = self._followed(q, dims)
                rough.must_agree(spans, want)
                a = Arithmetic.of(q)
                spans = {name: rough.overflowing(rough.roomy(span, a.unit), a) for name, span in spans.items()}
            except UsageError:
                raise
            except Exception as error:  # noqa: BLE001  whatever comes up is about following it
                if any(one.size for one in want.values()):  # nothing is to be followed in an empty output
                    self._cannot_follow(said_of(error, self.loaded.file))
                spans = self._fallback(q, dims)
            spans = self._where_numbers_do(case, dims, inputs, want, spans)
            if self.derived is not None:
                about = dims, inputs, case.attrs, want, spans, Arithmetic.of(q).unit
                spans, self.unjudged = self.derived.judged(*about)
        return want, spans

    def _where_numbers_do(
        self,
        case: Case,
        dims: Mapping[str, int],
        inputs: Mapping[str, Array],
        want: Mapping[str, Array],
        spans: Mapping[str, Span],
    ) -> dict[str, Span]:
        """The spans, free where the reference has a NaN if run in one of the ways of torch's, and not in others."""
        floats = [one for one in (*inputs.values(), *want.values()) if one.dtype.kind not in "biu"]
        if self.loaded.torch is None or all(np.isfinite(one).all() for one in floats):
            return dict(spans)
        from kernel_assay.oracles.references.torch.left_out import LeftOut  # noqa: PLC0415  it needs torch

        others: list[Mapping[str, Any]] = []
        with suppress(Exception), LeftOut():
            others.append(self._called(self.described, dims, inputs, case.attrs))
        with suppress(Refused):
            others += [] if self.derived is not None else [self.native(case)]
        made = dict(spans)
        for name, other in ((name, _float64(other[name])) for name in want for other in others):
            made[name] = freed(made[name], np.isnan(want[name]) != np.isnan(other))
        return made

    def native(self, case: Case) -> dict[str, Array]:
        """Outputs of the reference as its user would run it: in the dtypes of the case's inputs. Raises Refused."""
        widths = {name: t.dtype for name, t in case.tensors.items() if format_of(t.dtype).is_float}
        try:
            made = self._evaluated(
                self.described, self.contract.dims_of(case), materialize_all(case), case.attrs, widths
            )
            return {name: _float64(made[name]) for name in self.outputs}
        except (Exception, SystemExit) as error:
            raise Refused(said_of(error, self.loaded.file)) from error

    @property
    def positions(self) -> dict[str, tuple[int, Array, Array]]:
        """Outputs of the last answer that hold positions: the axis, and limits of the numbers that stand there."""
        return self._positions

    def _cannot_follow(self, said: str) -> None:
        """Remember why; the same reason with other numbers is one, and a few are enough."""
        reason = f"all of it ({re.sub(r'[0-9]+', 'N', said)})"
        if len(self.unfollowed) < MOST_NAMED:
            self.unfollowed.add(reason)

    def _followed(self, q: Question, dims: Mapping[str, int]) -> dict[str, Span]:
        if self.loaded.torch is None:
            try:
                return dict(spans_of(self.contract, q).of)
            except UsageError as error:
                raise RuntimeError(str(error.__cause__)) from error
        from kernel_assay.oracles.references.torch import following as torch_side  # noqa: PLC0415

        a = Arithmetic.of(q)
        whole = {t.name for t in self.described.tensors if not format_of(t.dtype).is_float}
        arrays = {n: x if n in whole else torch_side.given(input_of(a, n), x) for n, x in q.inputs.items()}
        torch_side.Names.met.clear()
        if not self._begun:
            torch_side.begin(a)
            self._begun = True
        with torch_side.Made(a), torch_side.casts_of(arrays.values()):
            made = self._called(self.described, dims, arrays, q.attrs)
        self.unfollowed |= {f"torch's {name}" for name in torch_side.Names.met}
        return {name: self._span(name, made[name], a, torch_side) for name in self.outputs}

    def _span(self, name: str, made: Any, a: Arithmetic, torch_side: Any) -> Span:
        if getattr(made, "source", None) is not None:
            self._positions[name] = made.source
        elif getattr(made, "places", False) and not format_of(self.outputs[name]).is_float:
            raise UsageError(
                f"{self.loaded.place}: its output {name} holds positions, of which ties make several right; "
                "let the reference return the values there, or what argmax, topk or sort gives as it is"
            )
        span: Span = torch_side.tracked(a, made).span
        return Span(*(np.asarray(part, np.float64) for part in span))

    def _fallback(self, q: Question, dims: Mapping[str, int]) -> dict[str, Span]:
        """Limits by what float32, and neighbours of the inputs, change in the reference. Raises Refused."""
        try:
            others = [self._called(self.described, dims, q.inputs, q.attrs, "float32")]
            others += [self._called(self.described, dims, near, q.attrs) for near in rough.neighbours(q.inputs)]
        except (Exception, SystemExit) as error:
            raise Refused(f"in float32, {said_of(error, self.loaded.file)}") from error
        found = {name: [_float64(other[name]) for other in others] for name in q.want}
        return {name: rough.from_changes(q, want, found[name]) for name, want in q.want.items()}


def _float64(x: Any) -> Array:
    """An output as numpy's, also if it is of a type that numpy does not have."""
    return np.asarray(x.double() if hasattr(x, "double") else x, np.float64)


def _new(result: Any, changed: Iterable[Any]) -> Any:
    """What a reference returned besides arguments that it has changed, and nothing."""
    several = list(result) if isinstance(result, tuple | list) else [result]
    found = [one for one in several if one is not None and not any(one is other for other in changed)]
    return tuple(found) if len(found) != 1 else found[0]


def _share(first: Any, second: Any) -> bool:
    """Whether two tensors, or arrays, lie in the same memory."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and np.may_share_memory(first, second)
    return bool(first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr() and first.numel())
