"""Bug: all of the scratch is added up, but the sums of parts fill it only where their number is a power of two."""

import torch
import triton
import triton.language as tl

BACKEND = "triton"
DTYPES = ("float32", "float16", "bfloat16")
PLANTED = "uninitialized"
SHOWS = "mismatch"


@triton.jit
def _parts(parts_ptr, x_ptr, cols, x_row, x_col, COLS: tl.constexpr, PARTS: tl.constexpr):
    i, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    j = part * COLS + tl.arange(0, COLS)
    x = tl.load(x_ptr + i * x_row + j * x_col, mask=j < cols, other=0.0)
    tl.store(parts_ptr + i * PARTS + part, tl.sum(x.to(tl.float32), axis=0))


@triton.jit
def _total(out_ptr, parts_ptr, PARTS: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    tl.store(out_ptr + i, tl.sum(tl.load(parts_ptr + i * PARTS + tl.arange(0, PARTS)), axis=0))


def run(out, x):
    rows, cols = x.shape
    if not x.numel():
        out.zero_()
        return
    count = triton.cdiv(cols, 8)
    size = triton.next_power_of_2(count)
    parts = torch.empty((rows, size), dtype=torch.float32, device=x.device)
    _parts[(rows, count)](parts, x, cols, *x.stride(), COLS=8, PARTS=size)
    _total[(rows,)](out, parts, PARTS=size)
