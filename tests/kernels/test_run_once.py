"""One run without a sandbox, and the allocations that it makes where a tool watches: the bytes of a tensor, no more."""

import ctypes
import json
import re
import subprocess
import sys
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Status
from kernel_assay.corpus.process.child import command_of
from kernel_assay.fuzz.triage.sanitize import order_of
from kernel_assay.kernels.backends import cuda as cuda_backend
from kernel_assay.kernels.backends import torch as torch_backend
from kernel_assay.kernels.backends.cuda_support import driver, gpu_memory
from kernel_assay.kernels.backends.cuda_support.driver import EXACT, Apart, Window
from kernel_assay.kernels.backends.support.guard import Guarded
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.kernels.nvidia import run_once
from kernel_assay.kernels.nvidia.run_once import Order, run
from kernel_assay.oracles.catalog import contract_of

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("_fake")
FILL = Fill(distribution="normal", seed=1)
CUDA = """/*
---
op = "silu"
entry = "silu"
args = ["out", "x", "n"]
dims = { n = "x.size" }
grid = "ceil_div(n, 32)"
block = 32
---
*/
__global__ void silu(float* out, const float* x, int n) {
  int i = blockIdx.x * 32 + threadIdx.x;
  if (i < n) out[i] = x[i] / (1 + expf(-x[i]));
}
"""


def silu(shape=(3, 5), layout="contiguous", dtype="float32"):
    return Case(op="silu", tensors={"x": TensorRecipe(shape=shape, dtype=dtype, layout=layout, fill=FILL)})


def kernel(folder, body, head="", name="mine.py"):
    path = folder / name
    path.write_text(f'{head}OP = "silu"\n\n\ndef run(out, x):\n    {body}\n')
    return user_subject(str(path), ())


@pytest.fixture(autouse=True)
def nothing_blank(monkeypatch):
    monkeypatch.setattr(driver, "BLANK", set())
    monkeypatch.setattr(run_once, "BLANK", driver.BLANK)


# the program


def program(*words, cwd):
    command = command_of("kernels.nvidia.run_once", *map(str, words))
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_a_case_runs_in_a_process_of_its_own(tmp_path):
    subject = kernel(tmp_path, "print(out.shape, end=''); open('ran', 'w').write('once')")
    order_of(silu(), subject).write(tmp_path / "order.json")
    done = program("order.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    printed, said = done.stdout.splitlines()
    assert printed == "(3, 5)", "what the subject prints comes before"
    assert json.loads(said) == {"status": "ok", "message": ""}
    assert (tmp_path / "ran").read_text() == "once"


@pytest.mark.parametrize("words", [(), ("no_such_file",), ("order.json", "b")])
def test_a_wrong_request_is_one_sentence(tmp_path, words):
    (tmp_path / "order.json").write_text("{}")
    done = program(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"run_once: [^\n]+\n", done.stderr)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"outputs": 3}', "null"])
def test_a_file_that_is_no_order_is_refused(tmp_path, text):
    (tmp_path / "order.json").write_text(text)
    with pytest.raises(UsageError, match="is no order for one run"):
        Order.read(tmp_path / "order.json")


def test_an_order_is_read_as_it_was_written(tmp_path):
    order = order_of(silu(), subjects_of("silu")[0])
    order.write(tmp_path / "order.json")
    again = Order.read(tmp_path / "order.json")
    assert (again.case.id, again.subject.id, again.face) == (order.case.id, order.subject.id, order.face)
    assert again.outputs["out"].shape == (3, 5)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("pass", Status.OK, ""),
        ("raise ValueError('no such luck')", Status.RAISED, "ValueError: no such luck"),
        ("raise NotImplementedError('rows only')", Status.UNSUPPORTED, "rows only"),
    ],
)
def test_what_becomes_of_a_subject_is_said(tmp_path, body, status, words):
    assert run(order_of(silu(), kernel(tmp_path, body))) == (status, words)


def test_a_subject_that_does_not_load_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_memory, "device_count", lambda: 0)
    subject = kernel(tmp_path, "pass")
    Path(subject.path).write_text("import no_such_module")
    status, words = run(order_of(silu(), subject))
    assert (status, "no_such_module" in words) == (Status.BUILD_FAILED, True)
    status, words = run(order_of(silu(), subject.but(backend="cuda", device="cuda")))
    assert (status, "not available here, because" in words) == (Status.BUILD_FAILED, True)


# exact allocations


