"""Integer dot products block by block; the sum of the activations makes up for offsets and mins."""

import numpy as np

BACKEND = "numpy"
FORMATS = {
    "q4_0": (18, 1, 4, 8),
    "q4_1": (20, 2, 4, 0),
    "q5_0": (22, 1, 5, 16),
    "q5_1": (24, 2, 5, 0),
    "q8_0": (34, 1, 8, 0),
    "q8_1": (36, 2, 8, 0),
}
"""Bytes of a block, float16 numbers it begins with, bits of a quant, which of them stands for zero."""


def unpack(raw, format):
    """Scales as float32, of shape (..., blocks, 1 or 2), and quants as integers, of shape (..., blocks, 32)."""
    size, heads, bits, _ = FORMATS[format]
    blocks = np.ascontiguousarray(raw).reshape(*raw.shape[:-1], raw.shape[-1] // size, size)
    scales = np.ascontiguousarray(blocks[..., : 2 * heads]).view(np.float16).astype(np.float32)
    if bits == 8:
        return scales, blocks[..., 2 * heads :].view(np.int8).astype(np.int32)
    nibbles = blocks[..., -16:]
    quants = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1).astype(np.int32)
    if bits == 5:
        quants += 16 * np.unpackbits(blocks[..., 2 * heads : -16], axis=-1, bitorder="little")
    return scales, quants


@np.errstate(all="ignore")
def run(out, w, a, *, format, activations):
    (scales, quants), (factors, values) = unpack(w, format), unpack(a, activations)
    offset = np.float32(FORMATS[format][3])
    if activations == "q8_0":  # without stored sums the integers themselves are corrected
        quants, offset = quants - FORMATS[format][3], np.float32(0)
    dots = np.einsum("mbl,bl->mb", quants, values).astype(np.float32)
    d = factors[:, 0]
    sums = factors[:, 1] if activations == "q8_1" else d * values.sum(axis=-1).astype(np.float32)
    terms = scales[..., 0] * (d * dots - offset * sums)
    if format in {"q4_1", "q5_1"}:
        terms += scales[..., 1] * sums
    out[...] = terms.sum(axis=-1, dtype=np.float32)
