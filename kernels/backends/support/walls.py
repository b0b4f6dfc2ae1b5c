"""Inputs in pages of their own, which may be read and nothing else, between pages that nobody may touch.

What leaves a tensor there, or writes to it, ends the process, and the address is noted: reads behind or before a
tensor change no result, and a write that is taken back is seen in no other way. Red zones
(kernels/backends/support/guard.py) show the rest. A tensor ends where a page does, to the byte, or begins there.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind

SHARE = 8
"""One case in so many is run like this, too."""
PAGE = mmap.PAGESIZE
_GAP = 0xFF
_NONE, _READ = 0, 1
_WRITES = 2
"""The bit of a page fault's error code that says so."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def order_of(case: Case) -> int:
    """The number that decides how a case is run."""
    return case.number


def is_walled(order: int) -> bool:
    """Whether a case is run like this, once more; order: the number that its seeds give."""
    return order % SHARE == 0


@dataclass(frozen=True, slots=True)
class Wall:
    """The place of a tensor between its walls, in bytes from the beginning of all."""

    name: str
    start: int
    """Of its first element."""
    stop: int
    """Behind its last element."""
    pages: tuple[int, int]
    """From where to where its pages go, which may be read."""

    def distance(self, at: int) -> int:
        """Bytes from a place outside to the nearest one inside."""
        return max(self.start - at, at - self.stop + 1, 0)


