"""Small Triton kernels and what they give, mended and not; run by tests/kernels/test_triton.py in a process of its own.

Prints one JSON object: the repair that was left out ("" for none) -> probe -> its answer, or the error. A probe runs
with everything mended, and once more without the repair that it is about.
"""

import json
import os
import sys
import warnings

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import interpreter

from kernel_assay.kernels.backends.triton_cpu.interpreter import REPAIRS, Launch, Programs

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
PROBES = {}


def probe(repair=""):
    def enter(function):
        PROBES[function.__name__] = repair, function
        return function

    return enter


def tensor(values, dtype=F32):
    return torch.tensor(values, dtype=dtype)


@triton.jit
def _times(out, x, s):
    tl.store(out, tl.load(x) * s)


@triton.jit
def _minus_one(out, s):
    tl.store(out, s - 1.0)


@triton.jit
def _minus_one_double(out, s: tl.float64):
    tl.store(out, s - 1.0)


FOUR = tl.constexpr(4.0)


@triton.jit
def _constants_first(out, x):
    v = tl.load(x)
    tl.store(out, tl.sqrt(FOUR * v) + tl.abs(FOUR - v))


@probe("constants")
def constants_on_the_left():
    out = tensor([0.0])
    _constants_first[(1,)](out, tensor([25.0]))
    return out.tolist()


@probe("scalars")
def float_times_float16():
    out = tensor([0.0])
    _times[(1,)](out, tensor([1000.0], F16), 1.0001)
    return out.tolist()


@probe("scalars")
def float_arithmetic():
    out = tensor([0.0, 0.0], torch.float64)
    _minus_one[(1,)](out, 1 + 2**-30)
    _minus_one_double[(1,)](out[1:], 1 + 2**-30)
    return out.tolist()


@triton.jit
def _library(out, x):
    value = tl.load(x)
    tl.store(out, libdevice.exp(value))
    tl.store(out + 1, libdevice.tanh(value))
    tl.store(out + 2, libdevice.erf(value))
    tl.store(out + 3, libdevice.rsqrt(value))
    tl.store(out + 4, libdevice.pow(value, 3.0))
    tl.store(out + 5, libdevice.fma(value, value, value))
    tl.store(out + 6, cuda_libdevice.log1p(value))
    tl.store(out + 7, libdevice.isnan(value).to(tl.float32))
    tl.store(out + 8, libdevice.float2int_rn(value).to(tl.float32))
    tl.store(out + 9, libdevice.round(value))


@triton.jit
def _unknown_function(out):
    tl.store(out, libdevice.rcp64h(tl.full((), 2.0, tl.float64)).to(tl.float32))


@probe("libdevice")
def library():
    found = []
    for dtype in (F32, torch.float64):
        out = torch.zeros(10, dtype=dtype)
        _library_of[dtype][(1,)](out, tensor([2.5], dtype))
        found.append(out.tolist())
    return found


@triton.jit
def _library_double(out, x):
    value = tl.load(x)
    tl.store(out, libdevice.exp(value))
    tl.store(out + 1, libdevice.tanh(value))


_library_of = {F32: _library, torch.float64: _library_double}


@probe("libdevice")
def function_without_counterpart():
    _unknown_function[(1,)](tensor([0.0]))


@triton.jit
def _convert(out, x, rounding: tl.constexpr, size: tl.constexpr):
    i = tl.arange(0, size)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty, fp_downcast_rounding=rounding))


def converted(values, source, target, rounding=None):
    out = torch.zeros(len(values), dtype=target)
    _convert[(1,)](out, tensor(values, source), rounding, len(values))
    return out.float().tolist()


@probe("arithmetic")
def to_bfloat16():
    values = [1.01171875, 1.00390625, -1.99999, 3.4e38]
    return [converted(values, F32, BF16), converted(values, F32, BF16, "rtz")]


@probe("arithmetic")
def double_to_bfloat16():
    return converted([1.01171875, -3.0], torch.float64, BF16)


@probe("arithmetic")
def integer_to_bfloat16():
    return converted([3, -257], torch.int32, BF16)


