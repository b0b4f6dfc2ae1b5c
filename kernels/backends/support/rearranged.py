"""Functions whose arguments are no plain tensors: called with the tensors of a case, arguments are made of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_assay.corpus.inputs.arguments import AFTER, Argument, argued, names_of
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
