"""Blocks taken apart by Triton, 64 at a time, whatever the rows; any strides."""

import triton
import triton.language as tl

BACKEND = "triton"
FORMATS = {
    "q4_0": (18, 1, 4, 8),
    "q4_1": (20, 2, 4, 0),
    "q5_0": (22, 1, 5, 16),
    "q5_1": (24, 2, 5, 0),
    "q8_0": (34, 1, 8, 0),
    "q8_1": (36, 2, 8, 0),
}
"""Bytes of a block, float16 numbers it begins with, bits of a quant, which of them stands for zero."""


@triton.jit
def _half(ptr, step, inside):
    """The float16 number of two bytes, the low one first."""
    low = tl.load(ptr, mask=inside, other=0).to(tl.uint16)
    high = tl.load(ptr + step, mask=inside, other=0).to(tl.uint16)
    return (low | high << 8).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _dequantize(
    out_ptr,
    w_ptr,
    count,
    blocks,
    out_row,
    w_row,
    w_col,
    SIZE: tl.constexpr,
    HEADS: tl.constexpr,
    BITS: tl.constexpr,
    ZERO: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    at = (tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS))[:, None]
    row, b, inside = at // blocks, at % blocks, at < count
    j = tl.arange(0, 32)[None, :]
    first = w_ptr + row * w_row + b * SIZE * w_col
    there = inside & (j < 32)
    if BITS == 8:
        quants = tl.load(first + (2 * HEADS + j) * w_col, mask=there, other=0).to(tl.int8, bitcast=True).to(tl.int32)
    else:
        pair = tl.load(first + (SIZE - 16 + j % 16) * w_col, mask=there, other=0).to(tl.int32)
        quants = pair >> j // 16 * 4 & 15
        if BITS == 5:
            fifth = tl.load(first + (2 * HEADS + j // 8) * w_col, mask=there, other=0).to(tl.int32)
            quants += (fifth >> j % 8 & 1) * 16
    values = _half(first, w_col, inside) * (quants - ZERO).to(tl.float32)
    if HEADS == 2 and BITS != 8:
        values += _half(first + 2 * w_col, w_col, inside)
    tl.store(out_ptr + row * out_row + b * 32 + j, values, mask=there)


def run(out, w, *, format, to="float32"):
    size, heads, bits, zero = FORMATS[format]
    rows, blocks = w.shape[0], w.shape[1] // size
    if out.numel():
        sizes = (rows * blocks, blocks, out.stride(0), *w.stride())
        grid = (triton.cdiv(rows * blocks, 64),)
        _dequantize[grid](out, w, *sizes, SIZE=size, HEADS=heads, BITS=bits, ZERO=zero, BLOCKS=64)
