"""How to call a subject: destination-passing or return-style, decided from its signature before the first call."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from corpus.errors import UsageError
from corpus.record import Scalar


@dataclass(frozen=True, slots=True)
class Interface:
    """What an op hands to a subject."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: tuple[str, ...]
    optional: Mapping[str, Scalar] = field(default_factory=dict)
    """Attributes that a subject may do without, and the value it then stands for."""

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        """From a message, in which tuples are lists."""
        return cls(tuple(said["inputs"]), tuple(said["outputs"]), tuple(said["attrs"]), said["optional"])

    def describe(self) -> str:
        """Both forms a subject may have, as a signature."""
        attrs = f", *, {', '.join(self.attrs)}" if self.attrs else ""
        inputs = ", ".join(self.inputs)
        return f"run({', '.join(self.outputs)}, {inputs}{attrs}) or run({inputs}{attrs})"


class Unfitted(ABC):
    """Stands for a subject that knows its arguments by name, in an order of its own; the op says what is what."""

    @property
    @abstractmethod
    def names(self) -> set[str]:
        """What it takes, by name."""

    @abstractmethod
    def __call__(self, face: Interface) -> Callable[..., None]:
        """The subject itself, destination-passing. Raises UsageError for names that the op does not have."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A callable and its style."""

    call: Callable[..., Any]
    returns: bool
    """True: return-style; False: it writes into its outputs."""
    fixed: Mapping[str, Scalar] = field(default_factory=dict)
    """Attributes it does not take, and the only value for which it may be called."""

    def declines(self, attrs: Mapping[str, Scalar]) -> str:
        """Why it cannot be called with these attributes; an empty string if it can."""
        others = [(n, v) for n, v in self.fixed.items() if attrs.get(n, v) != v]
        return next((f"it takes no {n}, so only {n}={v} is tried" for n, v in others), "")

    def attributes(self, attrs: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Those it takes."""
        return {name: value for name, value in attrs.items() if name not in self.fixed}


def bind(function: Callable[..., Any], face: Interface, where: str) -> Bound:
    """Decide the style of a function. Raises UsageError if it can be called neither way."""
    if isinstance(function, Unfitted):
        return Bound(function(face), returns=False, fixed=_left_out(function.names, face))
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtins without a signature
        return Bound(function, returns=True)
    tensors = [p for p in parameters if p.kind in _POSITIONAL and p.name not in face.attrs and p.default is p.empty]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        returns = False
    elif len(tensors) == len(face.inputs):
        returns = True
    elif len(tensors) == len(face.inputs) + len(face.outputs):
        returns = False
    else:
        raise UsageError(f"{where} takes {_count(len(tensors))}, but it must be {face.describe()}")
    _check_attrs(parameters, face, where)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return Bound(function, returns, {} if takes_any else _left_out({p.name for p in parameters}, face))


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _left_out(names: set[str], face: Interface) -> dict[str, Scalar]:
    """Optional attributes that a subject does not take."""
    return {name: value for name, value in face.optional.items() if name not in names}


def _check_attrs(parameters: Iterable[inspect.Parameter], face: Interface, where: str) -> None:
    names = {p.name for p in parameters}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    for attr in face.attrs:
        if attr not in names and attr not in face.optional:
            raise UsageError(f"{where} does not take the attribute {attr!r}; it must be {face.describe()}")
    for p in parameters:
        if p.kind is p.POSITIONAL_ONLY and p.name in face.attrs:
            raise UsageError(f"{where} takes {p.name!r} by position only, but attributes are passed by name")
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty and p.name not in face.attrs:
            raise UsageError(f"{where} asks for {p.name!r}, which the op does not have; it must be {face.describe()}")


def _count(n: int) -> str:
    return f"{n} tensor argument{'s' if n != 1 else ''}"
