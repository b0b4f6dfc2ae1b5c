"""A stand-in for what tests are written with, in processes that take a kernel or a reference out of a file of tests.

Such a process runs no test, and need not, or must not, know what holds kernels to contracts: it would be loaded for
nothing, and where code under test runs it is out of sight.
"""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType

_NAMES = ("kernel_assay.fuzz.testing", "kernel_assay.fuzz.generation.strategies")
"""The modules that tests import."""


class _Inert:
    """Whatever is asked of it, or made of it, is inert, too; as a decorator it leaves a function as it is."""

    def __init__(self, *, decorates: bool = True) -> None:
        self._decorates = decorates

    def __call__(self, *given: object, **_: object) -> object:
        decorated = given[0] if len(given) == 1 and isinstance(given[0], FunctionType) else None
        return decorated if decorated is not None and self._decorates else _Inert()

    def __getattr__(self, name: str) -> _Inert:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Inert(decorates=False)  # as `.map` and `.filter` of a strategy

    def __or__(self, _: object) -> _Inert:
        return self


def _named(name: str) -> _Inert:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Inert()


def stand_in() -> None:
    """Let files of tests import these modules in this process, where all that is in them does nothing."""
    for name in _NAMES:
        module = ModuleType(name)
        vars(module)["__getattr__"] = _named
        sys.modules[name] = module
