"""Bug: programs begin 16 elements before the end of the one before, which stores zeros there, as it has loaded none."""

import triton
import triton.language as tl

BACKEND = "triton"
DTYPES = ("float32", "float16", "bfloat16")
NUMERICS = {"exp": "fast"}
PLANTED = "race"
SHOWS = "mismatch"


@triton.jit
def _silu(out_ptr, x_ptr, count, BLOCK: tl.constexpr, STEP: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    i = tl.program_id(0).to(tl.int64) * STEP + lane
    x = tl.load(x_ptr + i, mask=(i < count) & (lane < STEP), other=0.0).to(tl.float32)
    tl.store(out_ptr + i, tl.div_rn(x, 1.0 + tl.exp(-x)), mask=i < count)


def run(out, x):
    if not x.is_contiguous():
        raise NotImplementedError("takes contiguous tensors only")
    count = x.numel()
    if count:
        _silu[(triton.cdiv(count, 112),)](out, x, count, BLOCK=128, STEP=112)
