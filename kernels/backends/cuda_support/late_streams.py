"""Streams that a subject must keep to: everything it is given arrives late on one of its own.

A subject that works on another stream, or does not wait for one of its own, computes with what is not there yet, or has
not written when its results are fetched. In part of the cases the second run is such a one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache
from typing import Any

from kernel_assay.kernels.backends.cuda_support.driver import DRIVER

STREAMED = 8
"""One case in so many is run on a stream of its own, too: those whose number (Case.number) leaves LEFT."""
_LEFT = 3
LATE_MICROSECONDS = 500
"""How late the inputs are: longer than it takes from a call to the last launch in it."""
EARLY = 0xFF
"""What lies where they will be."""
_PTX = """
.version 6.0
.target sm_60
.address_size 64

.visible .entry wait(.param .u64 nanoseconds)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [nanoseconds];
    mov.u64 %rd2, %globaltimer;
again:
    mov.u64 %rd3, %globaltimer;
    sub.u64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p1, %rd4, %rd1;
    @%p1 bra again;
    ret;
}
"""


def is_streamed(seed: int, run: int) -> bool:
    """Whether a run of a case is one on a stream of its own."""
    return run == 1 and seed % STREAMED == _LEFT


@cache
def _wait() -> Any:
    return DRIVER.kernels(_PTX.encode() + b"\0", ["wait"])[0]


def arrive_late(stream: int, copies: Iterable[tuple[int, int, int]]) -> None:
    """Enqueue on a stream: nothing for LATE_MICROSECONDS, then copies on the GPU (target, source, bytes).

    What lies at the targets until then is EARLY. stream: its handle.
    """
    pairs = [pair for pair in copies if pair[2]]
    DRIVER.check()  # the sources are there
    for target, _, size in pairs:
        DRIVER.call("cuMemsetD8", target, EARLY, size)
    DRIVER.check()
    nanoseconds = ctypes.c_uint64(1000 * LATE_MICROSECONDS)
    packed = (ctypes.c_void_p * 1)(ctypes.addressof(nanoseconds))
    DRIVER.call("cuLaunchKernel", _wait(), 1, 1, 1, 1, 1, 1, 0, stream, ctypes.addressof(packed), 0)
    for target, source, size in pairs:
        DRIVER.call("cuMemcpyDtoDAsync", target, source, size, stream)