def walls_of(recipes: Mapping[str, TensorRecipe], order: int) -> list[Wall]:
    """Where the tensors of a case lie: those of one half of the cases end with a page, the others begin with one."""
    walls, at = [], PAGE
    for name, recipe in recipes.items():
        extent = _extent(recipe)
        room = -(-extent // PAGE) * PAGE
        start = at + (0 if order // SHARE % 2 else room - extent)
        walls.append(Wall(name, start, start + extent, (at, at + room)))
        at += room + PAGE
    return walls


class Walled:
    """The inputs of one case."""

    def __init__(self, recipes: Mapping[str, TensorRecipe], inputs: Mapping[str, Array], order: int) -> None:
        self.walls = walls_of({name: recipes[name] for name in inputs}, order)
        size = max((w.pages[1] for w in self.walls), default=PAGE) + PAGE
        room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        np.frombuffer(room, np.uint8)[PAGE:-PAGE] = _GAP
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(room))
        self.views = {w.name: _put(room, w.start, recipes[w.name], inputs[w.name]) for w in self.walls}
        self._protect(0, size, _NONE)
        for w in self.walls:
            self._protect(w.pages[0], w.pages[1] - w.pages[0], _READ)

    def holds(self, address: int) -> str:
        """The name of the tensor that an address points into, or an empty string."""
        at = address - self.address
        return next((w.name for w in self.walls if w.start <= at < max(w.stop, w.start + 1)), "")

    def _protect(self, start: int, size: int, how: int) -> None:
        if size and _libc.mprotect(self.address + start, size, how):
            raise OSError(ctypes.get_errno(), "mprotect")


@dataclass(frozen=True, slots=True)
class Touch:
    """An access that ended a process: to which tensor, or beside which, and where, in bytes from its first element."""

    name: str
    offset: int
    size: int
    """Bytes from its first element to behind its last."""
    writes: bool

    @property
    def kind(self) -> Kind:
        """The verdict that stands for it."""
        return Kind.INPUT_MUTATED if 0 <= self.offset < self.size else Kind.OUT_OF_BOUNDS

    def describe(self) -> str:
        """One sentence."""
        if self.kind is Kind.INPUT_MUTATED:
            return f"it writes to its input {self.name!r}, at byte {self.offset} from its start"
        does = "writes" if self.writes else "reads"
        away = -self.offset
        if away > 0:
            return f"it {does} memory before its input {self.name!r}, {away} byte{'s' * (away != 1)} before its start"
        have = f"which has {self.size} byte{'s' * (self.size != 1)}"
        return f"it {does} memory behind its input {self.name!r}, at byte {self.offset} from its start, {have}"


def touched(recipes: Mapping[str, TensorRecipe], order: int, at: int, error: int) -> Touch | None:
    """The tensor that an access so many bytes from the beginning of all has reached; None: none of them.

    error: the code of the page fault, where the machine says one.
    """
    walls = walls_of(recipes, order)
    if not walls or not 0 <= at < walls[-1].pages[1] + PAGE:
        return None
    near = min(walls, key=lambda w: w.distance(at))
    return Touch(near.name, at - near.start, near.stop - near.start, bool(error & _WRITES))


def _extent(recipe: TensorRecipe) -> int:
    """Bytes from a tensor's first element to behind its last."""
    if not recipe.size:
        return 0
    strides = LAYOUTS[recipe.layout](recipe.shape).strides
    last = sum((n - 1) * step for n, step in zip(recipe.shape, strides, strict=True))
    return (last + 1) * format_of(recipe.dtype).dtype.itemsize


def _put(room: mmap.mmap, start: int, recipe: TensorRecipe, values: Array) -> Array:
    """A view with the recipe's strides, filled."""
    dtype = format_of(recipe.dtype).dtype
    strides = tuple(s * dtype.itemsize for s in LAYOUTS[recipe.layout](recipe.shape).strides)
    view = np.ndarray(recipe.shape, dtype, buffer=room, offset=start, strides=strides)
    if view.size:
        target = view[:1] if strides[:1] == (0,) else view
        target[...] = values[: len(target)] if target.ndim else values
    return view


_CODE = """
@note = global ptr null
@before = global [256 x i8] zeroinitializer
declare i32 @sigaction(i32, ptr, ptr)
declare i32 @raise(i32)
define void @handle(i32 %signal, ptr %info, ptr %context) {{
  %where = getelementptr i8, ptr %info, i64 8
  %code = load i32, ptr %where
  %sent = icmp sle i32 %code, 0
  br i1 %sent, label %pass, label %fault
pass:
  %back = call i32 @sigaction(i32 %signal, ptr @before, ptr null)
  %again = call i32 @raise(i32 %signal)
  ret void
fault:
  %note = load ptr, ptr @note
  %place = getelementptr i8, ptr %info, i64 16
  %address = load i64, ptr %place
  store i64 %address, ptr %note
  %reason = getelementptr i8, ptr %context, i64 {reason}
  %error = load i64, ptr %reason
  %second = getelementptr i8, ptr %note, i64 8
  store i64 %error, ptr %second
  %done = call i32 @sigaction(i32 %signal, ptr @before, ptr null)
  ret void
}}
"""
"""A signal handler, which may not be Python: writes down the address and the error code of a fault, and puts back the
handler that was there before, for which the access is then made again; or the signal, if somebody has sent it."""
_REASON = {"x86_64": 192}
"""Where a machine's ucontext_t has the error code; where none is known, 8 is, which is 0."""
_FLAGS = 4 | 0x08000000 | 0x40000000
"""SA_SIGINFO, SA_ONSTACK, SA_NODEFER."""


class _Action(ctypes.Structure):
    """struct sigaction of Linux's C libraries."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_char * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class FaultNote:
    """The handler, compiled once in the process that all workers are forked from.

    An interpreter of another version of Python may have no llvmlite: there a fault is a crash like any other.
    """

    def __init__(self) -> None:
        self._engine: Any = None
        try:
            from llvmlite import binding as llvm  # noqa: PLC0415  where faults are noted, and nowhere else
        except ImportError:
            return
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        module = llvm.parse_assembly(_CODE.format(reason=_REASON.get(platform.machine(), 8)))
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()

    def write_to(self, address: int) -> None:
        """Note a fault of this process at this address of its own: two numbers of 64 bits."""
        if self._engine is None:
            return
        place = self._engine.get_global_value_address
        ctypes.c_void_p.from_address(place("note")).value = address
        action = _Action(handler=self._engine.get_function_address("handle"), flags=_FLAGS)
        _libc.sigaction(int(signal.SIGSEGV), ctypes.byref(action), ctypes.c_void_p(place("before")))


@cache
def fault_note() -> FaultNote:
    """The one of this process, and of those that it forks."""
    return FaultNote()
