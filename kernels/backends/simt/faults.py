"""Words for what the emulator saw, and the verdict that stands for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.kernels.backends.simt.emulator import Fault, Shape, Tensor, Trouble
from kernel_assay.kernels.backends.simt.toolchain import Built, place_of
from kernel_assay.kernels.backends.support.signature import KernelFaultError

_KINDS = {
    Trouble.MEMORY_FAULT: Kind.CRASHED,
    Trouble.STACK_OVERFLOW: Kind.CRASHED,
    Trouble.ARITHMETIC: Kind.CRASHED,
    Trouble.TRAP: Kind.CRASHED,
    Trouble.MISALIGNED: Kind.CRASHED,
    Trouble.DIVERGENT_BARRIER: Kind.DIVERGENT,
    Trouble.DEADLOCK: Kind.DIVERGENT,
    Trouble.BAD_MASK: Kind.DIVERGENT,
    Trouble.OUT_OF_BOUNDS: Kind.OUT_OF_BOUNDS,
    Trouble.RACE: Kind.RACE,
    Trouble.UNINITIALIZED: Kind.UNINITIALIZED,
    Trouble.READ_ONLY: Kind.INPUT_MUTATED,
    Trouble.BAD_INDEX: Kind.OUT_OF_BOUNDS,
    Trouble.LAUNCH_BOUNDS: Kind.CRASHED,
}
_ACCESSES = {Trouble.RACE, Trouble.OUT_OF_BOUNDS, Trouble.UNINITIALIZED, Trouble.READ_ONLY}
_SENTENCES = {
    Trouble.MEMORY_FAULT: "memory fault at {said} by {who}{at}",
    Trouble.STACK_OVERFLOW: "the stack of {who} overflowed{at}: 64 KB of local variables and calls are emulated",
    Trouble.ARITHMETIC: "division of an integer by zero by {who}{at}",
    Trouble.TRAP: "{said} by {who}{at}",
    Trouble.MISALIGNED: "misaligned address {said} by {who}{at}",
    Trouble.DIVERGENT_BARRIER: "divergent barrier: {who} is {said}{at}",
    Trouble.DEADLOCK: "deadlock in block {block}: {said}{at}",
    Trouble.BAD_MASK: "{said}, by {who}{at}",
    Trouble.OUT_OF_BOUNDS: "{who} {access}{at}{size}",
    Trouble.RACE: "{who} {access}{at}, {other}, and {doubt}",
    Trouble.UNINITIALIZED: "{who} {access}{at}, which nobody has written",
    Trouble.READ_ONLY: "{who} {access}{at}, {input}",
    Trouble.BAD_INDEX: "{who} uses {said}{at}{size}",
    Trouble.UNDEFINED_LANE: "{said}: an undefined value, of {who}{at}",
    Trouble.UNDEFINED_RESULT: "{said} gives {who} an undefined value{at}: the result is the first thread's",
    Trouble.UNSUPPORTED: "{said} is not emulated{at}",
    Trouble.LAUNCH_BOUNDS: "the launch fails: {said}",
    Trouble.ENDED_LANE: "{who} has ended and is named in the mask of {said}{at}: it is not waited for",
    Trouble.SKIPPED_BARRIER: "{who} has ended and skips a barrier{at}, though it has reached an earlier one: undefined,"
    " while today's GPUs wait for nobody who has ended",
}
_SWAP = b"compare-and-swap"
"""The text of a race that is none; runtime.h has the same."""
_UNORDERED = "nothing orders the two"
_SWAPPED = "a compare-and-swap of the same word sees whether it has changed since"
_SIZED = {Trouble.OUT_OF_BOUNDS, Trouble.BAD_INDEX}
_DYNAMIC = "dynamic shared memory"


@dataclass(frozen=True, slots=True)
class Scene:
    """The scene of a fault: what was launched, and what it was given."""

    source: Path
    built: Built
    shape: Shape
    tensors: Sequence[Tensor]
    shown: Callable[[str], str] = lambda file: Path(file).name
    """How a file is called."""

    def fault(self, fault: Fault) -> Exception:
        """The fault as what a loader raises."""
        if fault.trouble == Trouble.UNSUPPORTED:
            return NotImplementedError(self.describe(fault))
        return KernelFaultError(_KINDS[Trouble(fault.trouble)], self.describe(fault))

    def describe(self, fault: Fault) -> str:
        """One sentence."""
        trouble = Trouble(fault.trouble)
        return _SENTENCES[trouble].format(
            said=fault.text.decode("utf-8", "replace") or "an address that cannot be",
            who=self.who(fault),
            block=_place(fault.block, self.shape.grid),
            at=self._where(fault),
            access=self.access(fault) if trouble in _ACCESSES else "",
            size=self._size(fault) if trouble in _SIZED else "",
            other=self._other(fault) if trouble is Trouble.RACE else "",
            doubt=_SWAPPED if fault.text == _SWAP else _UNORDERED,
            input="an input" if fault.region < len(self.tensors) else "a constant",
        )

    def who(self, fault: Fault) -> str:
        """Words for the thread, or for what does a thread's work on the host."""
        if fault.thread < 0:
            return fault.file.decode("utf-8", "replace") or "the host"
        return f"{self._thread(fault.thread)} of block {_place(fault.block, self.shape.grid)}"

    def _thread(self, number: int) -> str:
        return f"thread {_place(number, self.shape.block)}"

    def _where(self, fault: Fault) -> str:
        """The place in brackets, with a space before; empty if nobody knows."""
        if fault.line:
            return self._line(fault.file.decode("utf-8", "replace"), fault.line)
        place = place_of(self.built.library, fault.pc, self.source) if fault.pc else None
        return self._line(*place) if place else ""

    def _line(self, file: str, line: int) -> str:
        return f" ({self.shown(file)}, line {line})"

    def access(self, fault: Fault) -> str:
        """Words for what is read or written."""
        reads = not fault.writes or fault.trouble == Trouble.UNINITIALIZED  # an atomic function does both
        return f"{'reads' if reads else 'writes'} {self._element(fault)}"

    def _element(self, fault: Fault) -> str:
        """Words for what is accessed, by name and index."""
        if fault.region < 0:
            return f"{fault.bytes} byte{'s' * (fault.bytes != 1)} far from everything it was given"
        count = len(self.tensors)
        if fault.region < count:
            tensor = self.tensors[fault.region]
            index, rest = divmod(fault.offset, tensor.itemsize)
            inside = f", byte {rest} of it" if rest else ""
            more = f" and {fault.bytes // tensor.itemsize - 1} behind it" if fault.bytes > tensor.itemsize else ""
            return f"{tensor.name}[{index}]{inside}{more}"
        name = self._untyped(fault.region - count)[0]
        return f"{fault.bytes} byte{'s' * (fault.bytes != 1)} at byte {fault.offset} of {name}"

    def _size(self, fault: Fault) -> str:
        """Words for the size of what was run over."""
        count = len(self.tensors)
        if fault.trouble == Trouble.BAD_INDEX:
            return f", but it has {fault.bytes} element{'s' * (fault.bytes != 1)}"
        if fault.region < 0:
            return ""
        if fault.region < count:
            tensor = self.tensors[fault.region]
            elements = tensor.bytes // tensor.itemsize
            if tensor.gaps:
                return f", but it ends with {tensor.name}[{elements - 1}], its gaps counted"
            return f", but it has {elements} element{'s' * (elements != 1)}"
        return f", but it has {self._untyped(fault.region - count)[1]} bytes"

    def _untyped(self, number: int) -> tuple[str, int]:
        """Name and bytes of a variable: shared ones, then dynamic shared memory, then those of the device."""
        shared = [(array.name, array.size) for array in self.built.shared]
        variables = [(variable.name, variable.size) for variable in self.built.variables]
        return [*shared, (_DYNAMIC, self.shape.dynamic_shared), *variables][number]

    def _other(self, fault: Fault) -> str:
        did = "wrote" if fault.other_writes else "read"
        did += " in the background" if fault.text not in {b"", _SWAP} else ""
        block = "" if fault.other_block == fault.block else f" of block {_place(fault.other_block, self.shape.grid)}"
        place = place_of(self.built.library, fault.other_pc, self.source) if fault.other_pc else None
        return f"which {self._thread(fault.other)}{block} {did}{self._line(*place) if place else ''}"


def _place(number: int, extent: Sequence[int]) -> str:
    """Along x, y, z; as short as the extent allows."""
    at = [number % extent[0], number // extent[0] % extent[1], number // extent[0] // extent[1]]
    used = max((i for i, n in enumerate(extent) if n > 1), default=0) + 1
    return str(at[0]) if used == 1 else f"({', '.join(map(str, at[:used]))})"
