"""Interpreted Triton in check mode: races between programs, and reads of memory that nobody has written.

A launch is judged whatever the order was in which its programs ran. What it may touch at all is checked in every run
(bounds.py). Undefined memory are the outputs, and what torch.empty and its like have given, as long as neither torch
nor a kernel has written it; it holds a known byte, so that a write by anybody else is seen, too.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch.overrides import TorchFunctionMode
from triton.runtime import interpreter

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.kernels.backends.support.free_memory import BYTES
from kernel_assay.kernels.backends.support.signature import KernelFaultError
from kernel_assay.kernels.backends.triton_cpu.bounds import LAUNCHED, Region, width_of
from kernel_assay.kernels.backends.triton_cpu.happens_before import ATOMIC, MOST_SITES, Mask, Order, program_of, site_of
from kernel_assay.kernels.backends.triton_cpu.places import kernel_line, line_words, program_words
from kernel_assay.kernels.backends.triton_cpu.shadow import Addresses, Clash, Shadow

_UNDEFINED = BYTES[1]
"""What outputs and free memory are full of in the run that is checked, the second one."""
_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"})
_SEMANTICS = interpreter._ir.MEM_SEMANTIC  # noqa: SLF001  there is no other name for it
_ACQUIRES = (_SEMANTICS.ACQUIRE, _SEMANTICS.ACQUIRE_RELEASE)
_RELEASES = (_SEMANTICS.RELEASE, _SEMANTICS.ACQUIRE_RELEASE)
_OWN_BLOCK = interpreter._ir.MEM_SYNC_SCOPE.CTA  # noqa: SLF001  as above
"""The scope of atomic operations that are none between programs."""


class _Undefined:
    """Memory of a tensor that nobody has written yet, and which bytes of it are still so."""

    def __init__(self, tensor: Any) -> None:
        self._tensor, self._version = tensor, tensor._version  # noqa: SLF001  torch counts what it writes there
        region = Region("", tensor)
        self.start, self.stop = region.start, region.stop
        self._bytes = np.ones(self.stop - self.start, np.bool_)

    def look(self) -> None:
        """Leave out what was written between two launches."""
        if self._tensor._version != self._version:  # noqa: SLF001  as above
            self._bytes[:] = False
        there = (ctypes.c_uint8 * len(self._bytes)).from_address(self.start)
        self._bytes &= np.frombuffer(memoryview(there), np.uint8) == _UNDEFINED

    def read(self, at: Addresses, width: int) -> Mask:
        """A mask of the addresses at which all bytes are undefined."""
        return np.asarray(self._bytes[self._places(at, width)].all(axis=1))

    def write(self, at: Addresses, width: int) -> None:
        """Note that these bytes are defined now."""
        self._bytes[self._places(at, width)] = False

    def holds(self, low: int, high: int) -> bool:
        """Whether all of these addresses are its own."""
        return self.start <= low and high <= self.stop

    def _places(self, at: Addresses, width: int) -> Any:
        return (at - np.uint64(self.start)).astype(np.intp)[:, None] + np.arange(width)


class Launched:
    """A launch as far as it has got. Its methods raise KernelFaultError."""

    def __init__(self, regions: Sequence[Region], grid: tuple[int, ...], judge: Judge) -> None:
        self._regions, self._grid, self._judge = list(regions), grid, judge
        self._order = Order(int(np.prod(grid)))
        self._shadows = _shadows(self._regions) if np.prod(grid) > 1 else []
        self._starts = [shadow.start for shadow in self._shadows]
        self._sites: dict[tuple[str, int], int] = {}
        self._warned = False
        self.unwritten = ""
        """A sentence on the first read of undefined memory: who wrote it in the meantime would race."""

    def enter(self, program: int) -> None:
        """Go on with another program."""
        self._order.enter(program)

    def read(self, at: Addresses, width: int, *, atomic: bool = False) -> None:
        """Judge a load."""
        stamp = self._order.stamp(self._site(), atomic * ATOMIC)
        self._look(at, width, stamp)
        for shadow, mine in self._parts(at, width):
            self._clashed("reads", shadow.read(at[mine], width, stamp, self._order), at[mine], stamp)

    def write(self, at: Addresses, width: int, changed: Mask, *, atomic: bool = False) -> None:
        """Judge a store. changed: a mask of the addresses at which it makes a difference."""
        stamp = self._order.stamp(self._site(), atomic * ATOMIC)
        for area in self._judge.undefined_in(at, width):
            area.write(at, width)
        for shadow, mine in self._parts(at, width):
            if atomic:
                clash = shadow.update(at[mine], width, stamp, self._order)
            else:
                clash = shadow.write(at[mine], width, stamp, self._order, changed[mine])
            self._clashed("writes", clash, at[mine], stamp)

    def update(self, at: Addresses, width: int, *, atomic: bool) -> None:
        """Judge what reads and writes. atomic: for other programs, too."""
        self._look(at, width, self._order.stamp(self._site()))
        self.write(at, width, np.ones(at.shape, np.bool_), atomic=atomic)

    def _look(self, at: Addresses, width: int, stamp: int) -> None:
        """Note the first read of what nobody has written."""
        for area in [] if self.unwritten else self._judge.undefined_in(at, width):
            if (found := area.read(at, width)).any():
                self.unwritten = f"{self._told('reads', int(at[found][0]), stamp)}, which nobody has written"

    def lost(self, address: int) -> None:
        """Raise for a store of several values to one address."""
        told = self._told("writes", address, self._order.stamp(self._site()))
        raise KernelFaultError(Kind.RACE, f"{told}, with several values at once, of which any may stay")

    def acquire(self, at: Addresses, width: int) -> None:
        """Let the program come after those who have released there."""
        for shadow, mine in self._parts(at, width):
            shadow.acquire(at[mine], width, self._order)

    def release(self, at: Addresses, width: int, *, anew: bool = False) -> None:
        """Let those who acquire there come after it."""
        for shadow, mine in self._parts(at, width):
            shadow.release(at[mine], width, self._order, anew=anew)

    def _parts(self, at: Addresses, width: int) -> Iterator[tuple[Shadow, Any]]:
        """Shadows in which some of the addresses lie, and which do."""
        if not self._shadows:
            return
        first, last = (bisect_right(self._starts, int(a)) - 1 for a in (at.min(), at.max()))
        if first == last:
            yield self._shadows[first], slice(None)
            return
        for shadow in self._shadows[first : last + 1]:
            mine = (at >= shadow.start) & (at + np.uint64(width) <= shadow.stop)
            if mine.any():
                yield shadow, mine

    def _clashed(self, verb: str, clash: Clash | None, at: Addresses, stamp: int) -> None:
        if clash is None or (clash.benign and self._warned):
            return
        did = "wrote" if clash.other_wrote else "read"
        who = f"{self._program(clash.other)} {did}{self._line(clash.other)}"
        said = f"{self._told(verb, int(at[clash.number]), stamp)}, which {who}, and nothing orders the two"
        if not clash.benign:
            raise KernelFaultError(Kind.RACE, said)
        self._warned = True
        self._judge.warnings.append(said)

    def _told(self, verb: str, address: int, stamp: int) -> str:
        region = next(r for r in self._regions if r.start <= address < r.stop)
        return f"{self._program(stamp)} {verb} {region.element(address)}{self._line(stamp)}"

    def _program(self, stamp: int) -> str:
        return program_words(np.unravel_index(program_of(stamp), self._grid), self._grid)

    def _site(self) -> int:
        """The number of the line at which the kernel is."""
        place = kernel_line()
        return self._sites.setdefault(place, min(len(self._sites) + 1, MOST_SITES))

    def _line(self, stamp: int) -> str:
        place = next((place for place, number in self._sites.items() if number == site_of(stamp)), None)
        return line_words(place) if place else ""


def _shadows(regions: Sequence[Region]) -> list[Shadow]:
    """One for each piece of memory in which arguments lie, however many share it."""
    found: list[tuple[int, int, int]] = []
    for region in sorted(regions, key=lambda r: r.start):
        start, stop, grain = region.start, region.stop, region.size
        if found and start < found[-1][1]:
            before = found.pop()
            start, stop, grain = before[0], max(stop, before[1]), min(grain, before[2])
        if stop > start:
            found.append((start, stop, grain))
    return [Shadow(*one) for one in found]


class Judge:
    """Knows the run in progress, and its launch."""

    def __init__(self) -> None:
        self.checked = self._watches = False
        self.launch: Launched | None = None
        self.warnings: list[str] = []
        self._undefined: list[_Undefined] = []

    def prepare(self, *, checked: bool) -> None:
        """Begin a run."""
        self.checked, self.warnings, self._undefined = checked, [], []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Judge what is launched here, if the run is one of those."""
        if not self.checked:
            yield
            return
        with _Allocations():
            self._watches = True
            try:
                yield
            finally:
                self._watches, self._undefined = False, []

    def allocated(self, tensor: Any) -> None:
        """Note memory that holds nothing yet."""
        if self.checked and tensor.numel() and tensor.device.type == "cpu":
            self._undefined.append(_Undefined(tensor))

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Judge a launch, which says itself when it begins. Raises KernelFaultError."""
        try:
            yield
        except KernelFaultError as fault:
            if fault.kind is not Kind.RACE:
                self._check_undefined()
            raise
        else:
            self._check_undefined()
        finally:
            self.launch = None

    def begin(self, grid: tuple[int, ...]) -> None:
        """Tell the extent of a launch."""
        if self._watches:
            for area in self._undefined:
                area.look()
            self.launch = Launched(LAUNCHED, grid, self)

    def undefined_in(self, at: Addresses, width: int) -> list[_Undefined]:
        """Memory of a tensor that was undefined once, if all of the addresses lie there."""
        if not self._undefined:
            return []
        low, high = int(at.min()), int(at.max()) + width
        return [area for area in self._undefined if area.holds(low, high)]

    def _check_undefined(self) -> None:
        if self.launch is not None and self.launch.unwritten:
            raise KernelFaultError(Kind.UNINITIALIZED, self.launch.unwritten) from None


JUDGE = Judge()


class _Allocations(TorchFunctionMode):
    """Notes what torch gives that holds nothing yet."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch."""
        made = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in _EMPTY:
            JUDGE.allocated(made)
        return made


