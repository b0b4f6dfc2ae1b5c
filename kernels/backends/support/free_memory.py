"""Bytes in free memory, so that whoever allocates some and does not write it is seen, each time it is called.

Memory that is free holds what lay there before: often the very result that a kernel left out to write now. Before each
of the two runs another byte is put there, as outputs that are given are poisoned (guard.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np

from kernel_assay.kernels.backends.support.guard import POISONS

BYTES = (0xFE, POISONS[1])
"""Filled in for the first and the second run: the C library can fill in any byte but 0xFF."""
_PERTURB = -6
"""Of mallopt(3): fill what is allocated with the complement of a byte, and what is freed with the byte; 0: do not."""
_NUMPY_KEEPS = 1024
"""Numpy keeps freed arrays of fewer bytes itself, so many of each size:"""
_NUMPY_BLOCKS = 7
_LARGE = 1 << 20
_mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
"""Only the GNU C library has it."""


def blocks(size: int) -> range:
    """As many blocks of a size as are filled where freed memory is kept in a pool; one where that takes much room."""
    return range(3 if size < _LARGE else 1)


@contextmanager
def filled(sizes: Collection[int], run: int) -> Iterator[None]:
    """Let whatever is allocated here be full of the byte of a run; sizes: bytes of arrays that numpy may keep."""
    byte = BYTES[run]
    for size in sizes:
        if size < _NUMPY_KEEPS:
            [np.full(size, byte, np.uint8) for _ in range(_NUMPY_BLOCKS)]  # freed again at once, all of them
    if _mallopt is None:
        yield
        return
    _mallopt(_PERTURB, byte ^ 0xFF)
    try:
        yield
    finally:
        _mallopt(_PERTURB, 0)
