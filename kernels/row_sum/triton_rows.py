"""tl.sum of rows in Triton, up to 1024 columns added in float32 before, and then their lanes; any strides."""

import triton
import triton.language as tl

BACKEND = "triton"
DTYPES = ("float32", "float16", "bfloat16")


@triton.jit
def _row_sum(out_ptr, x_ptr, rows, cols, x_row, x_col, ROWS: tl.constexpr, COLS: tl.constexpr):
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    acc = tl.zeros((ROWS, COLS), tl.float32)  # a sum in the loop is one of other rows (quirks.REORDERED_SUM)
    for begin in range(0, cols, COLS):
        j = (begin + tl.arange(0, COLS))[None, :]
        x = tl.load(x_ptr + i[:, None] * x_row + j * x_col, mask=(i[:, None] < rows) & (j < cols), other=0.0)
        acc += x.to(tl.float32)
    tl.store(out_ptr + i, tl.sum(acc, axis=1), mask=i < rows)


def run(out, x):
    rows, cols = x.shape
    if not rows:
        return
    block = min(1024, triton.next_power_of_2(max(1, cols)))
    many = max(1, min(2048 // block, triton.next_power_of_2(rows)))
    _row_sum[(triton.cdiv(rows, many),)](out, x, rows, cols, *x.stride(), ROWS=many, COLS=block)
