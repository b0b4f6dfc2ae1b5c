"""One product of all blocks by cuBLAS, whose float32 holds sums of quants exactly; then the scales."""

import cupy

BACKEND = "cupy"
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
    blocks = cupy.ascontiguousarray(raw).reshape(*raw.shape[:-1], raw.shape[-1] // size, size)
    scales = blocks[..., : 2 * heads].copy().view(cupy.float16).astype(cupy.float32)
    if bits == 8:
        return scales, blocks[..., 2 * heads :].astype(cupy.int8).astype(cupy.int32)
    nibbles = blocks[..., -16:]
    quants = cupy.concatenate([nibbles & 15, nibbles >> 4], axis=-1).astype(cupy.int32)
    if bits == 5:
        fifth = blocks[..., 2 * heads : -16].astype(cupy.int32)[..., None] >> cupy.arange(8, dtype=cupy.int32) & 1
        quants += 16 * fifth.reshape(quants.shape)
    return scales, quants


def run(out, w, a, *, format, activations):
    if not (out.size and w.shape[1]):
        out[...] = 0
        return
    (scales, quants), (factors, values) = unpack(w, format), unpack(a, activations)
    offset = cupy.float32(FORMATS[format][3])
    if activations == "q8_0":  # without stored sums the integers themselves are corrected
        quants, offset = quants - FORMATS[format][3], cupy.float32(0)
    rows, columns = values.transpose(1, 0, 2).astype(cupy.float32), quants.transpose(1, 2, 0).astype(cupy.float32)
    d = factors[..., 0].T[..., None]
    own = factors[..., 1] if activations == "q8_1" else factors[..., 0] * cupy.sum(values, axis=-1).astype(cupy.float32)
    sums = own.T[..., None]
    terms = scales[..., 0].T[:, None] * (d * cupy.matmul(rows, columns) - offset * sums)
    if format in {"q4_1", "q5_1"}:
        terms += scales[..., 1].T[:, None] * sums
    out[...] = cupy.sum(terms, axis=0)
