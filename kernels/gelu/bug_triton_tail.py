"""Bug: only the store is masked, so the last program reads behind the end."""

import triton
import triton.language as tl

BACKEND = "triton"
DTYPES = ("float32",)
PLANTED = "out_of_bounds"
SHOWS = "emulator"


@triton.jit
def _gelu(out_ptr, x_ptr, count, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), mask=i < count)


def run(out, x, *, approximate):
    if approximate != "none" or not x.is_contiguous():
        raise NotImplementedError("computes erf of contiguous tensors only")
    count = x.numel()
    if count:
        _gelu[(triton.cdiv(count, 256),)](out, x, count, BLOCK=256)
