"""Gemma's RMS norm in Triton: whole rows in one block, as many as fill it; one plus the weight in float32."""

import triton
import triton.language as tl

BACKEND = "triton"
DTYPES = ("float32", "float16", "bfloat16")


@triton.jit
def _gemma_rmsnorm(
    out_ptr,
    x_ptr,
    weight_ptr,
    rows,
    cols,
    eps,
    out_row,
    x_row,
    x_col,
    weight_step,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    j = tl.arange(0, COLS)[None, :]
    inside = (i < rows) & (j < cols)
    x = tl.load(x_ptr + i * x_row + j * x_col, mask=inside, other=0.0).to(tl.float32)
    factor = 1.0 + tl.load(weight_ptr + j * weight_step, mask=j < cols, other=0.0).to(tl.float32)
    root = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / cols + eps)
    tl.store(out_ptr + i * out_row + j, x * root * factor, mask=inside)


def run(out, x, weight, *, eps):
    rows, cols = x.shape
    if not x.numel():
        return
    block = triton.next_power_of_2(cols)
    many = max(1, min(2048 // block, triton.next_power_of_2(rows)))
    strides = (out.stride(0), *x.stride(), weight.stride(0))
    _gemma_rmsnorm[(triton.cdiv(rows, many),)](out, x, weight, rows, cols, eps, *strides, ROWS=many, COLS=block)
