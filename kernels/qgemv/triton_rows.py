"""Integer dot products in Triton, 8 blocks of 16 rows at a time; the terms of a row are summed at the end."""

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
def _quants(first, step, inside, SIZE: tl.constexpr, HEADS: tl.constexpr, BITS: tl.constexpr):
    """The 32 integers of each block, as they are stored; first: the blocks' first bytes, (rows or 1, blocks, 1)."""
    j = tl.arange(0, 32)[None, None, :]
    there = inside & (j < 32)
    if BITS == 8:
        quants = tl.load(first + (2 * HEADS + j) * step, mask=there, other=0).to(tl.int8, bitcast=True).to(tl.int32)
    else:
        pair = tl.load(first + (SIZE - 16 + j % 16) * step, mask=there, other=0).to(tl.int32)
        quants = pair >> j // 16 * 4 & 15
        if BITS == 5:
            fifth = tl.load(first + (2 * HEADS + j // 8) * step, mask=there, other=0).to(tl.int32)
            quants += (fifth >> j % 8 & 1) * 16
    return quants


@triton.jit
def _qgemv(
    out_ptr,
    w_ptr,
    a_ptr,
    m,
    blocks,
    w_row,
    w_col,
    a_col,
    SIZE: tl.constexpr,
    HEADS: tl.constexpr,
    BITS: tl.constexpr,
    ZERO: tl.constexpr,
    ITS_SIZE: tl.constexpr,
    ITS_HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    i = row[:, None, None]
    acc = tl.zeros((ROWS, BLOCKS, 1), tl.float32)
    for begin in range(0, blocks, BLOCKS):
        b = (begin + tl.arange(0, BLOCKS)).to(tl.int64)[None, :, None]
        its_inside, inside = b < blocks, (i < m) & (b < blocks)
        first, its_first = w_ptr + i * w_row + b * SIZE * w_col, a_ptr + b * ITS_SIZE * a_col
        quants = _quants(first, w_col, inside, SIZE, HEADS, BITS)
        values = _quants(its_first, a_col, its_inside, ITS_SIZE, ITS_HEADS, 8)
        d = _half(its_first, a_col, its_inside)
        if ITS_HEADS == 2:
            dots = tl.sum(quants * values, axis=2, keep_dims=True).to(tl.float32)
            sums = _half(its_first + 2 * a_col, a_col, its_inside)
            terms = d * dots - ZERO * sums
        else:  # without stored sums the integers themselves are corrected
            dots = tl.sum((quants - ZERO) * values, axis=2, keep_dims=True).to(tl.float32)
            sums = d * tl.sum(values, axis=2, keep_dims=True).to(tl.float32)
            terms = d * dots
        terms *= _half(first, w_col, inside)
        if HEADS == 2 and BITS != 8:
            terms += _half(first + 2 * w_col, w_col, inside) * sums
        acc += terms
    tl.store(out_ptr + row, tl.sum(tl.sum(acc, axis=2), axis=1), mask=row < m)


def run(out, w, a, *, format, activations):
    (size, heads, bits, zero), (its_size, its_heads, _, _) = FORMATS[format], FORMATS[activations]
    m, blocks = w.shape[0], w.shape[1] // size
    if m:
        own = {"SIZE": size, "HEADS": heads, "BITS": bits, "ZERO": zero}
        its = {"ITS_SIZE": its_size, "ITS_HEADS": its_heads}
        strides = (*w.stride(), a.stride(0))
        _qgemv[(triton.cdiv(m, 16),)](out, w, a, m, blocks, *strides, **own, **its, ROWS=16, BLOCKS=8)
