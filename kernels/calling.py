"""How to call a subject: destination-passing or return-style, decided from its signature before the first call."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from corpus.errors import UsageError


@dataclass(frozen=True, slots=True)
class Interface:
    """What an op hands to a subject."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: tuple[str, ...]

    def describe(self) -> str:
        """Both forms a subject may have, as a signature."""
        attrs = f", *, {', '.join(self.attrs)}" if self.attrs else ""
        inputs = ", ".join(self.inputs)
        return f"run({', '.join(self.outputs)}, {inputs}{attrs}) or run({inputs}{attrs})"


class Unfitted(ABC):
    """Stands for a subject that knows its arguments by name, in an order of its own; the op says what is what."""

    @abstractmethod
    def __call__(self, face: Interface) -> Callable[..., None]:
        """The subject itself, destination-passing. Raises UsageError for names that the op does not have."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A callable and its style."""

    call: Callable[..., Any]
    returns: bool
    """True: return-style; False: it writes into its outputs."""


def bind(function: Callable[..., Any], face: Interface, where: str) -> Bound:
    """Decide the style of a function. Raises UsageError if it can be called neither way."""
    if isinstance(function, Unfitted):
        return Bound(function(face), returns=False)
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
    return Bound(function, returns)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _check_attrs(parameters: Iterable[inspect.Parameter], face: Interface, where: str) -> None:
    names = {p.name for p in parameters}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    for attr in face.attrs:
        if attr not in names:
            raise UsageError(f"{where} does not take the attribute {attr!r}; it must be {face.describe()}")
    for p in parameters:
        if p.kind is p.POSITIONAL_ONLY and p.name in face.attrs:
            raise UsageError(f"{where} takes {p.name!r} by position only, but attributes are passed by name")
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty and p.name not in face.attrs:
            raise UsageError(f"{where} asks for {p.name!r}, which the op does not have; it must be {face.describe()}")


def _count(n: int) -> str:
    return f"{n} tensor argument{'s' if n != 1 else ''}"
