"""The arithmetic of GGML's C reference in float32, all blocks at once."""

import numpy as np

BACKEND = "numpy"


def nearest(t):
    """Halves away from zero, as roundf."""
    whole = np.trunc(t)
    return whole + np.copysign(np.abs(t - whole) >= np.float32(0.5), t)


def nibbles(quants):
    """Two quants a byte: the first half of a block low, the second high."""
    return quants[..., :16] | quants[..., 16:] << 4


def fifth_bits(quants):
    """Bit j of four bytes is the fifth bit of element j."""
    return np.packbits(quants >> 4 & 1, axis=-1, bitorder="little")


def halves(*scales):
    """Numbers as float16, two bytes each."""
    return np.concatenate(scales, axis=-1).astype("<f2").view(np.uint8)


def with_offset(x, bits):
    """q4_0, q5_0: the first number of the largest magnitude becomes the least quant."""
    half = 1 << bits - 1
    top = np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], axis=-1)
    d = top / np.float32(-half)
    quants = np.minimum((x * inverse(d) + np.float32(half + 0.5)).astype(np.int8), 2 * half - 1).view(np.uint8)
    return [halves(d), *([fifth_bits(quants)] if bits == 5 else []), nibbles(quants & 15)]


def with_min(x, bits):
    """q4_1, q5_1: quants from 0 at the least number to the largest one at the largest."""
    least = x.min(axis=-1, keepdims=True)
    d = (x.max(axis=-1, keepdims=True) - least) / np.float32(2**bits - 1)
    quants = np.minimum(((x - least) * inverse(d) + np.float32(0.5)).astype(np.int8), 2**bits - 1).view(np.uint8)
    return [halves(d, least), *([fifth_bits(quants)] if bits == 5 else []), nibbles(quants & 15)]


def with_sign(x, *, sums):
    """q8_0, q8_1: the largest magnitude becomes 127."""
    d = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
    quants = nearest(x * inverse(d)).astype(np.int8)
    s = quants.sum(axis=-1, keepdims=True, dtype=np.int32).astype(np.float32) * d
    return [halves(d, s) if sums else halves(d), quants.view(np.uint8)]


def inverse(d):
    return np.where(d != 0, np.float32(1) / d, np.float32(0))


@np.errstate(all="ignore")
def run(out, x, *, format):
    rows, cols = x.shape
    blocks = np.ascontiguousarray(x).reshape(rows, cols // 32, 32)
    if not blocks.size:
        return
    if format[1] == "8":
        parts = with_sign(blocks, sums=format == "q8_1")
    else:
        parts = (with_offset if format.endswith("_0") else with_min)(blocks, int(format[1]))
    out[...] = np.concatenate(parts, axis=-1).reshape(out.shape)
