"""Bug: the rows of the input are taken to lie as far apart as those of the output."""

import triton
import triton.language as tl

BACKEND = "triton"
DTYPES = ("float32", "float16", "bfloat16")
NUMERICS = {"exp": "fast"}
PLANTED = "out_of_bounds"
SHOWS = "mismatch"


@triton.jit
def _softmax(
    out_ptr,
    x_ptr,
    mask_ptr,
    rows,
    cols,
    scale,
    out_row,
    x_col,
    mask_row,
    mask_col,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    j = tl.arange(0, COLS)[None, :]
    inside = (i < rows) & (j < cols)
    s = tl.load(x_ptr + i * out_row + j * x_col, mask=inside, other=-float("inf")).to(tl.float32) * scale
    if mask_ptr is not None:
        s += tl.load(mask_ptr + i * mask_row + j * mask_col, mask=inside, other=0.0).to(tl.float32)
    s = tl.where(inside, s, -float("inf"))
    e = tl.exp(s - tl.max(s, axis=1, keep_dims=True))
    share = tl.div_rn(e, tl.broadcast_to(tl.sum(e, axis=1, keep_dims=True), e.shape))
    tl.store(out_ptr + i * out_row + j, share, mask=inside)


def run(out, x, *, mask=None, scale):
    rows, cols = x.shape
    if not x.numel():
        return
    block = triton.next_power_of_2(cols)
    many = max(1, min(2048 // block, triton.next_power_of_2(rows)))
    strides = (0, 0) if mask is None else mask.stride()
    grid = (triton.cdiv(rows, many),)
    _softmax[grid](
        out, x, mask, rows, cols, scale, out.stride(0), x.stride(1), *strides, ROWS=many, COLS=block, num_warps=4
    )
