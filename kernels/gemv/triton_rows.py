"""Rows times a vector in Triton, 16 rows and 128 columns at a time, summed in float32; any strides."""

import triton
import triton.language as tl

BACKEND = "triton"
DTYPES = ("float32", "float16", "bfloat16")


@triton.jit
def _gemv(
    out_ptr,
    a_ptr,
    x_ptr,
    y_ptr,
    m,
    k,
    alpha,
    beta,
    a_row,
    a_col,
    x_step,
    y_step,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    acc = tl.zeros((ROWS, COLS), tl.float32)
    for begin in range(0, k, COLS):
        j = begin + tl.arange(0, COLS)
        inside = (i < m)[:, None] & (j < k)[None, :]
        a = tl.load(a_ptr + i[:, None] * a_row + j[None, :] * a_col, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + j * x_step, mask=j < k, other=0.0).to(tl.float32)
        acc += a * x[None, :]
    total = tl.sum(acc, axis=1) * alpha
    if y_ptr is not None:
        total += beta * tl.load(y_ptr + i * y_step, mask=i < m, other=0.0).to(tl.float32)
    tl.store(out_ptr + i, total, mask=i < m)


def run(out, a, x, *, y=None, alpha, beta):
    m, k = a.shape
    if not m:
        return
    strides = (*a.stride(), x.stride(0), 0 if y is None else y.stride(0))
    _gemv[(triton.cdiv(m, 16),)](out, a, x, y, m, k, alpha, beta, *strides, ROWS=16, COLS=128)
