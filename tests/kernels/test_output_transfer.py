"""Outputs on a GPU are offered as they must be, to a driver that stands for CUDA's: what is called, in which order.

What a real one does, tests/oracles/test_holder.py and tests/fuzz/test_large_held.py ask where there is a GPU.
"""

import ctypes

import numpy as np
import pytest

from kernel_assay.kernels.backends.cuda_support.driver import DriverError
from kernel_assay.kernels.boundary import output_transfer
from kernel_assay.kernels.boundary.output_transfer import GRAIN, IPC, SHARED, bytes_of, lent

torch = pytest.importorskip("torch")

from kernel_assay.oracles.device.holder import Holder  # noqa: E402  it imports torch

KEY = ("op/mine", "out")


class Handle:
    """As the bindings give it: 64 bytes, here the address and the size."""

    def __init__(self, address):
        self.room = ctypes.create_string_buffer(address.to_bytes(8, "little"), 64)

    def getPtr(self):  # noqa: N802  the bindings' name
        return ctypes.addressof(self.room)


class Driver:
    """Memory of the host in place of the GPU's; what was called."""

    def __init__(self, *refused):
        self.refused, self.called, self.memory = list(refused), [], {}

    def check(self):
        self.called.append("check")

    def call(self, function, *arguments):
        self.called.append(function)
        if function in self.refused:
            self.refused.remove(function)
            raise DriverError(f"{'CUDA_ERROR_OUT_OF_MEMORY' if function == 'cuMemAlloc' else 'refused'}: {function}")
        if function == "cuMemAlloc":
            room = ctypes.create_string_buffer(arguments[0])
            self.memory[ctypes.addressof(room)] = room
            return ctypes.addressof(room)
        if function == "cuMemFree":
            del self.memory[arguments[0]]
        elif function == "cuIpcGetMemHandle":
            return Handle(arguments[0])
        elif function in {"cuMemcpyDtoD", "cuMemcpyDtoH"}:
            ctypes.memmove(*arguments)
        return None


class OnGpu:
    """A flat tensor that says that it is there."""

    is_cuda = True

    def __init__(self, values):
        self.values = torch.from_numpy(values)

    def numel(self):
        return self.values.numel()

    def data_ptr(self):
        return self.values.data_ptr()

    def cpu(self):
        return self.values


class Gpu:
    """The judge's end of it."""

    def __init__(self):
        self.called = []

    def opened(self, handle):
        self.called.append("opened")
        return int.from_bytes(handle[:8], "little")

    def copy(self, address, source, size):
        self.called.append("copied")
        ctypes.memmove(address, source, size)

    def closed(self, address):
        self.called.append("closed")

    def pin(self, data):
        self.called.append("pinned")
        return True

    def unpin(self, data):
        self.called.append("unpinned")

    def send(self, address, data):
        self.called.append("sent")
        ctypes.memmove(address, data.ctypes.data, data.nbytes)


@pytest.fixture
def driver(monkeypatch):
    def install(*refused):
        made = Driver(*refused)
        monkeypatch.setattr(output_transfer, "DRIVER", made)
        return made

    return install


def handed_over(way, values):
    """What arrives, and what both ends called."""
    holder = Holder("cpu")
    holder._gpu = Gpu()
    handover = lent([OnGpu(values)], way)
    (offer,) = handover.offers
    assert holder.take(KEY, {**offer, "dtype": "uint8", "shape": [values.size]}) == {"taken": True}
    handover.give_back()
    return holder._held[KEY].numpy(), offer["way"], holder._gpu.called


VALUES = np.random.default_rng(1).integers(0, 256, 3 << 20).astype(np.uint8)


def test_memory_of_its_own_is_exported_when_all_is_done_and_closed_when_it_is_copied(driver):
    made = driver()
    got, way, called = handed_over(IPC, VALUES)
    assert (way, got.tobytes()) == (IPC, VALUES.tobytes())
    order = ["check", "cuMemAlloc", "cuIpcGetMemHandle", "cuMemcpyDtoD", "check", "cuMemFree"]
    assert (made.called, called, made.memory) == (order, ["opened", "copied", "closed"], {})


def test_whole_pages_are_exported(driver):
    made = driver()
    handover = lent([OnGpu(VALUES), OnGpu(VALUES[:0])], IPC)
    assert [len(room) for room in made.memory.values()] == [2 * GRAIN, GRAIN]
    assert [offer["bytes"] for offer in handover.offers] == [3 << 20, 0]
    handover.give_back()


def test_by_the_host_pages_are_locked_on_either_side(driver):
    made = driver()
    got, way, called = handed_over(SHARED, VALUES)
    assert (way, got.tobytes()) == (SHARED, VALUES.tobytes())
    assert made.called == ["check", "cuMemHostRegister", "cuMemcpyDtoH", "cuMemHostUnregister"]
    assert called == ["pinned", "sent", "unpinned"]


@pytest.mark.parametrize(("way", "refused"), [(IPC, "cuIpcGetMemHandle"), (SHARED, "cuMemHostRegister")])
def test_what_the_driver_refuses_is_done_otherwise(driver, way, refused):
    made = driver(refused)
    got, offered, _ = handed_over(way, VALUES)
    assert (offered, got.tobytes(), made.memory) == (SHARED, VALUES.tobytes(), {})


def test_where_there_is_no_room_what_torch_keeps_is_given_back_once(driver, monkeypatch):
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    driver("cuMemAlloc")
    assert handed_over(IPC, VALUES)[1] == IPC
    made = driver("cuMemAlloc", "cuMemAlloc")
    with pytest.raises(DriverError, match="OUT_OF_MEMORY"):
        lent([OnGpu(VALUES)], IPC)
    assert (emptied, made.memory) == ([True, True], {})


def test_without_a_way_nothing_is_lent():
    assert lent([b"abc"], "").offers == []
    assert bytes_of(OnGpu(VALUES)) == VALUES.tobytes()
    assert bytes_of(b"abc") == b"abc"
