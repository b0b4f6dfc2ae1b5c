"""Call a subject: destination-passing or return-style, decided from its signature before the first call."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Self

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.base import Scalar
from kernel_assay.corpus.model.kinds import Kind


class KernelFaultError(Exception):
    """Not raised by a subject, but about it: what was seen of its call, and the verdict that stands for it."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Interface:
    """The inputs and outputs that an op hands to a subject."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: tuple[str, ...]
    optional: Mapping[str, Scalar] = field(default_factory=dict)
    """Attributes that a subject may do without, and the value it then stands for."""
    extra: tuple[str, ...] = ()
    """Inputs that a case need not have; a subject is given them by name."""
    sources: tuple[str, ...] = ()
    """`FILE:NAME` of a person's own reference, which no subject may call."""

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        """Read it from a message, in which tuples are lists."""
        names = ("inputs", "outputs", "attrs", "extra", "sources")
        inputs, outputs, attrs, extra, sources = (tuple(said[key]) for key in names)
        return cls(inputs, outputs, attrs, said["optional"], extra, sources)

    @property
    def always(self) -> tuple[str, ...]:
        """The inputs that every case has; a subject is given them by position."""
        return tuple(name for name in self.inputs if name not in self.extra)

    def describe(self) -> str:
        """Describe both forms that a subject may have, as a signature."""
        attrs = [f"{name}={self.optional[name]!r}" if name in self.optional else name for name in self.attrs]
        named = [*(f"{name}=None" for name in self.extra), *attrs]
        rest = f", *, {', '.join(named)}" if named else ""
        inputs = ", ".join(self.always)
        return f"run({', '.join(self.outputs)}, {inputs}{rest}) or run({inputs}{rest})"


class Unfitted(ABC):
    """Stands for a subject that knows its arguments by name, in an order of its own; the op says what is what."""

    @property
    @abstractmethod
    def names(self) -> set[str]:
        """Names that it takes."""

    @property
    def nullable(self) -> frozenset[str]:
        """Optional inputs that it takes, and can do without."""
        return frozenset()

    @abstractmethod
    def __call__(self, face: Interface) -> Callable[..., None]:
        """The subject itself, destination-passing. Raises UsageError for names that the op does not have."""


class Rearranged(ABC):
    """Stands for a subject that takes other arguments than the tensors of an op, which it makes of them."""

    @abstractmethod
    def bound(self, face: Interface, where: str) -> Bound:
        """The subject, so that it may be called with the tensors. Raises UsageError."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Never called: it must be bound."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Bound:
    """A callable and its style."""

    call: Callable[..., Any]
    returns: bool
    """True: return-style; False: it writes into its outputs."""
    fixed: Mapping[str, Scalar] = field(default_factory=dict)
    """Attributes it does not take, and the only value for which it may be called."""
    refused: frozenset[str] = frozenset()
    """Optional inputs it does not take."""
    needed: frozenset[str] = frozenset()
    """Optional inputs it cannot do without."""
    optional: Mapping[str, Scalar] = field(default_factory=dict)
    """The op's optional attributes, and the value that one stands for which a case leaves out."""

    def declines(self, attrs: Mapping[str, Scalar], inputs: Collection[str] = ()) -> str:
        """The reason why it cannot be called with these attributes and inputs; empty if it can."""
        others = (f"it takes no {n}, so only {n}={v} is tried" for n, v in self.fixed.items() if attrs.get(n, v) != v)
        given = (f"it takes no {name}" for name in sorted(self.refused) if name in inputs)
        missing = (f"it needs {name}" for name in sorted(self.needed) if name not in inputs)
        return next(chain(others, given, missing), "")

    def attributes(self, attrs: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Attributes that it takes."""
        return {name: value for name, value in {**self.optional, **attrs}.items() if name not in self.fixed}


def bind(function: Callable[..., Any], face: Interface, where: str) -> Bound:
    """Decide the style of a function. Raises UsageError if it can be called neither way."""
    if isinstance(function, Rearranged):
        return function.bound(face, where)
    if isinstance(function, Unfitted):
        taken = frozenset(face.extra) & function.names
        return Bound(
            function(face),
            False,
            _left_out(function.names, face),
            frozenset(face.extra) - taken,
            taken - function.nullable,
            face.optional,
        )
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtins without a signature
        return Bound(function, returns=True, refused=frozenset(face.extra))
    named = {*face.attrs, *face.extra}
    tensors = [p for p in parameters if p.kind in _POSITIONAL and p.name not in named and p.default is p.empty]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        returns = False
    elif len(tensors) == len(face.always):
        returns = True
    elif len(tensors) == len(face.always) + len(face.outputs):
        returns = False
    else:
        raise UsageError(f"{_shown(where, parameters)}, but it must be {face.describe()}")
    _check_names(tensors, face, returns, _shown(where, parameters))
    _check_attrs(parameters, face, where)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return Bound(function, returns, optional=face.optional)
    names = {p.name for p in parameters}
    needed = {p.name for p in parameters if p.name in face.extra and p.default is p.empty}
    refused = frozenset(face.extra) - names
    return Bound(function, returns, _left_out(names, face), refused, frozenset(needed), face.optional)


def unbound(bound: Bound, error: BaseException) -> str:
    """The reason why a call did not get to a subject whose signature tells nothing, or takes anything; else empty."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if not isinstance(error, TypeError) or trace is None or not _REFUSED.search(str(error)):
        return ""
    code, inmost = getattr(bound.call, "__code__", None), trace.tb_frame.f_code
    ours = str(trace.tb_frame.f_globals.get("__name__")).startswith("kernel_assay.")
    passes_on = code is inmost and bool(inmost.co_flags & inspect.CO_VARARGS)
    if not passes_on and (code is not None or not ours):
        return ""
    return f"its arguments do not fit ({error}); a function that only passes them on needs functools.wraps"


_REFUSED = re.compile(r"\(\) (takes|got|missing|received) ")
"""What Python and torch say of a call that does not fit a signature."""
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _left_out(names: set[str], face: Interface) -> dict[str, Scalar]:
    """Optional attributes that a subject does not take."""
    return {name: value for name, value in face.optional.items() if name not in names}


def _check_attrs(parameters: Iterable[inspect.Parameter], face: Interface, where: str) -> None:
    names, known = {p.name for p in parameters}, {*face.attrs, *face.extra}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    for attr in face.attrs:
        if attr not in names and attr not in face.optional:
            raise UsageError(f"{where} does not take the attribute {attr!r}; it must be {face.describe()}")
    for p in parameters:
        if p.kind is p.POSITIONAL_ONLY and p.name in known:
            what = "attributes" if p.name in face.attrs else "optional inputs"
            raise UsageError(f"{where} takes {p.name!r} by position only, but {what} are passed by name")
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty and p.name not in known:
            raise UsageError(f"{where} asks for {p.name!r}, which the op does not have; it must be {face.describe()}")


def _check_names(tensors: Sequence[inspect.Parameter], face: Interface, returns: bool, shown: str) -> None:
    """Refuse an argument that is called like one tensor of the op and stands where another one is passed."""
    passed = face.always if returns else (*face.outputs, *face.always)
    for parameter, name in zip(tensors, passed, strict=False):
        if parameter.name != name and parameter.name in passed:
            told = f"but {name!r} is passed where it has {parameter.name!r}"
            raise UsageError(f"{shown}, {told}; it must be {face.describe()}")


def _shown(where: str, parameters: Iterable[inspect.Parameter]) -> str:
    """A function with its signature, without annotations."""
    plain = [p.replace(annotation=p.empty) for p in parameters]
    return f"{where} takes {inspect.Signature(plain)}"
