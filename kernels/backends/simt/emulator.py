"""Calls the emulator: one launch of one kernel, by ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

from kernel_assay.kernels.backends.simt.toolchain import Built, Mode, build, runtime

ORDERS = ("identity", "reverse", "shuffle", "random", "rotate", "starve")
"""In which threads may run, see runtime/schedule.cpp; Order in runtime.h has the same."""


class Trouble(IntEnum):
    """The reason why a launch was ended; runtime.h has the same."""

    NONE = 0
    MEMORY_FAULT = 1
    STACK_OVERFLOW = 2
    ARITHMETIC = 3
    TRAP = 4
    MISALIGNED = 5
    DIVERGENT_BARRIER = 6
    DEADLOCK = 7
    BAD_MASK = 8
    OUT_OF_BOUNDS = 9
    RACE = 10
    UNINITIALIZED = 11
    READ_ONLY = 12
    BAD_INDEX = 13
    UNDEFINED_LANE = 14
    SKIPPED_BARRIER = 15
    UNSUPPORTED = 16
    ENDED_LANE = 17
    LAUNCH_BOUNDS = 18
    UNDEFINED_RESULT = 19


class Argument(ctypes.Structure):
    """One argument of a kernel, in each of the forms a parameter may want (entry.h has the same)."""

    _fields_ = (("address", ctypes.c_void_p), ("real", ctypes.c_double), ("whole", ctypes.c_longlong))


class Fault(ctypes.Structure):
    """A fault of a launch (runtime.h has the same)."""

    _fields_ = (
        ("trouble", ctypes.c_int32),
        ("region", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("bytes", ctypes.c_int32),
        ("writes", ctypes.c_int32),
        ("thread", ctypes.c_int32),
        ("other", ctypes.c_int32),
        ("other_writes", ctypes.c_int32),
        ("block", ctypes.c_uint32),
        ("other_block", ctypes.c_uint32),
        ("line", ctypes.c_int32),
        ("pc", ctypes.c_uint64),
        ("other_pc", ctypes.c_uint64),
        ("file", ctypes.c_char * 256),
        ("text", ctypes.c_char * 256),
    )


class _Region(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_size_t), ("bytes", ctypes.c_uint64), ("traits", ctypes.c_int32))


class _Subscript(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("line", ctypes.c_int32),
        ("column", ctypes.c_int32),
        ("closing_line", ctypes.c_int32),
        ("closing_column", ctypes.c_int32),
        ("further", ctypes.c_int32),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic_shared", ctypes.c_uint32),
        ("static_shared", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("regions", ctypes.POINTER(_Region)),
        ("region_count", ctypes.c_uint32),
        ("shared_count", ctypes.c_uint32),
        ("shared_arrays", ctypes.POINTER(_Region)),
        ("variables", ctypes.POINTER(_Region)),
        ("variable_count", ctypes.c_uint32),
        ("subscripts", ctypes.POINTER(_Subscript)),
        ("subscript_count", ctypes.c_uint32),
        ("warnings", ctypes.c_uint32),
        ("check", ctypes.c_uint32),
        ("ends", ctypes.c_uint32),
        ("undefined_byte", ctypes.c_uint32),
        ("shares", ctypes.c_uint32),
        ("is_plain", ctypes.c_uint32),
        ("switches", ctypes.c_uint64),
        ("fault", Fault),
        ("warning", Fault),
    )


READ_ONLY, UNDEFINED, SHARED = 1, 2, 4
"""Traits of a region (runtime.h has the same): nobody may write; undefined until it is written; of one block."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Memory that a kernel is given."""

    name: str
    address: int
    bytes: int
    itemsize: int
    is_output: bool
    gaps: bool = False
    """Whether there is something between its elements."""
    is_defined: bool = False
    """Whether an output may be read before it is written."""

    @property
    def traits(self) -> int:
        """Its traits as a region."""
        return (0 if self.is_defined else UNDEFINED) if self.is_output else READ_ONLY


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a launch: blocks and threads along x, y, z, and bytes of dynamic shared memory."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    dynamic_shared: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a launch."""

    fault: Fault
    """Its trouble is NONE if nothing went wrong."""
    warning: Fault
    warnings: int
    """Writes that nothing ordered and that changed nothing, undefined values, and barriers that threads skip; the first
    of them is `warning`."""
    switches: int
    """From one thread to another."""


