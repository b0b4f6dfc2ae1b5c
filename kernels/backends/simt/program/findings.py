"""Findings of a program that ran in the emulator: from the memory they were written to, to records in words."""

from __future__ import annotations

import ctypes
import mmap
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernel_assay.corpus.model.base import Record
from kernel_assay.kernels.backends.simt.emulator import ORDERS, Fault, Shape, Tensor, Trouble
from kernel_assay.kernels.backends.simt.faults import Scene
from kernel_assay.kernels.backends.simt.program.compile import Program
from kernel_assay.kernels.backends.simt.program.elements import element_bytes
from kernel_assay.kernels.backends.simt.toolchain import Built, SharedArray, frames_of, place_of


class Misuse(IntEnum):
    """Findings beside those of a launch; program/watch.h has the same."""

    USE_AFTER_FREE = 64
    DOUBLE_FREE = 65
    BAD_FREE = 66
    LEAK = 67
    HOST_ACCESS = 68
    HOST_MEMORY = 69
    CONSTANT_WRITE = 70
    API_ERROR = 71
    COPIED_UNDEFINED = 72
    COPIED_BEYOND = 73
    UNSYNCHRONIZED = 74
    HOST_CRASH = 75
    STREAM_RACE = 76
    HOST_ADDRESS = 77


_WORDS = {
    Misuse.USE_AFTER_FREE: "{who} {access}{at}, which was freed{freed}",
    Misuse.DOUBLE_FREE: "{memory} is freed again{at}; it was freed{freed}",
    Misuse.BAD_FREE: "{freed_what}",
    Misuse.LEAK: "{memory} is never freed: {bytes} bytes",
    Misuse.HOST_ACCESS: "the host {verb} {memory}{at}, memory of the device",
    Misuse.HOST_MEMORY: "{who} {verb} {bytes} bytes at {said}{at}, memory of the host, or far outside of all",
    Misuse.CONSTANT_WRITE: "{who} {access}{at}, constant memory",
    Misuse.API_ERROR: "{said}{at}",
    Misuse.COPIED_UNDEFINED: "{said} copies {bytes} bytes from byte {offset} of {memory}{at}, which nobody has written",
    Misuse.COPIED_BEYOND: "{said} {verb} {bytes} bytes from byte {offset} of {memory}{at}, but it has {whole} bytes",
    Misuse.UNSYNCHRONIZED: "the host {verb} {memory}{at}, while {other} may still {others} it: the host has not waited",
    Misuse.STREAM_RACE: "{who} {access}{at}, while {other}, in another stream, may still {others} it",
    Misuse.HOST_ADDRESS: "{passer} {said}{at}, {meaning}",
    Misuse.HOST_CRASH: "the program itself ended{at}: {said}",
}
KINDS = {
    Trouble.RACE: "race",
    Trouble.OUT_OF_BOUNDS: "out-of-bounds",
    Trouble.BAD_INDEX: "out-of-bounds",
    Trouble.UNINITIALIZED: "uninitialized",
    Trouble.MISALIGNED: "misaligned",
    Trouble.DIVERGENT_BARRIER: "divergent-barrier",
    Trouble.SKIPPED_BARRIER: "skipped-barrier",
    Trouble.DEADLOCK: "deadlock",
    Trouble.BAD_MASK: "bad-mask",
    Trouble.UNDEFINED_LANE: "undefined-lane",
    Trouble.UNDEFINED_RESULT: "undefined-result",
    Trouble.ENDED_LANE: "ended-lane",
    Trouble.MEMORY_FAULT: "illegal-address",
    Trouble.STACK_OVERFLOW: "stack-overflow",
    Trouble.ARITHMETIC: "division-by-zero",
    Trouble.TRAP: "trap",
    Trouble.READ_ONLY: "constant-write",
}
_ALLOCATES = re.compile(
    r"cuda(?:Malloc|HostAlloc|HostRegister)\w*\s*(?:<[^>]*>)?\s*\(\s*(?:\([^()]*\)\s*)?(&?[\w.\->\[\]]+)"
    r"|(\w+)\s*=\s*(?:\([^()]*\)\s*|\w+_cast\s*<[^>]*>\s*\(\s*)?(?:malloc\s*\(|new\b)"
)
_CALL = re.compile(
    r"<(?:cuda(?:Malloc|HostAlloc|HostRegister)\w*|(?:__wrap_)?malloc|_Zn[wa][mj])@plt>\n\s*([0-9a-f]+):"
)
_MAIN = re.compile(r"^(?:\w[\w\s:]*?)?\bmain\s*\(", re.MULTILINE)
_MEANINGS = {
    5: "an address of the host: cudaGetSymbolAddress gives the device's",
    6: "an address of the host: cudaGetSymbolAddress gives the device's",
    9: "an address of the host: a variable of the device that holds it can be copied",
    10: "whose virtual functions are the host's: a kernel must construct it",
}
"""By kind in program/watch.h."""
_SHARED = 8
PADDING = 64
"""Bytes: as many and more in a row are no gap of a structure."""
_NOWHERE = Path("-")
_SEVERAL = 2


