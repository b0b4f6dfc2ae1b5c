"""Functions whose arguments are made of the tensors of a case, and functions of which the gradients are wanted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.arguments import AFTER, Argument, argued, names_of
from kernel_assay.corpus.inputs.gradients import Gradient
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.kernels.backends.support.signature import Bound, Interface, KernelFaultError, Rearranged, bind


def rearranged(function: Callable[..., Any], launch: str, around: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is called with tensors of a case; itself, if its reference says nothing of arguments.

    launch: what the reference said; around: makes of a function one that takes the tensors of the worker.
    """
    said = json.loads(launch).get("arguments", []) if launch else []
    return FromTensors(function, [Argument.read(one) for one in said], around) if said else around(function)


class FromTensors(Rearranged):
    """A function that is called with arguments made of tensors."""

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Argument], around: Callable[..., Any]) -> None:
        self._function, self._arguments, self._around = function, arguments, around

    def bound(self, face: Interface, where: str) -> Bound:
        """Bind the function to the arguments, as others are bound to tensors. Raises UsageError."""
        made = names_of(face.inputs, self._arguments)
        changed = [f"{one.name}{AFTER}" for one in self._arguments if one.inout]
        extra = tuple(name for name, tensors in made.items() if set(tensors) <= set(face.extra))
        rest = tuple(name for name in face.outputs if name not in changed)
        inner = bind(self._function, Interface(tuple(made), rest, face.attrs, face.optional, extra), where)
        returns = inner.returns and not changed
        call = _Call(inner, self._arguments, face, tuple(changed), frozenset(extra))
        refused, needed = (frozenset(t for n in names for t in made[n]) for names in (inner.refused, inner.needed))
        function = self._around(call.returning if returns else call.writing)
        return Bound(function, returns, inner.fixed, refused, needed, inner.optional)


@dataclass(frozen=True, slots=True)
class _Call:
    """Calls of such a function."""

    inner: Bound
    arguments: Sequence[Argument]
    face: Interface
    changed: tuple[str, ...]
    """Outputs that are arguments after the call."""
    extra: frozenset[str]
    """Arguments that are given by name."""

    def returning(self, *tensors: Any, **named: Any) -> Any:
        """Call it for what it returns."""
        return self._called({}, (), tensors, named)

    def writing(self, *tensors: Any, **named: Any) -> None:
        """Call it with room for outputs: what is changed in place lies there; what it returns else is copied there."""
        outs = dict(zip(self.face.outputs, tensors, strict=False))
        rest = {name: out for name, out in outs.items() if name not in self.changed}
        given = [] if self.inner.returns else [*rest.values()]
        result = self._called(outs, given, tensors[len(outs) :], named)
        if self.inner.returns and rest:
            self._keep(result, rest, [outs[name] for name in self.changed])

    def _called(self, outs: Mapping[str, Any], first: Sequence[Any], tensors: Sequence[Any], named: Any) -> Any:
        flat = dict(zip(self.face.always, tensors, strict=True))
        flat |= {name: named.pop(name) for name in self.face.extra if name in named}
        flat = {name: flat[name] for name in self.face.inputs if name in flat}
        for one in self.arguments:
            if one.inout:
                room = outs[f"{one.name}{AFTER}"]
                room[...] = flat[one.tensors[0]]
                flat[one.tensors[0]] = room
        made = argued(flat, self.arguments)
        by_name = {name: made.pop(name) for name in self.extra if name in made}
        result = self.inner.call(*first, *made.values(), **by_name, **named)
        for one in self.arguments:
            if one.kind == "offsets" and one.made(flat).tolist() != made[one.name].tolist():
                raise KernelFaultError(Kind.INPUT_MUTATED, f"it changed its input {one.name!r}")
        return result

    def _keep(self, result: Any, rest: Mapping[str, Any], changed: Sequence[Any]) -> None:
        """Copy what it returned besides what it has changed into the outputs. Raises KernelFaultError for its form."""
        several = result if isinstance(result, tuple | list) else (result,)
        new = [one for one in several if one is not None and not any(one is other for other in changed)]
        if len(new) != len(rest):
            raise TypeError(f"it returned {len(new)} tensors besides what it changes, not {len(rest)}")
        for (name, out), one in zip(rest.items(), new, strict=True):
            if tuple(one.shape) != tuple(out.shape):
                text = f"{name} has shape {tuple(one.shape)}, wanted {tuple(out.shape)}"
                raise KernelFaultError(Kind.WRONG_SHAPE, text)
            if one.dtype != out.dtype:
                raise KernelFaultError(Kind.WRONG_DTYPE, f"{name} has dtype {one.dtype}, wanted {out.dtype}")
            out[...] = one.detach() if hasattr(one, "detach") else one


