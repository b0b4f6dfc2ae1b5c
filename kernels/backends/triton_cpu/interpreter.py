"""Triton on the CPU: its own interpreter, mended where it differs from a GPU.

Only for a process in which TRITON_INTERPRET was 1 before Triton was imported: Triton decides there and then whether
its functions are compiled, so a process interprets all of them or none. Written for the version that pyproject.toml
names. What is mended, and how the interpreter is without it, is in tests/kernels/test_triton.py.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ClassVar

import numpy as np
import triton
import triton.language as tl
from triton.runtime import autotuner, interpreter, jit

from kernel_assay.corpus.errors import InternalError
from kernel_assay.kernels.backends.triton_cpu.arithmetic import Arithmetic, Reductions, Scans, stored
from kernel_assay.kernels.backends.triton_cpu.bounds import LAUNCHED, CheckedMemory, owned
from kernel_assay.kernels.backends.triton_cpu.judge import JUDGE, JudgedMemory
from kernel_assay.kernels.backends.triton_cpu.libdevice import Libdevice, connect


class Launch(interpreter.GridExecutor):  # type: ignore[misc]
    """One launch of a kernel, all programs one after the other."""

    conversions: ClassVar[list[Callable[[Any, str, Any], Any]]] = []
    """What makes arguments of what the kernel was called with; each is given the launch, a name and a value."""

    def __init__(self, fn: Any, arg_names: list[str], grid: Any, pre_run_hooks: Any = ()) -> None:
        super().__init__(fn, arg_names, _shortened(grid), pre_run_hooks)
        parameters = inspect.signature(fn).parameters.values()
        self.types = {p.name: jit.KernelParam(0, p, False, False).annotation_type for p in parameters}
        """Name -> the type that the kernel asks for, or an empty string."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Run it. Raises what the kernel raised, and not the interpreter's wrapping of it."""
        taken = {name: value for name, value in kwargs.items() if name in self.arg_names}
        named = inspect.getcallargs(self.fn, *args, **taken)
        with JUDGE.judging():
            try:
                super().__call__(**{name: self._argument(name, value) for name, value in named.items()})
            except interpreter.InterpreterError as error:
                raise _cause(error) from None
            finally:
                LAUNCHED.clear()

    def _argument(self, name: str, value: Any) -> Any:
        if name in self.constexprs:
            return value
        if isinstance(value, tuple):
            return triton._utils._tuple_create(value, [self._argument(name, v) for v in value])  # noqa: SLF001
        for conversion in self.conversions:
            value = conversion(self, name, value)
        return value


def _shortened(grid: Any) -> Callable[[Any], tuple[int, ...]]:
    """A grid of as many programs as are run of it."""

    def programs(named: Any) -> tuple[int, ...]:
        extents = tuple(grid(named) if callable(grid) else grid)
        if Programs.ends is None:
            return extents
        Programs.grids.append(extents + (1,) * (3 - len(extents)))
        return min(math.prod(extents), 2 * Programs.ends), 1, 1

    return programs