class Memory(ctypes.Structure):
    """Some memory; program/watch.h has the same."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("freed", ctypes.c_int32),
        ("bytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("made_pc", ctypes.c_uint64),
        ("freed_pc", ctypes.c_uint64),
        ("name", ctypes.c_char * 64),
        ("made", ctypes.c_uint64 * 12),
        ("gone", ctypes.c_uint64 * 12),
        ("parameter", ctypes.c_int32),
    )


class Entry(ctypes.Structure):
    """A finding, and how often it was seen; program/watch.h has the same."""

    _fields_ = (
        ("fault", Fault),
        ("memory", Memory),
        ("count", ctypes.c_uint64),
        ("harmless", ctypes.c_uint32),
        ("by_way_of", ctypes.c_uint64 * 12),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("launch_line", ctypes.c_int32),
        ("launch_file", ctypes.c_char * 256),
        ("kernel", ctypes.c_char * 128),
    )


class Table(ctypes.Structure):
    """Memory that a program and the process that started it share; program/watch.h has the same."""

    _fields_ = (
        ("count", ctypes.c_uint32),
        ("lost", ctypes.c_uint32),
        ("launches", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("outcome", ctypes.c_uint64),
        ("running_line", ctypes.c_int32),
        ("running_file", ctypes.c_char * 256),
        ("running", ctypes.c_char * 128),
        ("refused", ctypes.c_char * 512),
        ("asking", ctypes.c_uint64 * 12),
        ("records", Entry * 512),
    )


def table_in(file: int, seed: int) -> Table:
    """The table in a file, made for one run: of the order that a seed stands for."""
    memory = mmap.mmap(file, ctypes.sizeof(Table))
    table = Table.from_buffer(memory)
    table.seed, table.order = seed, seed % len(ORDERS)
    return table


class Place(Record):
    """A line of a source."""

    file: str
    line: int


class ProgramFinding(Record):
    """One finding: all that was seen at the same two lines."""

    kind: str
    """race, out-of-bounds, uninitialized, use-after-free and so on."""
    message: str
    """One sentence of its first occurrence."""
    harmless: bool = False
    """Whether it is only told of: writes of the same value, undefined values, barriers that ended threads skip."""
    place: Place | None = None
    other: Place | None = None
    """The other access of a race; where memory was freed."""
    memory: str = ""
    """A variable, or what was allocated."""
    parameter: str = ""
    """The kernel's parameter by which that was passed, where one is known."""
    allocated: Place | None = None
    kernel: str = ""
    launch: Place | None = None
    count: int = 1
    """How often it was seen, in all runs."""
    order: str
    """The order of threads that showed it first, and its seed."""
    seed: int


