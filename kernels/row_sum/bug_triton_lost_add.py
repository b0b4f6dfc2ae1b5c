"""Bug: programs that share a row add to its sum by a load and a store, not by an atomic operation."""

import triton
import triton.language as tl

BACKEND = "triton"
DTYPES = ("float32",)
PLANTED = "race"
SHOWS = "mismatch"


@triton.jit
def _row_sum(out_ptr, x_ptr, cols, x_row, x_col, COLS: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * COLS + tl.arange(0, COLS)
    part = tl.sum(tl.load(x_ptr + i * x_row + j * x_col, mask=j < cols, other=0.0), axis=0)
    tl.store(out_ptr + i, tl.load(out_ptr + i) + part)


def run(out, x):
    rows, cols = x.shape
    out.zero_()
    if x.numel():
        _row_sum[(rows, triton.cdiv(cols, 8))](out, x, cols, *x.stride(), COLS=8)
