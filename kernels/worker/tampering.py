"""Names that tests rely on, as they were before any subject was loaded: which of them are other things now, and whose.

Clocks, comparisons, generators of random numbers and functions of libraries are watched, and our own. Libraries
exchange such names, too, so a change says nothing by itself: it counts where the code that took the place is a
subject's, or where nothing but a subject ran meanwhile and no library was imported.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from operator import is_
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

_OURS = "kernel_assay."
_MODULES = (
    *("builtins", "time", "copy", "random", "timeit"),
    *("numpy", "numpy.random", "numpy.testing", "numpy.linalg"),
    *("torch", "torch.cuda", "torch.linalg", "torch.nn.functional", "torch.random", "torch.special", "torch.testing"),
    *("torch.autograd", "torch.utils.benchmark", "triton.testing"),
)
_CLASSES = (("torch", "Tensor"), ("torch.nn", "Module"))
_DESCRIPTORS = (property, staticmethod, classmethod)
_STDLIB = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
_INSTALLED = ("/site-packages/", "/dist-packages/")
_all, _map, _zip = all, map, zip
"""Builtins as they were before a subject could put others in their place."""


_VERSION_AT = 24
"""Where CPython up to 3.13 keeps the version of a dictionary, which every change moves on: bytes from its start."""


class _Version:
    """Whether a dictionary may have changed, without a touch of what it holds.

    Reading a name counts a reference to its value, so that a new process copies every page that holds one: 5 ms, and
    60 where there is a GPU. Where this Python keeps no version, the answer is always that it may.
    """

    __slots__ = ("_at", "_seen")

    def __init__(self, names: dict[str, Any]) -> None:
        self._at = ctypes.c_uint64.from_address(id(names) + _VERSION_AT)
        self._seen = self._at.value

    def moved(self) -> bool:
        """Whether something was set since this was last asked, or may have been."""
        before, self._seen = self._seen, self._at.value
        return self._seen != before or not _kept()


@cache
def _kept() -> bool:
    """Whether this Python keeps versions of dictionaries."""
    names = {"name": 0}
    at = ctypes.c_uint64.from_address(id(names) + _VERSION_AT)
    before = at.value
    names["name"] = 1
    return at.value != before


@dataclass(slots=True)
class _Space:
    """A module or a class: its names that are watched, and what they stood for."""

    label: str
    get: Callable[[str], Any]
    version: _Version
    names: tuple[str, ...]
    values: tuple[Any, ...]

    def changes(self) -> Iterator[Change]:
        """Names that stand for other things than before; those they stand for now are what is expected from now on."""
        if not self.version.moved() or _all(_map(is_, _map(self.get, self.names), self.values)):
            return
        now = tuple(_map(self.get, self.names))
        for name, old, new in _zip(self.names, self.values, now, strict=True):
            if new is not old and new is not None:  # what is gone was taken by nobody
                yield Change(f"{self.label}.{name}", new)
        self.values = now

    def all(self) -> Iterator[Change]:
        """Its public names, as if all had just come to stand for what they do."""
        public = self.get("__all__") or self.names
        return (Change(f"{self.label}.{k}", v) for k, v in _zip(self.names, self.values, strict=True) if k in public)


@dataclass(frozen=True, slots=True)
class Change:
    """A name, and what it stands for now."""

    name: str
    value: Any

    @property
    def code(self) -> CodeType | None:
        """The code that took the place; None for what is no Python."""
        return _code_of(self.value)

    @property
    def is_ours(self) -> bool:
        """Whether the name is one of this project's."""
        return self.name.startswith(_OURS)

    @property
    def words(self) -> str:
        """The value, in a word that no subject can choose."""
        named = isinstance(self.value, FunctionType | BuiltinFunctionType | type)
        kind = self.value if named else type(self.value)
        return str(getattr(kind, "__qualname__", "another"))


def is_library(file: str) -> bool:
    """Whether a file belongs to Python, or is installed."""
    return file.startswith("<frozen") or any(part in file for part in _INSTALLED) or is_stdlib(file)


def is_stdlib(file: str) -> bool:
    """Whether a file belongs to Python itself."""
    return file.startswith(_STDLIB) and not any(part in file for part in _INSTALLED)


@cache
def snapshot() -> dict[str, _Space]:
    """Everything that is watched, as it is when this is first called: before the first subject is loaded."""
    modules = sys.modules
    spaces = [_space(name, vars(modules[name])) for name in _MODULES if name in modules]
    spaces += [_class(f"{m}.{c}", getattr(modules[m], c)) for m, c in _CLASSES if m in modules]
    for name, module in list(modules.items()):
        if name.startswith(_OURS):
            spaces.append(_space(name, vars(module)))
            own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == name]
            spaces += [_space(f"{name}.{one.__name__}", vars(one)) for one in own]
    return {space.label: space for space in spaces}


def changes() -> list[Change]:
    """What has changed since this was last asked, or since the snapshot."""
    known = snapshot()
    found = [change for space in known.values() for change in space.changes()]
    for name in _MODULES:
        if name not in known and name in sys.modules:  # imported since: nobody knows what it was like before
            known[name] = _space(name, vars(sys.modules[name]))
            found += [change for change in known[name].all() if change.code is not None]
    return found


def _space(label: str, names: Any, inherited: Iterable[str] = ()) -> _Space:
    """inherited: names that it has from elsewhere, and that would be hidden by its own."""
    watched = {k: v for k, v in list(names.items()) if callable(v) or isinstance(v, _DESCRIPTORS)}
    watched |= dict.fromkeys(set(inherited) - set(names))
    held = names if isinstance(names, dict) else gc.get_referents(names)[0]  # a class only shows its own
    return _Space(label, names.get, _Version(held), tuple(watched), tuple(watched.values()))


def _class(label: str, kind: type) -> _Space:
    return _space(label, vars(kind), (name for base in kind.__mro__[1:-1] for name in vars(base)))


def _code_of(value: Any) -> CodeType | None:
    """The code of a function, of what wraps one, or of the first method of an object's class: asking nothing of it."""
    if isinstance(value, MethodType | staticmethod | classmethod):
        value = value.__func__
    elif type(value) is partial:
        value = value.func
    elif type(value) is property:
        value = value.fget
    if isinstance(value, FunctionType):
        return value.__code__
    if isinstance(value, BuiltinFunctionType):
        return None
    kind = value if isinstance(value, type) else type(value)
    methods = (one.__func__ if isinstance(one, staticmethod | classmethod) else one for one in vars(kind).values())
    return next((one.__code__ for one in methods if isinstance(one, FunctionType)), None)