class JudgedMemory(interpreter.InterpreterBuilder):  # type: ignore[misc]
    """Tells the judge of accesses that were found to be within bounds."""

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, cache_policy: Any, is_volatile: Any) -> Any:
        """Load; a volatile load counts as an atomic one that orders nothing."""
        found = super().create_masked_load(ptrs, mask, other, cache_policy, is_volatile)
        if JUDGE.launch and (at := _taken(ptrs.data, ptrs, mask)).size:
            JUDGE.launch.read(at, width_of(ptrs), atomic=bool(is_volatile))
        return found

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, cache_policy: Any) -> Any:
        """Store, and look whether each lane's value has stayed."""
        if not JUDGE.launch or not (at := _taken(ptrs.data, ptrs, mask)).size:
            return super().create_masked_store(ptrs, value, mask, cache_policy)
        width = width_of(ptrs)
        wanted = _taken(value.data, ptrs, mask).view(f"u{width}")
        JUDGE.launch.write(at, width, _there(at, width) != wanted)
        super().create_masked_store(ptrs, value, mask, cache_policy)
        if (lost := _there(at, width) != wanted).any():
            JUDGE.launch.lost(int(at[lost][0]))
        return None

    def create_atomic_load(self, ptr: Any, mask: Any, sem: Any, scope: Any) -> Any:
        """Load, which may acquire."""
        found = super().create_atomic_load(ptr, mask, sem, scope)
        self._tell(ptr, mask, sem if scope != _OWN_BLOCK else None, writes=False)
        return found

    def create_atomic_poll(self, ptr: Any, expected: Any, timeout_ns: Any, sem: Any, scope: Any) -> Any:
        """Wait for a value, which may acquire."""
        found = super().create_atomic_poll(ptr, expected, timeout_ns, sem, scope)
        self._tell(ptr, None, sem if scope != _OWN_BLOCK else None, writes=False)
        return found

    def create_atomic_store(self, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        """Store, which may release; nobody who acquires it comes after an earlier release."""
        launch, JUDGE.launch = JUDGE.launch, None
        try:
            super().create_atomic_store(ptr, val, mask, sem, scope)
        finally:
            JUDGE.launch = launch
        if launch and (at := _taken(ptr.data, ptr, mask)).size:
            atomic = scope != _OWN_BLOCK
            launch.write(at, width_of(ptr), np.ones(at.shape, np.bool_), atomic=atomic)
            if atomic and sem in _RELEASES:
                launch.release(at, width_of(ptr), anew=True)

    def create_atomic_rmw(self, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        """Read, modify and write."""
        self._update(ptr, mask, sem, scope)
        return super().create_atomic_rmw(op, ptr, val, mask, sem, scope)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        """Compare and swap; it releases whether it swaps or not."""
        self._update(ptr, None, sem, scope)
        return super().create_atomic_cas(ptr, cmp, val, sem, scope)

    def _update(self, ptr: Any, mask: Any, sem: Any, scope: Any) -> None:
        at = _taken(ptr.data, ptr, mask) if JUDGE.launch else ptr.data[:0]
        if JUDGE.launch and at.size:
            atomic = scope != _OWN_BLOCK
            JUDGE.launch.update(at, width_of(ptr), atomic=atomic)
            self._tell(ptr, mask, sem if atomic else None, writes=True)

    def _tell(self, ptr: Any, mask: Any, sem: Any, *, writes: bool) -> None:
        if JUDGE.launch and (at := _taken(ptr.data, ptr, mask)).size:
            if sem in _ACQUIRES:
                JUDGE.launch.acquire(at, width_of(ptr))
            if writes and sem in _RELEASES:
                JUDGE.launch.release(at, width_of(ptr))


def _taken(data: Array, ptrs: Any, mask: Any) -> Any:
    """Take of some data what the mask allows, in a row."""
    shape = ptrs.data.shape
    whole = np.broadcast_to(data, shape)
    return np.ascontiguousarray(
        whole if mask is None or mask.data.all() else whole[np.broadcast_to(mask.data, shape)]
    ).ravel()


def _there(at: Addresses, width: int) -> Array:
    """Read what memory holds now, as integers."""
    kind = np.dtype(f"u{width}")
    return np.asarray(interpreter._interpreter.load(at, np.ones(at.shape, np.bool_), np.zeros(at.shape, kind), kind))  # noqa: SLF001