@cache
def _load_runtime(path: Path) -> ctypes.CDLL:
    """Once a process, and before the libraries of kernels, which would load another by its name."""
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


class Module:
    """A compiled file in one mode."""

    def __init__(self, path: Path, entries: Sequence[str], mode: Mode) -> None:
        self.built: Built = build(path, entries, mode)
        self.mode = mode
        _load_runtime(runtime())
        self._library = ctypes.CDLL(str(self.built.library))
        # Looked up once: each time it takes as long as a small kernel.
        self._launches = [self._library[f"simt_launch_{number}"] for number in range(len(entries))]
        self._takes = [self._taken(number) for number in range(len(entries))]
        self._arrays = (_Region * len(self.built.shared))(
            *(_Region(a.offset, a.size, SHARED if a.name else 0) for a in self.built.shared)
        )
        self._variables = (_Region * len(self.built.variables))(
            *(_Region(v.offset, v.size, READ_ONLY if v.is_constant else 0) for v in self.built.variables)
        )
        places = self.built.subscripts
        self._subscripts = (_Subscript * len(places))(
            *(_Subscript(p.file.encode(), p.name.encode(), *p[2:]) for p in places)
        )

    def takes(self, number: int) -> list[str]:
        """Types of a kernel's parameters: three letters each, see `describe` in entry.h."""
        return self._takes[number]

    def _taken(self, number: int) -> list[str]:
        takes = self._library[f"simt_takes_{number}"]
        takes.restype = ctypes.c_char_p
        text = takes().decode()
        return [text[i : i + 3] for i in range(0, len(text), 3)]

    def launch(
        self,
        number: int,
        shape: Shape,
        arguments: Sequence[Argument],
        tensors: Sequence[Tensor],
        order: str,
        seed: int,
        ends: int = 0,
        undefined: int = 0,
        *,
        shares: bool = False,
    ) -> Outcome:
        """Run a kernel. tensors: all that it may touch; regions of a fault are numbered as in `owners`.

        ends: so many blocks from either end of the grid, and no others; 0: all. undefined: the byte of which
        undefined values are made. shares: in check mode, whether blocks lose their turn at atomic operations, too.
        """
        how = _Launch(grid=shape.grid, block=shape.block, dynamic_shared=shape.dynamic_shared, ends=ends)
        how.static_shared = self.built.shared_bytes
        how.order, how.seed, how.undefined_byte = ORDERS.index(order), seed, undefined
        if self.mode is Mode.CHECK:
            regions = (_Region(t.address, t.bytes, t.traits) for t in tensors)
            how.shares = shares
            how.check, how.region_count, how.shared_count = 1, len(tensors), len(self._arrays)
            how.regions, how.shared_arrays = (_Region * len(tensors))(*regions), self._arrays
            how.variables, how.variable_count = self._variables, len(self._variables)
            how.subscripts, how.subscript_count = self._subscripts, len(self._subscripts)
        self._launches[number](ctypes.byref(how), (Argument * len(arguments))(*arguments))
        return Outcome(how.fault, how.warning, how.warnings, how.switches)


class Program:
    """A file in all modes, each built when it is first wanted."""

    def __init__(self, path: Path, entries: Sequence[str]) -> None:
        self.path = path
        self._entries = tuple(entries)
        self._modules: dict[Mode, Module] = {}

    @property
    def fast(self) -> Module:
        """The library as it stands."""
        return self.module(Mode.FAST)

    def module(self, mode: Mode) -> Module:
        """The library of one mode."""
        if mode not in self._modules:
            self._modules[mode] = Module(self.path, self._entries, mode)
        return self._modules[mode]
