"""Subjects on a GPU that misbehave: each error of CUDA's, a hang, a wrong stream earn their verdict, and no other."""

import time

import pytest

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.selection import placed
from kernel_assay.kernels.backends.cuda_support.driver import (
    DriverError,
    LaunchError,
    device_count,
    is_launch_failure,
    is_out_of_device_memory,
)
from kernel_assay.kernels.backends.cuda_support.late_streams import STREAMED, is_streamed
from kernel_assay.kernels.backends.support.walls import order_of
from kernel_assay.kernels.catalog import subjects_of, user_subject

needs_gpu = pytest.mark.skipif(not device_count(), reason="there is no CUDA device")
TIMEOUT = 30.0
HEAD = """// ---
// op = "silu"
// entry = "silu"
// args = ["out", "x", "n"]
// dims = { n = "x.size" }
// grid = "ceil_div(n, 256)"
// block = 256
// ---
#include <cassert>
__global__ void silu(float* out, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
"""
RIGHT = "  if (i < n) { float v = x[i]; out[i] = v / (1.0f + expf(-v)); }\n}\n"
ERRORS = {
    "illegal": ("  if (n == 15) out[(1LL << 40) + i] = 1;\n", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    "misaligned": (
        "  if (n == 15 && i == 0) *(volatile double*)((char*)out + 4) = 1;\n",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
    ),
    "asserts": ("  assert(n != 15);\n", "CUDA_ERROR_ASSERT"),
    "traps": ("  if (n == 15) __trap();\n", "CUDA_ERROR_LAUNCH_FAILED"),
}
CLEAN = next(s for s in subjects_of("silu") if s.name == "torch_silu")


def silu(rows, cols, seed=1):
    fill = Fill(distribution="normal", seed=seed)
    return Case(op="silu", tensors={"x": TensorRecipe(shape=(rows, cols), dtype="float32", fill=fill)})


CASES = [silu(2, 4), silu(3, 5), silu(1, 300), silu(3, 5, 2)]


def on_gpu(path):
    return placed([user_subject(str(path), ("silu",))], "cuda")[0]


@pytest.fixture
def cuda(tmp_path):
    def write(name, lines, head=HEAD):
        path = tmp_path / f"{name}.cu"
        path.write_text(head + lines + RIGHT)
        return on_gpu(path)

    return write


@pytest.fixture
def python(tmp_path):
    def write(name, text):
        path = tmp_path / f"{name}.py"
        path.write_text(f'OP = "silu"\n{text}')
        return on_gpu(path)

    return write


def verdicts(subject, cases=CASES, timeout=TIMEOUT):
    with Examiner([subject], timeout=timeout) as examiner:
        return [c.verdicts[subject.key] for c in examiner.check(CheckRequest(c, (subject.key,)) for c in cases)]


# ---- without a GPU ---------------------------------------------------------------------------------------------------


class OutOfMemoryError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "launch", "memory"),
    [
        (LaunchError("CUDA_ERROR_INVALID_VALUE: invalid argument"), True, False),
        (DriverError("CUDA_ERROR_INVALID_VALUE: invalid argument"), False, False),
        (DriverError("CUDA_ERROR_OUT_OF_MEMORY: out of memory"), False, True),
        (OutOfMemoryError("tried to allocate 3 bytes"), False, True),
        (DriverError("cudaErrorLaunchOutOfResources: too many resources requested for launch"), True, False),
        (RuntimeError("too many resources"), False, False),
    ],
)
def test_what_libraries_raise_is_told_apart(error, launch, memory):
    assert is_launch_failure(error) is launch
    assert is_out_of_device_memory(error) is memory


def test_some_cases_are_streamed_and_only_their_second_run():
    orders = [order_of(silu(2, 2, seed)) for seed in range(1, 400)]
    share = sum(is_streamed(order, 1) for order in orders) / len(orders)
    assert 0.5 / STREAMED < share < 2 / STREAMED
    assert not any(is_streamed(order, 0) for order in orders)
    assert not is_streamed(0, 1), "seed 0 is the plainest case"


# ---- on a GPU --------------------------------------------------------------------------------------------------------


@needs_gpu
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_cuda_is_named_and_the_neighbours_are_judged(cuda, name):
    lines, words = ERRORS[name]
    found = verdicts(cuda(name, lines))
    assert [v.kind for v in found] == [Kind.PASS, Kind.CRASHED, Kind.PASS, Kind.CRASHED]
    assert words in found[1].message
    assert found[1].signature.error_pattern == words


