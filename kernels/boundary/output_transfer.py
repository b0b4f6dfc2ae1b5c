"""Outputs handed over to the oracle: in memory of the GPU that is exported, or in memory of the host that is shared.

256 MiB take 2.1 ms by the first on an H200, 211 ms by the second and 1,045 ms by a socket (scripts/bench/handover), so
the second is for where nothing can be exported. Neither is memory that a subject has been given: what its first run
left is copied there. The oracle copies it once more, and answers; until then it is kept. What lies on the host goes
into a file that is sealed, so that nobody can write to it any more: that is not copied. No kernel ever sees memory of
the oracle's.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.process.channel import Message
from kernel_assay.kernels.backends.cuda_support.driver import DRIVER, DriverError, address_of, is_out_of_device_memory

IPC, SHARED = "ipc", "shared"
"""The ways: by CUDA's own handles; by a file in memory, whose pages are locked while they are filled from a GPU."""
HANDLE = 64
"""Bytes of what names memory to another process (CU_IPC_HANDLE_SIZE)."""
Bytes = NDArray[np.uint8]
GRAIN = 2 << 20
"""The driver exports whole pages of so many bytes, and all that lies in them: so they are taken whole."""


_WRITTEN = 1 << 26
"""Bytes that are written to a file at once."""


class Sealed:
    """A host array's values in a file in memory that nobody can change any more; the file is closed with this."""

    def __init__(self, array: Array) -> None:
        """Raises OSError where there is no room."""
        self.size, self.file = array.nbytes, os.memfd_create("output", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        at = 0
        while at < self.size:
            at += os.pwrite(self.file, flat[at : at + _WRITTEN].data, at)
        fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, _SEALS)
        self.array = mapped(self.file, self.size).view(array.dtype).reshape(array.shape)

    def __del__(self) -> None:
        """Let go of the file; what is mapped stays."""
        os.close(self.file)


_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def mapped(file: int, size: int, *, writable: bool = False) -> Bytes:
    """The first bytes of a file in memory; of one that somebody may still write to, a copy.

    writable: what is written to them stays here. Raises OSError if it has fewer.
    """
    if not size:
        return np.zeros(0, np.uint8)
    if os.fstat(file).st_size < size:
        raise OSError(f"a file of {os.fstat(file).st_size} bytes is offered as one of {size}")
    access = mmap.ACCESS_COPY if writable else mmap.ACCESS_READ
    values = np.frombuffer(mmap.mmap(file, size, access=access), np.uint8)
    return values if fcntl.fcntl(file, fcntl.F_GET_SEALS) & _SEALS == _SEALS else values.copy()


def bytes_of(values: Any) -> bytes:
    """Bytes of what is to be handed over: bytes already, what is sealed, or a flat tensor of torch's of uint8."""
    if isinstance(values, Sealed):
        return values.array.tobytes()
    return values if isinstance(values, bytes) else bytes(values.cpu().numpy())


@dataclass(slots=True)
class OutputHandover:
    """Copies of some outputs, until they are given back."""

    offers: list[Message] = field(default_factory=list)
    """How the oracle gets at each, in order."""
    _memory: list[int] = field(default_factory=list)
    """Addresses on the GPU."""
    _files: list[int] = field(default_factory=list)

    def add(self, values: Any, way: str) -> None:
        """Lend one: bytes, what is sealed, or a flat tensor of torch's of uint8, by the host if it lies there.

        Raises DriverError or MemoryError if there is no room.
        """
        if isinstance(values, Sealed):
            self._files.append(os.dup(values.file))
            self.offers.append(self._offered(values.size))
            return
        on_gpu = not isinstance(values, bytes) and values.is_cuda
        offer = self._exported(values) if on_gpu and way == IPC else None
        self.offers.append(offer or self._shared(values, on_gpu=on_gpu))

    def give_back(self) -> None:
        """Give outputs back that nobody needs any more."""
        while self._memory:
            DRIVER.call("cuMemFree", self._memory.pop())
        while self._files:
            os.close(self._files.pop())

    def _exported(self, values: Any) -> Message | None:
        """None where the driver does not export."""
        size = values.numel()
        DRIVER.check()  # whatever wrote them, on whichever stream, is done
        address = _taken(-(-max(1, size) // GRAIN) * GRAIN)
        self._memory.append(address)
        try:
            handle = DRIVER.call("cuIpcGetMemHandle", address)
        except DriverError:
            return None
        if size:
            DRIVER.call("cuMemcpyDtoD", address, values.data_ptr(), size)
        DRIVER.check()
        named = ctypes.string_at(handle.getPtr(), HANDLE)  # the bindings show its bytes in some versions only
        return {"way": IPC, "handle": named.hex(), "bytes": size}

    def _shared(self, values: Any, *, on_gpu: bool) -> Message:
        size = values.numel() if on_gpu else memoryview(values).nbytes
        self._files.append(os.memfd_create("output"))
        if size:
            os.ftruncate(self._files[-1], size)
            room = np.frombuffer(mmap.mmap(self._files[-1], size), np.uint8)
            if on_gpu:
                _fetch(address_of(room), values.data_ptr(), size)
            else:
                room[...] = np.frombuffer(values, np.uint8)
        return self._offered(size)

    def _offered(self, size: int) -> Message:
        return {"way": SHARED, "pid": os.getpid(), "file": self._files[-1], "bytes": size}


def lent(payload: Sequence[Any], way: str) -> OutputHandover:
    """Outputs, each offered; nothing, if there is no way. Raises DriverError or MemoryError if there is no room."""
    handover = OutputHandover()
    try:
        for values in payload if way else ():
            handover.add(values, way)
    except BaseException:
        handover.give_back()
        raise
    return handover


def _taken(size: int) -> int:
    """Memory of the driver's own; what torch keeps for later is in the way at most once."""
    try:
        return int(DRIVER.call("cuMemAlloc", size))
    except DriverError as error:
        if not is_out_of_device_memory(error):
            raise
    import torch  # noqa: PLC0415  values on a GPU are torch's

    torch.cuda.empty_cache()
    return int(DRIVER.call("cuMemAlloc", size))


def _fetch(address: int, source: int, size: int) -> None:
    """Copy from the GPU, to pages that are locked if the system allows."""
    DRIVER.check()
    try:
        DRIVER.call("cuMemHostRegister", address, size, 0)
    except DriverError:
        DRIVER.call("cuMemcpyDtoH", address, source, size)
        return
    DRIVER.call("cuMemcpyDtoH", address, source, size)
    DRIVER.call("cuMemHostUnregister", address)
