"""The memory a reproducer hands to the kernel, and what is seen in it afterwards."""

import ctypes
import hashlib
import mmap
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kernel_assay.corpus.formats import Array

ZONE = 4096
"""Bytes on either side of an array; a multiple of 256."""


def put(values: Array, strides: Sequence[int] | None = None, offset: int = 0) -> Array:
    """A copy of values, ZONE bytes of 0xFF (as floats: NaN) on either side; strides and offset in elements.

    The buffer starts at a multiple of 256, as buffers of devices do.
    """
    size = values.itemsize
    steps = np.empty(values.shape, values.dtype).strides if strides is None else [s * size for s in strides]
    used = size * (offset + 1) + sum(max(0, n - 1) * step for n, step in zip(values.shape, steps, strict=True))
    room = np.full(256 + ZONE + used + ZONE, 0xFF, np.uint8)
    view: Array = np.ndarray(values.shape, values.dtype, room.data, start_of(room) + offset * size, steps)
    view[...] = values
    return view


def start_of(room: NDArray[np.uint8]) -> int:
    """The byte where a buffer starts in the memory around an array."""
    return ZONE + -int(room.ctypes.data) % 256


def blank(shape: tuple[int, ...], dtype: DTypeLike, byte: int = 0xFF, offset: int = 0) -> Array:
    """An output before the kernel has written it: nothing but this byte; offset: as of put()."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return put(np.frombuffer(bytes([byte]) * size, dtype).reshape(shape), offset=offset)


def around(array: Array) -> NDArray[np.uint8]:
    """The whole memory an array of put() or blank() lies in."""
    return np.asarray(array.base)


def damage(array: Array, before: NDArray[np.uint8]) -> tuple[int, str]:
    """Count the bytes around the elements of an array that changed since its memory was copied, and say where."""
    room = around(array)
    elements = np.zeros(room.size, np.bool_)
    first = array.ctypes.data - room.ctypes.data
    np.ndarray((*array.shape, array.itemsize), np.bool_, elements.data, first, (*array.strides, 1))[...] = True
    spots = np.flatnonzero((room != before) & ~elements) - start_of(room)
    ahead, behind = spots[spots < 0], spots[spots >= 0]
    if ahead.size:
        away = -int(ahead[-1])
        return ahead.size, f"{away} byte{'s' * (away != 1)} before its start"
    return behind.size, f"at byte {behind[0]} from its start" if behind.size else "nowhere"


def element_bytes(array: Array) -> NDArray[np.uint8]:
    """The bytes of each element, in C order."""
    return np.frombuffer(array.tobytes(), np.uint8).reshape(*array.shape, array.itemsize)


def untouched(array: Array, byte: int) -> NDArray[np.bool_]:
    """Elements that are nothing but this byte."""
    found: NDArray[np.bool_] = (element_bytes(array) == byte).all(axis=-1)
    return found


def differing(a: Array, b: Array) -> list[tuple[int, ...]]:
    """Indices of the elements that are not the same bit for bit."""
    different = (element_bytes(a) != element_bytes(b)).any(axis=-1)
    return [tuple(map(int, index)) for index in np.argwhere(different)]


def same_inputs(digest: str, inputs: Mapping[str, tuple[str, Array]]) -> bool:
    """Whether these are the bytes that were recorded."""
    h = hashlib.blake2b(digest_size=16)
    for name, (dtype, array) in inputs.items():
        h.update(f"{name}:{dtype}:{array.shape};".encode())
        h.update(array.tobytes())
    return h.hexdigest() == digest


def holds(array: Array, address: int) -> bool:
    """Whether an address points into the buffer of an array."""
    room = around(array)
    return start_of(room) <= address - room.ctypes.data < room.size - ZONE


def walled(array: Array, *, at_end: bool) -> Array:
    """A copy in pages that may be read only, between pages that nobody may touch; it ends, or begins, with a page."""
    page, strides = mmap.PAGESIZE, array.strides
    size = array.itemsize + sum(max(0, n - 1) * step for n, step in zip(array.shape, strides, strict=True))
    pages = -(-size // page) * page
    room = mmap.mmap(-1, pages + 2 * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = page + (pages - size if at_end else 0)
    view: Array = np.ndarray(array.shape, array.dtype, room, start, strides)
    view[...] = array
    address = ctypes.addressof(ctypes.c_char.from_buffer(room))
    for at, length, allowed in ((0, page, 0), (page, pages, 1), (page + pages, page, 0)):
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + at), ctypes.c_size_t(length), allowed)
    return view


def limit_memory(megabytes: int) -> None:
    """Let this process have so much on top of what it has."""
    import resource  # noqa: PLC0415  only Linux has what is needed here

    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123  shorter where it is read
        used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData:"))
    limit = used + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