class Memory:
    """The driver's memory on the host, and what was done with it."""

    def __init__(self):
        self.rooms, self.sizes, self.sent, self.fetched = {}, [], [], []

    def call(self, function, *arguments):
        return getattr(self, function)(*arguments)

    def cuMemAlloc(self, size):  # noqa: N802  the driver's name
        room = np.full(size + 512, 0xCD, np.uint8)
        address = -(-room.ctypes.data // 256) * 256
        self.rooms[address] = room
        self.sizes.append(size)
        return address

    def cuMemFree(self, address):  # noqa: N802  as above
        del self.rooms[int(address)]

    def cuMemcpyHtoD(self, there, here, size):  # noqa: N802  as above
        self.sent.append((there, size))
        ctypes.memmove(there, here, size)

    def cuMemcpyDtoH(self, here, there, size):  # noqa: N802  as above
        self.fetched.append((there, size))
        ctypes.memmove(here, there, size)


@pytest.fixture
def memory(monkeypatch):
    """A GPU that has memory, and keeps the arguments of what is launched."""
    made = Memory()
    made.launched, made.waited = [], []

    def launch(kernel, grid, block, shared, values, *, wait):
        made.waited.append(wait)
        packed = ctypes.cast(values, ctypes.POINTER(ctypes.c_void_p))
        made.launched.append([ctypes.c_void_p.from_address(packed[i]).value for i in range(2)])

    monkeypatch.setattr(driver.Driver, "context", object())
    for name, what in (("call", made.call), ("launch", launch)):
        monkeypatch.setattr(driver.DRIVER, name, what, raising=False)
    monkeypatch.setattr(gpu_memory, "device_count", lambda: 1)
    monkeypatch.setattr(cuda_backend, "compilers", lambda: ("nvrtc",))
    monkeypatch.setattr(gpu_memory, "find_spec", lambda name: object())
    monkeypatch.setattr(cuda_backend.GpuCudaSubject, "kernels", ["the kernel"])
    return made


@pytest.fixture
def exact(monkeypatch):
    monkeypatch.setenv(EXACT, "1")
    monkeypatch.setattr(cuda_backend, "_ARENA", Apart())


def launch_on_gpu(folder, case):
    path = folder / "mine.cu"
    path.write_text(CUDA)
    subject = user_subject(str(path), ()).but(device="cuda")
    assert run(order_of(case, subject)) == (Status.OK, "")


@pytest.mark.usefixtures("simt_cache", "exact")
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (64, 33)])
def test_each_tensor_has_an_allocation_of_exactly_its_bytes(memory, tmp_path, shape):
    launch_on_gpu(tmp_path, silu(shape))
    size = 4 * shape[0] * shape[1]
    assert memory.sizes == [size, size]
    ((out, x),) = memory.launched
    assert {out, x} == set(memory.rooms), "each begins where an allocation does"
    assert memory.sent == [(x, size)], "nobody writes the output before the kernel does"
    assert memory.fetched == []


@pytest.mark.usefixtures("simt_cache", "exact")
def test_a_misaligned_tensor_stays_misaligned_and_ends_with_its_allocation(memory, tmp_path):
    launch_on_gpu(tmp_path, silu(layout="offset_one"))
    assert sorted(memory.sizes) == [60, 64]
    ((_, x),) = memory.launched
    assert x % 256 == 4
    assert memory.sent == [(x, 60)]


@pytest.mark.usefixtures("simt_cache", "exact")
def test_what_a_launch_has_taken_is_given_back_by_the_next(memory, tmp_path):
    launch_on_gpu(tmp_path, silu())
    launch_on_gpu(tmp_path, silu((7, 9)))
    assert (len(memory.rooms), memory.sizes) == (2, [60, 60, 252, 252])
    assert memory.waited == [True, True], "nobody fetches what would tell how it ended"


@pytest.mark.usefixtures("simt_cache")
def test_unless_asked_there_are_red_zones_and_results_come_back(memory, tmp_path, monkeypatch):
    monkeypatch.delenv(EXACT, raising=False)
    monkeypatch.setattr(cuda_backend, "_ARENA", driver.Arena())
    launch_on_gpu(tmp_path, silu())
    assert len(memory.sizes) == 1
    (sent,), (fetched,) = memory.sent, memory.fetched  # all buffers lie in one piece, as in the sandbox
    assert sent[1] == fetched[1] >= 2 * (60 + 2 * 256)
    assert memory.waited == [False], "what fetches the windows waits"


def test_an_empty_tensor_has_an_address_too(memory, exact):
    driver.send_all(Apart(), [Window(4096, 0)])
    assert (memory.sizes, memory.sent) == ([1], [])


@pytest.fixture
def cupy(monkeypatch):
    """The stand-in for cupy, whose allocations are told."""
    for name in [n for n in sys.modules if n.partition(".")[0] in {"cupy", "cupyx"}]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(FAKE)
    monkeypatch.setattr("kernel_assay.kernels.backends.cupy.device_count", lambda: 1)
    import cupy as module

    module.sizes, module.allocators = [], []
    plain = module.empty
    monkeypatch.setattr(module, "empty", lambda size, dtype: (module.sizes.append(size), plain(size, dtype))[1])
    module.cuda.set_allocator = module.allocators.append
    yield module
    for name in [n for n in sys.modules if n.partition(".")[0] in {"cupy", "cupyx"}]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize(("layout", "size"), [("contiguous", 60), ("offset_one", 60), ("row_gaps", None)])