class ProgramRun(Record):
    """The runs of a program."""

    sources: tuple[str, ...]
    runs: int
    launches: int
    """Of kernels, in the first run."""
    exit_code: int | None
    """The program's own, of the first run; negative: the signal that ended it; None: it did not end in time."""
    findings: tuple[ProgramFinding, ...] = ()
    fast: bool = False
    """Whether it ran in fast mode, in which no access is judged."""
    replay: str = ""
    """A command that repeats what the first finding needs."""


@dataclass(frozen=True, slots=True)
class Telling:
    """Finds words and lines for what was seen."""

    program: Program

    def findings(self, table: Table) -> Iterator[ProgramFinding]:
        """The findings of a run, each with its first occurrence."""
        for number in range(table.count):
            yield self._finding(table.records[number], table)

    def refusal(self, table: Table) -> str:
        """Say what the program asks for that is not emulated, and where; empty if there is nothing."""
        lines = self._calls_of(table.asking)  # of the kernel that is called, and of the call
        return _text(table.refused) + self._said(lines[:2][-1] if lines else None)

    def _finding(self, e: Entry, table: Table) -> ProgramFinding:
        fault, misuse = e.fault, e.fault.trouble >= Misuse.USE_AFTER_FREE
        fault.pc = self._own(fault.pc, e.by_way_of)
        name, allocated = self._owner(e.memory)
        parameter = self._parameter(e)
        name = name or parameter
        launch = Place(file=self._path(_text(e.launch_file)), line=e.launch_line) if e.launch_line else None
        padding = (
            fault.trouble == Misuse.COPIED_UNDEFINED and fault.bytes < PADDING and not self._element(name, e.memory)
        )
        kind = Misuse(fault.trouble).name.lower().replace("_", "-") if misuse else KINDS[Trouble(fault.trouble)]
        return ProgramFinding(
            kind=kind,
            message="".join(
                (
                    self._misuse(e, name) if misuse else self._fault(e, name),
                    self._helped(e.memory, name),
                    f"; passed as {parameter}" if parameter not in {"", name} else "",
                    "; it may be a gap of a structure" if padding else "",
                    "; it wrote what was there, with these values" if e.harmless and kind == "race" else "",
                )
            ),
            harmless=bool(e.harmless) or padding,
            place=self._place(fault) or (allocated if kind == "leak" else None),
            other=self._freed(e.memory) if misuse else self._at(fault.other_pc),
            memory=name,
            parameter=parameter,
            allocated=allocated,
            kernel=_text(e.kernel),
            launch=launch,
            count=e.count,
            order=ORDERS[table.order],
            seed=table.seed,
        )

    def launched(self, table: Table) -> Place:
        """The line of the launch that is running."""
        return Place(file=self._path(_text(table.running_file)), line=table.running_line)

    def main(self) -> Place | None:
        """The line of the main function, where a line begins with it."""
        found = ((path, text, _MAIN.search(text)) for path, text in self.program.texts.items())
        places = ((self._path(str(p.absolute())), t.count("\n", 0, m.end()) + 1) for p, t, m in found if m)
        return next((Place(file=file, line=line) for file, line in places), None)

    def _at(self, pc: int) -> Place | None:
        """The line of an instruction, if it is known."""
        found = place_of(self.program.executable, pc, _NOWHERE) if pc else None
        return Place(file=self._path(found[0]), line=found[1]) if found else None

    def _own(self, pc: int, callers: Sequence[int]) -> int:
        """Find the innermost instruction of the program's own lines, in which not all of Thrust is inlined."""
        return next((at for at in filter(None, (pc, *callers)) if self._calls_of((at,))), pc)

    def _place(self, fault: Fault) -> Place | None:
        if fault.line:
            return Place(file=self._path(_text(fault.file)), line=fault.line)
        return self._at(fault.pc)

    def _path(self, file: str) -> str:
        """The path of a source as it was given, by the name of its file."""
        same = {str(path.absolute()): path for path in self.program.texts if path.name == Path(file).name}
        exact = next((path for whole, path in same.items() if whole.endswith(file) or file.endswith(whole)), None)
        found = exact or next(iter(same.values()), Path(file))
        here = Path.cwd()
        return str(found.relative_to(here) if found.is_relative_to(here) else found)

    def _shown(self, file: str) -> str:
        """The name of a file, with its folders where the program has another one of that name."""
        name = Path(file).name
        return name if sum(path.name == name for path in self.program.texts) < _SEVERAL else self._path(file)

    def _said(self, place: Place | None) -> str:
        return f" ({self._shown(place.file)}, line {place.line})" if place else ""

    def _owner(self, memory: Memory) -> tuple[str, Place | None]:
        """Name some memory, and say where it was made."""
        if name := _text(memory.name):
            declared = self.program.variables.get(name)
            return name, Place(file=str(declared[0]), line=declared[1]) if declared else None
        made = next(iter(self._calls_of(memory.made)), None) or self._at(memory.made_pc)
        if not memory.kind or not made:
            return "", made
        return self._variable(made, memory.made_pc) or f"what line {made.line} allocates", made

    def _parameter(self, e: Entry) -> str:
        """The parameter of the kernel by which its launch passed the memory; empty if that is not clear."""
        names = self.program.parameters.get(_text(e.kernel).partition("<")[0].rpartition("::")[2], ())
        return names[e.memory.parameter - 1] if 0 < e.memory.parameter <= len(names) else ""

    def _freed(self, memory: Memory) -> Place | None:
        return next(iter(self._calls_of(memory.gone)), None) or self._at(memory.freed_pc)

    def _helped(self, memory: Memory, name: str) -> str:
        """Words for who asked for an allocation that a function of the program makes for others."""
        lines = self._calls_of(memory.made)
        by = ", for ".join(self._said(place).strip(" ()") for place in lines[:2])
        return f"; {name}: allocated in {by}" if name and len(lines) > 1 else ""

    def _calls_of(self, pcs: Sequence[int]) -> list[Place]:
        """The lines of the program's own sources that led to a call, the innermost first; what is inlined, too."""
        found = frames_of(self.program.executable, tuple(filter(None, pcs)))
        names = {path.name for path in self.program.texts}
        return [Place(file=self._path(file), line=line) for file, line in found if Path(file).name in names]

    def _variable(self, made: Place, pc: int) -> str:
        """The variable that an allocating call fills, as its line has it."""
        lines = self.program.texts.get(Path(made.file), "").splitlines()[made.line - 1 : made.line + 1]
        if not lines:
            return ""
        found = list(_ALLOCATES.finditer("\n".join(lines)))
        here = [m for m in found if m.start() <= len(lines[0])] or found[:1]
        names = [(m[1] or m[2]).lstrip("&") for m in here]
        if len(names) < 2:
            return "".join(names)
        calls = self._calls(made)  # a function that is inlined, or a template, has each several times
        return names[calls.index(pc) % len(names)] if pc in calls and not len(calls) % len(names) else ""

    def _calls(self, made: Place) -> list[int]:
        """List the addresses that the allocating calls of a line come back to, in the order of the code."""
        return [pc for pc in _allocating_calls(self.program.executable) if self._at(pc) == made]

    def _scene(self, e: Entry, name: str) -> tuple[Scene, Fault]:
        """The launch as faults.py describes one, with the one memory that counts, by its name."""
        fault = Fault.from_buffer_copy(e.fault)
        size = self._element(name, e.memory)
        rest = e.memory.offset % max(size, 1)
        fits = size > 0 and e.memory.bytes % size == 0
        fits = fits and (rest + fault.bytes <= size or not (rest or fault.bytes % size))
        arrays, tensors = tuple[SharedArray, ...](), tuple[Tensor, ...]()
        if e.memory.kind == _SHARED or (name and not (fits and " " not in name)):
            arrays = (SharedArray(name, "", 0, e.memory.bytes),)
        elif name:
            tensors = (Tensor(name, 0, e.memory.bytes, size, is_output=True),)
        fault.region = 0 if name else -1
        fault.offset = e.memory.offset if name else fault.offset
        grid, block = (tuple(max(n, 1) for n in extent) for extent in (e.grid, e.block))  # 0: the host's
        shape = Shape(grid, block, e.memory.bytes)
        return Scene(_NOWHERE, Built(self.program.executable, arrays), shape, tensors, self._shown), fault

    def _element(self, name: str, memory: Memory) -> int:
        """Bytes of an element of a variable; 0: unknown."""
        owner, made = self._owner(memory)
        lines = self.program.texts.get(Path(made.file), "").splitlines()[: made.line] if owner and made else []
        text = "\n".join(self.program.texts.values())
        return element_bytes(name, "\n".join(lines), text, is_array=bool(memory.name))

    def _fault(self, e: Entry, name: str) -> str:
        scene, fault = self._scene(e, name)
        words = scene.describe(fault).removeprefix("divergent barrier: ")
        if name and fault.trouble == Trouble.MISALIGNED:
            words = re.sub(r"address 0x[0-9a-f]+", f"address, byte {e.memory.offset} of {name},", words, count=1)
        return words

    def _misuse(self, e: Entry, name: str) -> str:
        scene, fault = self._scene(e, name)
        said: dict[str, Any] = {
            "who": scene.who(fault) if fault.thread >= 0 else _text(fault.file) or _text(fault.text) or "the host",
            "passer": f"{scene.who(fault)} reads" if fault.thread >= 0 else "the host passes",
            "meaning": _MEANINGS.get(e.memory.kind, ""),
            "access": scene.access(fault),
            "verb": "writes" if fault.writes else "reads",
            "memory": name or "memory",
            "at": self._said(self._place(fault)),
            "freed": self._said(self._freed(e.memory)),
            "other": _text(fault.text) + self._said(self._freed(e.memory)),
            "others": "write" if fault.other_writes else "read",
            "said": _text(fault.text),
            "freed_what": _wrongly_freed(e.memory, name or "memory", self._said(self._place(fault))),
            "bytes": fault.bytes or e.memory.bytes,
            "offset": e.memory.offset,
            "whole": e.memory.bytes,
        }
        return _WORDS[Misuse(fault.trouble)].format(**said)