def gradient_of(launch: str) -> Gradient | None:
    """The gradient that a reference asks for; None: it asks for what the function returns."""
    said = json.loads(launch).get("gradient") if launch else None
    return Gradient.read(said) if said else None


class Differentiated(Rearranged):
    """A function of which the gradients are wanted: it is called forwards, and torch's autograd goes back."""

    def __init__(
        self, torch: Any, function: Callable[..., Any], gradient: Gradient, around: Callable[..., Any]
    ) -> None:
        """around: makes of a function one that takes the tensors of the worker."""
        self._torch, self._function, self._gradient, self._around = torch, function, gradient, around

    def bound(self, face: Interface, where: str) -> Bound:
        """Bind the function to its own inputs, and the rest to cotangents. Raises UsageError."""
        inputs = tuple(name for name in face.inputs if name not in self._gradient.given)
        inner = bind(
            self._function, Interface(inputs, self._gradient.outputs, face.attrs, face.optional, face.extra), where
        )
        if not inner.returns:
            raise UsageError(f"{where} writes its outputs, through which no gradient goes back; it must return them")
        call = _Backward(self._torch, inner, self._gradient, face)
        return Bound(self._around(call), True, inner.fixed, inner.refused, inner.needed, inner.optional)


@dataclass(frozen=True, slots=True)
class _Backward:
    """Calls of such a function."""

    torch: Any
    inner: Bound
    gradient: Gradient
    face: Interface

    def __call__(self, *tensors: Any, **named: Any) -> tuple[Any, ...]:
        """Return the gradients. Raises NotImplementedError if nothing that it returns has any."""
        extra = {name: named.pop(name) for name in self.face.extra if name in named}
        given = dict(zip(self.face.always, tensors, strict=True)) | extra
        cotangents = {name: given.pop(name) for name in self.gradient.given}
        with self.torch.enable_grad():
            leaves = {name: x.detach().requires_grad_() for name, x in given.items() if x.is_floating_point()}
            mine = {**given, **leaves}
            by_name = {name: mine[name] for name in extra}
            result = self.inner.call(*(x for name, x in mine.items() if name not in extra), **by_name, **named)
            results = self._named(result)
            begun = {
                name: self._begun(name, out, results[out], cotangents[name])
                for out, name in self.gradient.cotangents.items()
            }
            of = {name: leaves[name] for name in self.gradient.gradients.values() if name in leaves}
            if not any(x.requires_grad for x in results.values()) and sum(x.numel() for x in results.values()):
                raise NotImplementedError("nothing that it returns requires grad: it has no backward")
            made = self.gradient.backward(results, of, begun)
        there = {x.untyped_storage().data_ptr() for x in (*tensors, *extra.values())}
        empty = next(iter(leaves.values())).new_zeros(0)
        return tuple(
            self._own(made[name], of[leaf], there) if leaf in of else empty
            for name, leaf in self.gradient.gradients.items()
        )

    def _named(self, result: Any) -> dict[str, Any]:
        """Results by name. Raises TypeError for what is none."""
        names = self.gradient.outputs
        several = tuple(result) if isinstance(result, tuple | list) else (result,)
        if len(several) != len(names) or not all(isinstance(one, self.torch.Tensor) for one in several):
            raise TypeError(f"it returned {type(result).__name__}, not {len(names)} tensor{'s' * (len(names) > 1)}")
        return dict(zip(names, several, strict=True))

    def _begun(self, name: str, output: str, result: Any, cotangent: Any) -> Any:
        """The cotangent of an output. Raises KernelFaultError for an output of another form."""
        shape = tuple(result.shape)
        if result.ndim == cotangent.ndim:
            cotangent = self.gradient.fitted(name, cotangent, shape)
        if tuple(cotangent.shape) != shape:
            text = f"{output} has shape {shape}, wanted {tuple(cotangent.shape)}"
            raise KernelFaultError(Kind.WRONG_SHAPE, text)
        if result.dtype != cotangent.dtype:
            raise KernelFaultError(Kind.WRONG_DTYPE, f"{output} has dtype {result.dtype}, wanted {cotangent.dtype}")
        return cotangent

    def _own(self, made: Any, leaf: Any, there: set[int]) -> Any:
        """A gradient as a leaf's `grad` has it: dense, in memory of its own, and 0 if nothing comes there."""
        if made is None:
            return self.torch.zeros_like(leaf, memory_format=self.torch.contiguous_format)
        made = made.contiguous()
        return made.clone() if made.untyped_storage().data_ptr() in there else made