def test_cupy_allocates_no_more_than_the_tensors(cupy, monkeypatch, tmp_path, layout, size):
    from kernel_assay.kernels.backends.cupy import CupyLoader

    monkeypatch.setenv(EXACT, "1")
    monkeypatch.setattr(run_once, "loader_of", lambda name: CupyLoader())
    seen = tmp_path / "seen"
    body = (
        f"import pathlib; pathlib.Path({str(seen)!r}).write_text(out.view(__import__('numpy').uint8).tobytes().hex())"
    )
    subject = kernel(tmp_path, body, "import cupy\n").but(backend="cupy")
    assert run(order_of(silu(layout=layout), subject)) == (Status.OK, "")
    assert cupy.allocators == [None], "no pool"
    assert cupy.sizes[0] == 60
    if size:
        assert cupy.sizes[1] == size + (4 if layout == "offset_one" else 0)
    else:
        assert 60 < cupy.sizes[1] < 60 + 2 * 256, "from the first to the last element, with the gaps between"
    assert seen.read_text() == "cd" * 60, "the output is as it was allocated"


class OnHost:
    """Torch, whose GPU is the host's memory; what is allocated is told."""

    def __init__(self, torch):
        self.torch, self.sizes = torch, []
        self.cuda = SimpleNamespace(current_stream=lambda: None, stream=lambda _: nullcontext())

    def __getattr__(self, name):
        return getattr(self.torch, name)

    def device(self, name):
        return nullcontext()

    def empty(self, size, dtype, device):
        made = self.torch.full((size,), 0x5A, dtype=dtype)
        self.sizes += [made.nbytes] if size else []
        return made


def copied(function, *arguments):
    """What the driver does with memory of the host."""
    assert function in {"cuMemcpyHtoD", "cuMemcpyDtoH"}
    ctypes.memmove(*arguments)


@pytest.fixture
def torch_on_host(monkeypatch):
    """A loader, and a torch that tells what it allocates."""
    torch, loader = OnHost(pytest.importorskip("torch")), torch_backend.GpuTorchLoader()
    monkeypatch.setattr(torch_backend.GpuTorchLoader, "_torch", torch)
    monkeypatch.setattr(torch_backend, "DRIVER", SimpleNamespace(check=lambda: None, call=copied))
    return loader, torch


def test_torch_is_lent_the_whole_slab_in_memory_that_is_kept(monkeypatch, torch_on_host):
    loader, torch = torch_on_host
    monkeypatch.setattr(driver, "_STAGED", [])

    def add(out, x):
        out.copy_(x + 1)

    for rows, kept in ((3, 1), (2, 1), (300, 2)):
        case = silu((rows, 5))
        inputs = materialize_all(case)
        memory = Guarded(case.tensors, inputs, contract_of("silu").output_specs(case))
        memory.reset(0)
        loader.stage(memory.slab, memory.tensors()[1])
        (x,), (out,) = memory.inputs, memory.outputs
        loader._lending(add)(out.view, x.view)
        assert np.array_equal(out.view, inputs["x"] + 1)
        assert memory.intact(0), "its red zones came back with it"
        assert len(torch.sizes) == kept


@pytest.mark.parametrize(("layout", "size"), [("contiguous", 60), ("offset_one", 64)])
def test_torch_asks_for_no_more_than_the_tensors(monkeypatch, torch_on_host, tmp_path, layout, size):
    loader, torch = torch_on_host
    monkeypatch.setenv(EXACT, "1")
    monkeypatch.setattr(loader, "unavailable", lambda: "")
    monkeypatch.setattr(loader, "preload", lambda: None)
    monkeypatch.setattr(run_once, "loader_of", lambda name: loader)
    body = "assert x.isfinite().all(); out.fill_(3) if (out.view(torch.uint8) == 0x5A).all() else 1 / 0"
    subject = kernel(tmp_path, body, "import torch\n").but(backend="torch")
    order = order_of(silu(layout=layout), subject)
    assert run(order) == (Status.OK, "")
    assert torch.sizes == [60, size]


def test_what_is_staged_is_not_kept_for_that(monkeypatch):
    monkeypatch.delenv(EXACT, raising=False)
    monkeypatch.setattr(driver, "_STAGED", [])
    slab = np.zeros(512, np.uint8)
    address = slab.ctypes.data
    driver.stage(slab)
    window = Window.at(address + 8, 16)
    driver.stage(slab)
    assert Window.at(address + 100, 4) is window
    gone = weakref.ref(slab)
    del slab
    assert gone() is None