@needs_gpu
def test_a_launch_that_is_refused_is_told_and_the_process_goes_on(cuda):
    subject = cuda(
        "large",
        "  __shared__ char s[1];\n",
        HEAD.replace("block = 256", 'block = 256\n// shared = "200000 * (n // 15) "'),
    )
    with Examiner([subject], timeout=TIMEOUT) as examiner:
        checked = examiner.check([CheckRequest(c, (subject.key,)) for c in [silu(3, 5), silu(2, 40), silu(3, 5)]])
        deaths = examiner.sandbox.deaths
    kinds = [c.verdicts[subject.key].kind for c in checked]
    assert kinds[0] is kinds[2] is Kind.PASS
    assert checked[1].executions[subject.key].status in {Status.RAISED, Status.LAUNCH_FAILED}
    assert deaths == 0


@needs_gpu
def test_torch_and_cupy_tell_of_launches_that_are_refused(python):
    pytest.importorskip("cupy")
    subject = python(
        "refused",
        "import cupy\nBACKEND = 'cupy'\n"
        "K = cupy.RawKernel('extern \"C\" __global__ void k(float* o) { o[0] = 1; }', 'k')\n\n\n"
        "def run(out, x):\n    K((1,), (2048,), (out,))\n",
    )
    verdict = verdicts(subject, CASES[:1])[0]
    assert verdict.kind in {Kind.CRASHED, Kind.RAISED}
    assert "invalid" in verdict.message.lower()


@needs_gpu
def test_a_hang_is_killed_and_the_gpu_is_usable_at_once(cuda):
    subject = cuda("hangs", "  if (n == 15) while (true) { if (((volatile int*)out)[0] == 7) break; }\n")
    begin = time.monotonic()
    found = verdicts(subject, CASES[:3], timeout=1.0)
    assert [v.kind for v in found] == [Kind.PASS, Kind.TIMEOUT, Kind.PASS]
    assert time.monotonic() - begin < 30


TORCH_WRONG = {
    "other_stream": (
        "    with torch.cuda.stream(torch.cuda.default_stream()):\n        out.copy_(x * torch.sigmoid(x))\n"
    ),
    "no_wait": (
        "    side = torch.cuda.Stream()\n    with torch.cuda.stream(side):\n        torch.cuda._sleep(3_000_000)\n"
        "        out.copy_(x * torch.sigmoid(x))\n"
    ),
}
TORCH_RIGHT = {
    "plain": "    out.copy_(x * torch.sigmoid(x))\n",
    "waits": (
        "    side, mine = torch.cuda.Stream(), torch.cuda.current_stream()\n    side.wait_stream(mine)\n"
        "    with torch.cuda.stream(side):\n        out.copy_(x * torch.sigmoid(x))\n    mine.wait_stream(side)\n"
    ),
}
MANY = [silu(40, 50, seed) for seed in range(1, 40)]


@needs_gpu
@pytest.mark.parametrize("name", TORCH_WRONG)
def test_a_subject_that_leaves_the_current_stream_is_caught(python, name):
    found = verdicts(python(name, f"import torch\n\n\ndef run(out, x):\n{TORCH_WRONG[name]}"), MANY)
    failing = [v for v in found if v.kind is not Kind.PASS]
    assert failing
    assert {v.kind for v in failing} == {Kind.RACE}
    assert "current stream" in failing[0].message


@needs_gpu
@pytest.mark.parametrize("name", TORCH_RIGHT)
def test_a_subject_that_keeps_to_it_or_waits_is_not(python, name):
    found = verdicts(python(name, f"import torch\n\n\ndef run(out, x):\n{TORCH_RIGHT[name]}"), MANY)
    assert {v.kind for v in found} == {Kind.PASS}


@needs_gpu
def test_a_cupy_subject_that_leaves_the_current_stream_is_caught(python):
    pytest.importorskip("cupy")
    body = "def run(out, x):\n    with cupy.cuda.Stream.null:\n        out[...] = x / (1 + cupy.exp(-x))\n"
    wrong = verdicts(python("null", f"import cupy\nBACKEND = 'cupy'\n\n\n{body}"), MANY)
    assert {v.kind for v in wrong} == {Kind.PASS, Kind.RACE}
    right = "def run(out, x):\n    out[...] = x / (1 + cupy.exp(-x))\n"
    assert {v.kind for v in verdicts(python("mine", f"import cupy\nBACKEND = 'cupy'\n\n\n{right}"), MANY)} == {
        Kind.PASS
    }


@needs_gpu
def test_what_torch_hands_back_of_its_inputs_is_seen(python):
    found = verdicts(python("returns", "def silu(x):\n    return x\n"), CASES[:1])[0]
    assert found.kind is Kind.ALIASED


@needs_gpu
def test_an_out_of_memory_is_no_crash(python):
    body = "import torch\n\n\ndef run(out, x):\n    torch.empty(1 << 42, device='cuda')\n"
    assert verdicts(python("greedy", body), CASES[:1])[0].kind is Kind.OUT_OF_MEMORY
