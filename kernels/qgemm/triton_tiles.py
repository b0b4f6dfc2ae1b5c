"""Tiles of 64 x 128 in Triton, a block of each row at a time: dot products on an integer tensor core, then scales."""

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
    """The 32 integers of a block of each row, as they are stored; first: the blocks' first bytes, (rows, 1)."""
    j = tl.arange(0, 32)[None, :]
    there = inside & (j < 32)
    if BITS == 8:
        quants = tl.load(first + (2 * HEADS + j) * step, mask=there, other=0).to(tl.int8, bitcast=True)
    else:
        pair = tl.load(first + (SIZE - 16 + j % 16) * step, mask=there, other=0).to(tl.int32)
        quants = pair >> j // 16 * 4 & 15
        if BITS == 5:
            fifth = tl.load(first + (2 * HEADS + j // 8) * step, mask=there, other=0).to(tl.int32)
            quants += (fifth >> j % 8 & 1) * 16
    return quants.to(tl.int8)


@triton.jit
def _qgemm(
    out_ptr,
    w_ptr,
    a_ptr,
    m,
    n,
    blocks,
    out_row,
    w_row,
    w_col,
    a_row,
    a_col,
    SIZE: tl.constexpr,
    HEADS: tl.constexpr,
    BITS: tl.constexpr,
    ZERO: tl.constexpr,
    ITS_SIZE: tl.constexpr,
    ITS_HEADS: tl.constexpr,
    N: tl.constexpr,
    M: tl.constexpr,
):
    own = (tl.program_id(0) * N + tl.arange(0, N)).to(tl.int64)[:, None]
    i = (tl.program_id(1) * M + tl.arange(0, M)).to(tl.int64)[:, None]
    acc = tl.zeros((N, M), tl.float32)
    for b in range(blocks):
        first, its_first = w_ptr + i * w_row + b * SIZE * w_col, a_ptr + own * a_row + b * ITS_SIZE * a_col
        quants = _quants(first, w_col, i < m, SIZE, HEADS, BITS)
        values = _quants(its_first, a_col, own < n, ITS_SIZE, ITS_HEADS, 8)
        d, scale = _half(its_first, a_col, own < n), tl.trans(_half(first, w_col, i < m))
        dots = tl.dot(values, tl.trans(quants), out_dtype=tl.int32)
        if ITS_HEADS == 2:
            sums = _half(its_first + 2 * a_col, a_col, own < n)
            acc += scale * (d * dots.to(tl.float32) - ZERO * sums)
        else:  # without stored sums the integers themselves are corrected
            total = tl.sum(values.to(tl.int32), axis=1, keep_dims=True)
            sums = d * total.to(tl.float32)
            acc += scale * (d * (dots - ZERO * total).to(tl.float32))
        if HEADS == 2 and BITS != 8:
            acc += tl.trans(_half(first + 2 * w_col, w_col, i < m)) * sums
    tl.store(out_ptr + own * out_row + tl.trans(i), acc, mask=(own < n) & (tl.trans(i) < m))


def run(out, w, a, *, format, activations):
    (size, heads, bits, zero), (its_size, its_heads, _, _) = FORMATS[format], FORMATS[activations]
    m, n, blocks = w.shape[0], a.shape[0], w.shape[1] // size
    if out.numel():
        own = {"SIZE": size, "HEADS": heads, "BITS": bits, "ZERO": zero}
        its = {"ITS_SIZE": its_size, "ITS_HEADS": its_heads}
        strides = (out.stride(0), *w.stride(), *a.stride())
        grid = (triton.cdiv(n, 64), triton.cdiv(m, 128))
        _qgemm[grid](out, w, a, m, n, blocks, *strides, **own, **its, N=64, M=128, num_warps=8)
