"""Tensor operations on bytes; a fused multiply-add where there is a min."""

import torch

BACKEND = "torch"
SIZES = {"q4_0": 18, "q4_1": 20, "q5_0": 22, "q5_1": 24, "q8_0": 34, "q8_1": 36}


def quants_of(body, bits):
    """Integers of the bytes behind the scales, along the last axis."""
    if bits == 8:
        return body.contiguous().view(torch.int8).int()
    nibbles = body[..., -16:].int()
    quants = torch.cat([nibbles & 15, nibbles >> 4], dim=-1)
    if bits == 5:
        fifth = body[..., :4].int().unsqueeze(-1) >> torch.arange(8, dtype=torch.int32) & 1
        quants = quants + 16 * fifth.reshape(quants.shape)
    return quants


def run(out, w, *, format, to="float32"):
    size, bits, heads = SIZES[format], int(format[1]), 2 if format.endswith("_1") else 1
    blocks = w.reshape(w.shape[0], w.shape[1] // size, size)
    scales = blocks[..., : 2 * heads].clone(memory_format=torch.contiguous_format).view(torch.float16).float()
    quants = quants_of(blocks[..., 2 * heads :], bits)
    offset = {"q4_0": 8, "q5_0": 16}.get(format, 0)
    values = scales[..., :1] * (quants - offset)
    if format in {"q4_1", "q5_1"}:
        values = torch.addcmul(scales[..., 1:], scales[..., :1], quants.float())
    out.copy_(values.reshape(out.shape))
