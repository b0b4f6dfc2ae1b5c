"""GELU in Triton, with its error function or the tanh of CUDA's library; any strides."""

import math

import triton
import triton.language as tl
from triton.language.extra import libdevice

BACKEND = "triton"
DTYPES = ("float32", "float16", "bfloat16")
ROOT = tl.constexpr(math.sqrt(0.5))
SLOPE = tl.constexpr(math.sqrt(2 / math.pi))


@triton.jit
def _gelu(out_ptr, x_ptr, count, cols, out_row, x_row, x_col, TANH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    i, j = at // cols, at % cols
    inside = at < count
    x = tl.load(x_ptr + i * x_row + j * x_col, mask=inside, other=0.0).to(tl.float32)
    f = libdevice.tanh(SLOPE * (x + 0.044715 * x * x * x)) if TANH else tl.erf(x * ROOT)
    tl.store(out_ptr + i * out_row + j, 0.5 * x * (1.0 + f), mask=inside)


def run(out, x, *, approximate):
    count = x.numel()
    if count:
        strides = (out.stride(0), *x.stride())
        _gelu[(triton.cdiv(count, 512),)](out, x, count, x.shape[1], *strides, TANH=approximate == "tanh", BLOCK=512)
