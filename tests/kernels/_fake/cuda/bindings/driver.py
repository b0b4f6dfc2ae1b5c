"""The driver, as far as streams need it: its memory is the host's, and what is enqueued happens at once."""
# ruff: noqa: N802, N816  the driver's names

import ctypes
from types import SimpleNamespace

CALLED = []
"""Names of the functions, as they were called."""
CUfunction_attribute = SimpleNamespace(
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=0, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES=1
)


def _plain(*results):
    def call(*_):
        return (0, *results)

    return call


cuInit = cuCtxSetCurrent = cuCtxSynchronize = cuFuncSetAttribute = _plain()
cuDeviceGet = cuDevicePrimaryCtxRetain = cuModuleLoadData = cuModuleGetFunction = cuFuncGetAttribute = _plain(0)


def cuMemsetD8(address, value, size):
    CALLED.append("set")
    ctypes.memset(address, value, size)
    return (0,)


def cuMemcpyDtoDAsync(target, source, size, stream):
    assert stream
    CALLED.append("copy")
    ctypes.memmove(target, source, size)
    return (0,)


def cuLaunchKernel(*arguments):
    assert arguments[8], "it must be launched on the stream that the copies are"
    CALLED.append("launch")
    return (0,)