@probe("arithmetic")
def to_integers():
    values = [1e10, -1e10, float("nan"), float("inf"), 300.0, -2.5]
    found = []
    for dtype in (torch.int32, torch.int8):
        out = torch.zeros(8, dtype=dtype)
        _convert[(1,)](out, tensor([*values, 0.0, 0.0]), None, 8)
        found.append(out[: len(values)].tolist())
    return found


@probe("arithmetic")
def to_float8():
    return [converted([1.0625, 1e-2, 1000.0, -0.3], F32, t) for t in (torch.float8_e4m3fn, torch.float8_e5m2)]


@triton.jit
def _add(out, x, y, size: tl.constexpr):
    i = tl.arange(0, size)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a + b)
    tl.store(out + size + i, tl.maximum(a, b))
    tl.store(out + 2 * size + i, -a * b)
    tl.store(out + 3 * size + i, (a < b).to(tl.float32))


@probe("arithmetic")
def bfloat16_arithmetic():
    out = torch.zeros(8, dtype=BF16)
    _add[(1,)](out, tensor([1.5, -2.0], BF16), tensor([1.5, -3.0], BF16), 2)
    return out.float().tolist()


@triton.jit
def _dot(out, x, acc: tl.constexpr, precision: tl.constexpr):
    i = tl.arange(0, 32)
    at = i[:, None] * 32 + i[None, :]
    v = tl.load(x + at)
    tl.store(out + at, tl.dot(v, v, out_dtype=acc, input_precision=precision))


def square(x, accumulator=tl.float32, precision="ieee"):
    out = torch.zeros(32, 32)
    _dot[(1,)](out, x, accumulator, precision)
    return out[0, 0].item()


@probe("arithmetic")
def bfloat16_product():
    return square(torch.full((32, 32), 1.5, dtype=BF16))


@probe("arithmetic")
def tf32_product():
    return [square(torch.full((32, 32), 1 + 2**-12), precision=p) for p in ("tf32", "ieee")]


@probe("arithmetic")
def narrow_accumulator():
    """2048 + 1 in the first chunk of 16 products and 1 in the second: each is a tie, which 2048 wins."""
    x = torch.zeros(32, 32, dtype=F16)
    x[0, 1], x[0, 2], x[0, 16] = 2048.0, 1.0, 1.0
    x[[1, 2, 16], 0] = 1.0
    return square(x, tl.float16)


@triton.jit
def _reduce(out, x, size: tl.constexpr):
    v = tl.load(x + tl.arange(0, size))
    tl.store(out, tl.sum(v, axis=0))
    tl.store(out + 1, tl.max(v, axis=0))
    tl.store(out + 2, tl.argmax(v, axis=0))


def reduced(values, dtype):
    out = tensor([0.0, 0.0, 0.0])
    _reduce[(1,)](out, tensor(values, dtype), len(values))
    return out.tolist()


@probe("arithmetic")
def bfloat16_reductions():
    return reduced([-1.0, 2.0, -3.0, 0.5], BF16)


@probe("arithmetic")
def sum_of_float16():
    """2051: halves are 2049 and 2, of which float16 makes 2048 and 2."""
    return reduced([2048.0, 1.0, 1.0, 1.0], F16)[0]


@probe("arithmetic")
def signaling_nan():
    x = torch.tensor(np.array([0x3F800000, 0x7F800001], np.uint32).view(np.float32))
    out = tensor([0.0, 0.0, 0.0])
    _reduce[(1,)](out, x, 2)
    return out[1].item()


@probe("arithmetic")
def places_among_nan():
    return [reduced(v, F32)[2] for v in ([float("nan")] * 4, [3.0, 1.0, 3.0, 2.0])]


@triton.jit
def _copy(out, x, n, reach, start, size: tl.constexpr):
    i = start + tl.arange(0, size)
    tl.store(out + i, tl.load(x + i, mask=i < n + reach, other=0.0), mask=i < n)


@triton.jit
def _write(out, n, size: tl.constexpr):
    i = tl.arange(0, size)
    tl.store(out + i, i.to(tl.float32), mask=i < n)


@triton.jit
def _count(out, n, size: tl.constexpr):
    i = tl.arange(0, size)
    tl.atomic_add(out + i, i * 0 + 1, mask=i < n)


@triton.jit
def _as_integers(out, x, size: tl.constexpr):
    i = tl.arange(0, size)
    tl.store(out + i, tl.load(x.to(tl.pointer_type(tl.int32)) + i).to(tl.float32))