@lru_cache(maxsize=16)
def _allocating_calls(executable: Path) -> tuple[int, ...]:
    """Addresses that all allocating calls of a program come back to, in the order of the code."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(executable)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return tuple(int(m[1], 16) for m in _CALL.finditer(said))


def _wrongly_freed(memory: Memory, name: str, at: str) -> str:
    """Why what is freed cannot be, or not so."""
    if not memory.kind:
        return f"what is freed{at} is none of the device's memory"
    if memory.offset:
        return f"byte {memory.offset} of {name} is freed{at}, which is not its beginning"
    return f"{name} is freed{at} as another kind of memory: cudaFree is for cudaMalloc, cudaFreeHost for cudaMallocHost"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def merged(findings: Sequence[ProgramFinding]) -> tuple[ProgramFinding, ...]:
    """One finding for each kind and pair of lines, with all occurrences counted."""
    found: dict[tuple[Any, ...], ProgramFinding] = {}
    for one in findings:
        lines = sorted((p.file, p.line) for p in (one.place, one.other) if p)
        key = (one.kind, one.harmless, *lines, one.memory, one.message if one.kind == "api-error" else "")
        known = found.get(key)
        found[key] = known.model_copy(update={"count": known.count + one.count}) if known else one
    real = {(key[0], *key[2:]) for key in found if not key[1]}
    told = [one for key, one in found.items() if not key[1] or (key[0], *key[2:]) not in real]
    return tuple(sorted(told, key=lambda f: f.harmless))