def _cause(error: BaseException) -> BaseException:
    while isinstance(error, interpreter.InterpreterError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _as_scalar(launch: Launch, name: str, value: Any) -> Any:
    """A number as a GPU is given it: a float is float32, unless the kernel's annotation names another type."""
    wanted = launch.types[name]
    if type(value) is bool or not (isinstance(value, float) or (wanted and isinstance(value, int))):
        return value
    dtype = tl.str_to_ty(wanted or "fp32", None)
    return tl.tensor(stored(np.array([value]), dtype), dtype)


def _as_pointer(launch: Launch, name: str, value: Any) -> Any:  # noqa: ARG001  all conversions take the same
    return owned(name, value)


class Programs(interpreter.InterpreterBuilder):  # type: ignore[misc]
    """A grid whose programs run in an order that a seed gives, or the other way round: a GPU has no order."""

    seed = 0
    backwards = False
    ends: int | None = None
    """So many programs from either end of each grid are run, and no others; None: all."""
    grids: ClassVar[list[tuple[int, ...]]] = []
    """Of launches whose ends are run."""

    def set_grid_dim(self, nx: int, ny: int, nz: int) -> None:
        """Choose the order of a launch's programs: as they come, from a drawn one on, or all drawn."""
        if self.ends is not None:
            super().set_grid_dim(*self.grids[-1])
            self._turns = np.arange(nx) + (np.arange(nx) >= self.ends) * (math.prod(self.grids[-1]) - nx)
            return
        super().set_grid_dim(nx, ny, nz)
        how, seed = self.seed % 3, self.seed // 3
        turns = np.arange(nx * ny * nz)
        if how == 1 and len(turns):
            turns = np.roll(turns, -(seed % len(turns)))
        elif how:
            turns = np.random.default_rng(seed).permutation(turns)
        self._turns = turns[::-1] if self.backwards else turns
        JUDGE.begin((nx, ny, nz))

    def set_grid_idx(self, x: int, y: int, z: int) -> None:
        """Say which program runs next."""
        turn = x if self.ends is not None else np.ravel_multi_index((x, y, z), self.grid_dim)
        number = int(self._turns[turn])
        super().set_grid_idx(*map(int, np.unravel_index(number, self.grid_dim)))
        if JUDGE.launch:
            JUDGE.launch.enter(number)


_BUILDERS: list[type] = []
_PATCHED: set[Any] = set()


def _build(part: type) -> None:
    """Let the one builder that the interpreter has be of one more class."""
    _BUILDERS.insert(0, part)
    interpreter.interpreter_builder.__class__ = type("Builder", tuple(_BUILDERS), {})


def _scalars() -> None:
    Launch.conversions.append(_as_scalar)


def _bounds() -> None:
    Launch.conversions.append(_as_pointer)
    _build(JudgedMemory)
    _build(CheckedMemory)  # looks first


def _order() -> None:
    _build(Programs)


def _libdevice() -> None:
    _build(Libdevice)
    connect()


def _arithmetic() -> None:
    _build(Arithmetic)
    interpreter.ReduceOps, interpreter.ScanOps = Reductions, Scans


def _autotune() -> None:
    """Take the first of several configurations: there is no GPU to measure them on, and each should be right."""
    prune = autotuner.Autotuner.prune_configs
    autotuner.Autotuner.prune_configs = lambda self, kwargs: prune(self, kwargs)[:1]


_find_numpy_type = cache(interpreter._get_np_dtype)  # noqa: SLF001  there is no other hook


def _numpy_type(dtype: Any) -> Any:
    """The type in which the interpreter keeps numbers; all pointers are integers."""
    scalar = dtype.scalar
    return np.dtype(np.uint64) if scalar.is_ptr() else _find_numpy_type(scalar)


def _speed() -> None:
    """Triton's functions are exchanged for interpreted ones at every call of a function, which takes most of the time.

    Here they stay exchanged; nothing is compiled in this process. Integers are not computed a second time to see that
    they do not overflow, of which nobody would hear. And the table of numpy's types is made once.
    """
    interpreter._get_np_dtype = _numpy_type  # noqa: SLF001  there is no other hook
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    patch = interpreter._patch_lang  # noqa: SLF001  there is no other hook

    def once(fn: Any) -> Any:
        if fn not in _PATCHED:
            patch(fn)
            _PATCHED.add(fn)
        return interpreter._LangPatchScope()  # noqa: SLF001  nothing to restore

    interpreter._patch_lang = once  # noqa: SLF001


_REFLECTED = (
    *("__add__", "__sub__", "__mul__", "__truediv__", "__floordiv__", "__mod__"),
    *("__and__", "__or__", "__xor__", "__lshift__", "__rshift__"),
    *("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"),
)
"""Operations of a constant that a tensor on the right of it can do as well."""


def _left_to_tensors(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @wraps(operation)
    def compute(constant: Any, other: Any) -> Any:
        return NotImplemented if isinstance(other, tl.tensor) else operation(constant, other)

    return compute


def _constants() -> None:
    """A global `C = tl.constexpr(...)` times a tensor is a tensor: here it is a constant, which no function takes."""
    for name in _REFLECTED:
        setattr(tl.constexpr, name, _left_to_tensors(getattr(tl.constexpr, name)))


REPAIRS: dict[str, Callable[[], None]] = {
    "scalars": _scalars,
    "constants": _constants,
    "bounds": _bounds,
    "order": _order,
    "libdevice": _libdevice,
    "arithmetic": _arithmetic,
    "autotune": _autotune,
    "speed": _speed,
}
"""What is mended; each stands for itself."""


def mend() -> None:
    """Make the interpreter compute as a GPU does. Raises InternalError if Triton compiles in this process."""
    if not isinstance(tl.sum, interpreter.InterpretedFunction):
        raise InternalError("Triton was imported before it was told to interpret")
    interpreter.GridExecutor = Launch
    for repair in REPAIRS.values():
        repair()
