"""A GPU through the driver's own interface: memory, kernels, launches. Worker processes only ever call it."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NoReturn
from weakref import ReferenceType, ref

import numpy as np
from numpy.lib.array_utils import byte_bounds

from kernel_assay.corpus.formats import Array
from kernel_assay.kernels.backends.support.guard import ALIGNMENT, ZONE

GPU_LOST = 87
"""Exit code of a worker in which nothing runs on the GPU any more; its last line says why."""


@cache
def device_count() -> int:
    """Count the driver's GPUs. The driver is asked itself, so that nothing is imported and no context is made."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


_LISTENERS: list[Callable[[str], None]] = []


def when_lost(tell: Callable[[str], None]) -> None:
    """Have somebody told why nothing runs on the GPU any more: until the process is gone takes a fifth of a second."""
    _LISTENERS.append(tell)


def give_up(error: object) -> NoReturn:
    """End the process, for nothing runs on the GPU any more in it: who is next must have another."""
    for tell in _LISTENERS:
        tell(str(error))
    sys.stdout.flush()
    sys.stderr.write(f"\n{error}\n")
    sys.stderr.flush()
    os._exit(GPU_LOST)


EXACT = "KERNEL_ASSAY_EXACT"
"""Environment variable, not empty where compute-sanitizer watches: every tensor gets an allocation of its own, of
exactly its bytes and without red zones, and nothing is fetched."""
BLANK: set[int] = set()
"""Addresses of outputs that are not copied to the GPU, where they hold what nobody has written."""


def exact() -> bool:
    """Whether allocations are exact in this process: an overrun inside a larger one, nobody outside could see."""
    return bool(os.environ.get(EXACT))


STICKY = frozenset(
    {
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_MPS_CLIENT_TERMINATED",
        "CUDA_ERROR_MPS_CONNECTION_FAILED",
        "CUDA_ERROR_MPS_RPC_FAILURE",
        "CUDA_ERROR_MPS_SERVER_NOT_READY",
    }
)
"""After these nothing runs on the GPU any more in this process."""


MOST_SHARED = 227 << 10
"""Bytes of shared memory that a block may have on a GPU of today."""


class DriverError(RuntimeError):
    """A call that the driver refused."""


class LaunchError(DriverError):
    """A launch that the driver refused."""


_REFUSED = re.compile(r"invalid configuration|too many resources|out of resources|OUT_OF_RESOURCES", re.IGNORECASE)
"""What libraries say of launches that were refused; the driver forgets them."""


def is_launch_failure(error: BaseException) -> bool:
    """Whether an exception, of any library, means that a kernel could not be launched."""
    return isinstance(error, LaunchError) or (
        type(error).__module__ != "builtins" and bool(_REFUSED.search(str(error)))
    )


def is_out_of_device_memory(error: BaseException) -> bool:
    """Whether an exception, of any library, means that the GPU's memory ran out."""
    return "OUT_OF_MEMORY" in str(error) or type(error).__name__ == "OutOfMemoryError"