@probe("bounds")
def reads_beyond():
    _copy[(1,)](torch.zeros(333), torch.arange(400.0)[:333], 333, 3, 0, 512)


@probe("bounds")
def reads_before():
    _copy[(1,)](torch.zeros(8)[4:], torch.arange(8.0)[4:], 4, 0, -1, 4)


@probe("bounds")
def reads_between():
    _copy[(1,)](torch.zeros(4), torch.arange(8.0)[::2], 4, 0, 0, 4)


@probe()
def reads_far():
    _copy[(1,)](torch.zeros(4), torch.arange(4.0), 4, 1 << 41, 1 << 40, 4)


@probe()
def reads_within():
    out = torch.zeros(6)
    _copy[(1,)](out, torch.arange(6.0), 6, 0, 0, 8)
    _copy[(1,)](out, torch.zeros(0), 0, 0, 0, 8)
    return out.tolist()


@probe("bounds")
def writes_beyond():
    whole = torch.zeros(8)
    _write[(1,)](whole[:5], 6, 8)


@probe("bounds")
def counts_beyond():
    _count[(1,)](torch.zeros(8, dtype=torch.int32)[:4], 5, 8)


@probe("bounds")
def reads_beyond_as_another_type():
    _as_integers[(1,)](torch.zeros(8), torch.zeros(8, dtype=F16)[:6], 4)


@probe("bounds")
def reads_misaligned():
    _as_integers[(1,)](torch.zeros(8), torch.zeros(9, dtype=F16)[1:], 4)


@probe("bounds")
def follows_addresses():
    """Of a tensor that was an argument, and of one that was not."""
    x, out = torch.arange(8.0), torch.zeros(4)
    found = []
    for tensors in ((out, x), (out,)):
        try:
            _follow[(1,)](out, x.data_ptr(), *tensors[1:], *[None] * (2 - len(tensors)), 4)
            found.append(out.tolist())
        except NotImplementedError as error:
            found.append(str(error))
    return found


@triton.jit
def _follow(out, address, x, size: tl.constexpr):
    i = tl.arange(0, size)
    tl.store(out + i, tl.load((address + 8 * i).to(tl.pointer_type(tl.float32))))


@triton.jit
def _same_place(out):
    tl.store(out, tl.program_id(0).to(tl.float32))


@probe("order")
def last_program():
    out, found = tensor([0.0]), []
    for Programs.backwards in (False, True):
        _same_place[(4,)](out)
        found.append(out.item())
    return found


@triton.autotune([triton.Config({"size": 4}), triton.Config({"size": 8})], key=["n"])
@triton.jit
def _tuned(out, n, size: tl.constexpr):
    tl.store(out, n * 0 + size)


@probe("autotune")
def tuned():
    out = tensor([0], torch.int32)
    _tuned[(1,)](out, 3)
    return out.item()


@triton.jit
def _raises(out):
    tl.static_assert(out is None, "must be nothing")


@triton.jit
def _assembly(out):
    tl.store(out, tl.inline_asm_elementwise("mov.b32 $0, 1;", "=r", [], tl.int32, True, 1))


@probe()
def raises_what_the_kernel_raised():
    _raises[(1,)](tensor([0.0]))


@probe()
def assembly():
    _assembly[(1,)](tensor([0], torch.int32))


@probe()
def grid_as_a_list():
    out = tensor([0.0])
    _same_place[[3]](out)
    return out.item()


def answer(function):
    Programs.backwards = False
    try:
        return function()
    except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
        return f"{type(error).__name__}: {error}"


def answers(left_out):
    interpreter.GridExecutor = Launch
    for name, mend in REPAIRS.items():
        if name != left_out:
            mend()
    np.seterr(all="ignore")
    warnings.simplefilter("ignore")
    return {name: answer(function) for name, (repair, function) in PROBES.items() if left_out in {"", repair}}


def main():
    """A child for each, since what is mended stays mended."""
    found = {}
    for left_out in ("", *REPAIRS):
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, json.dumps(answers(left_out)).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as said:
            found[left_out] = json.loads(said.read() or b"{}")
        os.wait()
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # else Triton's library complains of what is left


if __name__ == "__main__":
    main()