class Driver:
    """The first GPU, in the context that other libraries of this process use too."""

    @cached_property
    def _cuda(self) -> Any:
        from cuda.bindings import driver  # noqa: PLC0415  only worker processes ever import it

        return driver

    def call(self, function: str, *arguments: Any) -> Any:
        """A function of the driver: its result. Raises DriverError; ends the process if nothing can run in it."""
        error, *rest = getattr(self._cuda, function)(*arguments)
        if int(error):
            name, words = (getattr(self._cuda, f"cuGetError{w}")(error)[1].decode() for w in ("Name", "String"))
            if name in STICKY:
                give_up(f"{name}: {words}")
            raise (LaunchError if function == "cuLaunchKernel" else DriverError)(f"{name}: {words}")
        return rest[0] if len(rest) == 1 else tuple(rest)

    @cached_property
    def context(self) -> Any:
        """Made when it is first asked for."""
        self.call("cuInit", 0)
        context = self.call("cuDevicePrimaryCtxRetain", self.call("cuDeviceGet", 0))
        self.call("cuCtxSetCurrent", context)
        return context

    @cached_property
    def architecture(self) -> str:
        """The architecture as compilers call it, sm_90."""
        assert self.context is not None
        device = self.call("cuDeviceGet", 0)
        kinds = self._cuda.CUdevice_attribute
        major, minor = (
            self.call("cuDeviceGetAttribute", getattr(kinds, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{part}"), device)
            for part in ("MAJOR", "MINOR")
        )
        return f"sm_{major}{minor}"

    def kernels(self, binary: bytes, names: Sequence[str]) -> list[Any]:
        """The kernels of a compiled file."""
        assert self.context is not None
        module = self.call("cuModuleLoadData", binary)
        found = [self.call("cuModuleGetFunction", module, name.encode()) for name in names]
        most = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        static = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        for kernel in found:
            room = MOST_SHARED - self.call("cuFuncGetAttribute", static, kernel)
            self.call("cuFuncSetAttribute", kernel, most, room)
        return found

    def check(self) -> None:
        """Wait for all that was launched, by whatever library; ends the process if nothing can run in it any more."""
        assert self.context is not None
        self.call("cuCtxSynchronize")

    def launch(
        self, kernel: Any, grid: Sequence[int], block: Sequence[int], shared: int, values: Any, *, wait: bool = True
    ) -> None:
        """Run a kernel. values: the arguments' values and their ctypes, as the bindings want them.

        wait: to its end; else whoever fetches what it has left waits, and is told what became of it.
        """
        self.call("cuLaunchKernel", kernel, *grid, *block, shared, 0, values, 0)
        if wait:
            self.check()


DRIVER = Driver()


@dataclass(slots=True)
class Arena:
    """Memory of the GPU that windows are cut from, grown when a case wants more."""

    base: int = 0
    size: int = 0
    used: int = 0

    def reset(self, wanted: int) -> None:
        """Begin anew, with room for so many bytes."""
        self.used = 0
        if wanted > self.size:
            assert DRIVER.context is not None
            if self.base:
                DRIVER.call("cuMemFree", self.base)
            self.size = 2 * wanted
            self.base = int(DRIVER.call("cuMemAlloc", self.size))

    def take(self, size: int, shift: int) -> int:
        """An address that is as far from a multiple of ALIGNMENT as `shift` says."""
        at = -(-self.used // ALIGNMENT) * ALIGNMENT + shift
        self.used = at + size
        return self.base + at


@dataclass(slots=True)
class Apart(Arena):
    """Memory in which every window has an allocation of its own, of exactly its bytes."""

    held: list[int] = field(default_factory=list)

    def reset(self, wanted: int) -> None:
        """Begin anew; what was taken is given back."""
        del wanted
        assert DRIVER.context is not None
        while self.held:
            DRIVER.call("cuMemFree", self.held.pop())

    def take(self, size: int, shift: int) -> int:
        """As in an arena; before the address, and nowhere else, lie the bytes that a misaligned one needs."""
        self.held.append(int(DRIVER.call("cuMemAlloc", max(1, shift + size))))
        return self.held[-1] + shift


class Window:
    """Some memory of the host with a red zone on either side (none: see EXACT), and its copy on the GPU.

    What is between the elements of a tensor is copied with them, and back with the zones: so the guards see what
    becomes of it.
    """

    def __init__(self, address: int, size: int, zone: int | None = None) -> None:
        """zone: bytes of red zone on either side; None: as usual."""
        zone = (0 if exact() else ZONE) if zone is None else zone
        self.start, self.size = address - zone, size + 2 * zone
        self._device = 0

    @classmethod
    def of(cls, view: Array) -> Window:
        """The window from the first to the last element of a view."""
        low, high = bounds_of(view)
        return cls.at(low, high - low)

    @classmethod
    def at(cls, address: int, size: int) -> Window:
        """Place the window on so many bytes: on what is staged, if they lie there."""
        staged = next((window for _, window in _STAGED), None)
        if staged is not None and staged.start <= address and address + size <= staged.start + staged.size:
            return staged
        return cls(address, size)

    @property
    def shift(self) -> int:
        """Bytes beyond a multiple of ALIGNMENT: an address is as well aligned on the GPU, and no better."""
        return self.start % ALIGNMENT

    @property
    def blank(self) -> bool:
        """Whether it is an output that must not be written before the subject does."""
        return self.start in BLANK

    @property
    def host(self) -> Array:
        """Copy its bytes to the host."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.size).from_address(self.start))

    def first(self, view: Array) -> int:
        """The byte in it where the first element of a view lies."""
        return address_of(view) - self.start

    @property
    def room(self) -> int:
        """Bytes that it takes of an arena, at most."""
        return self.size + 2 * ALIGNMENT

    def send(self, arena: Arena) -> None:
        """Copy it to the GPU."""
        self._device = arena.take(self.size, self.shift)
        if self.size and not self.blank:
            DRIVER.call("cuMemcpyHtoD", self._device, self.start, self.size)

    def there(self, address: int) -> int:
        """The address on the GPU of what lies at an address of the host."""
        return self._device + address - self.start

    def fetch(self) -> None:
        """Copy all of it back; not where allocations are exact: to copy what nobody has written is an error there.

        What runs on the default stream has come to its end then, for good or ill.
        """
        if not exact():
            DRIVER.call("cuMemcpyDtoH", self.start, self._device, self.size)


_STAGED: list[tuple[ReferenceType[Array], Window]] = []
"""A window on the memory that was staged last, which is not kept for that."""


def stage(slab: Array) -> None:
    """Copy all bytes of this memory together from now on: one copy costs hardly more for being larger."""
    if not any(staged() is slab for staged, _ in _STAGED):
        _STAGED[:] = [] if exact() else [(ref(slab), Window(address_of(slab), slab.nbytes, zone=0))]


def address_of(view: Array) -> int:
    """Address of the first element."""
    return int(view.__array_interface__["data"][0])


def bounds_of(view: Array) -> tuple[int, int]:
    """Addresses where its elements begin and end, with all that is between them."""
    return byte_bounds(view) if view.size else (address_of(view), address_of(view))


def lend_all(
    args: Sequence[Any], kwargs: Mapping[str, Any], lend: Callable[[Array], Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments with what `lend` makes of every array among them."""

    def lent(value: Any) -> Any:
        return lend(value) if isinstance(value, np.ndarray) else value

    return [lent(a) for a in args], {name: lent(value) for name, value in kwargs.items()}


def send_all(arena: Arena, windows: Sequence[Window]) -> None:
    """Copy several to the GPU, side by side."""
    arena.reset(sum(w.room for w in windows))
    for window in windows:
        window.send(arena)
