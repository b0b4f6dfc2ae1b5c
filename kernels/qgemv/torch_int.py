"""Integer dot products in torch, quarters of a block apart, as threads of a GPU share a block."""

import torch

BACKEND = "torch"
SIZES = {"q4_0": 18, "q4_1": 20, "q5_0": 22, "q5_1": 24, "q8_0": 34, "q8_1": 36}
OFFSETS = {"q4_0": 8, "q5_0": 16}


def unpack(raw, format):
    """Scales as float32, of shape (..., blocks, 1 or 2), and quants as integers, of shape (..., blocks, 32)."""
    size, bits, heads = SIZES[format], int(format[1]), 2 if format.endswith("_1") else 1
    blocks = raw.reshape(*raw.shape[:-1], raw.shape[-1] // size, size)
    scales = blocks[..., : 2 * heads].clone(memory_format=torch.contiguous_format).view(torch.float16).float()
    if bits == 8:
        return scales, blocks[..., 2 * heads :].contiguous().view(torch.int8).int()
    nibbles = blocks[..., -16:].int()
    quants = torch.cat([nibbles & 15, nibbles >> 4], dim=-1)
    if bits == 5:
        fifth = blocks[..., 2 * heads : -16].int().unsqueeze(-1) >> torch.arange(8, dtype=torch.int32) & 1
        quants = quants + 16 * fifth.reshape(quants.shape)
    return scales, quants


def run(out, w, a, *, format, activations):
    (scales, quants), (factors, values) = unpack(w, format), unpack(a, activations)
    offset = OFFSETS.get(format, 0)
    if activations == "q8_0":  # without stored sums the integers themselves are corrected
        quants, offset = quants - offset, 0
    parts = (quants * values).reshape(*quants.shape[:-1], 4, 8).sum(dim=-1).float()
    d = factors[:, :1]
    shared = values.reshape(-1, 4, 8).sum(dim=-1).float() * d if activations == "q8_0" else factors[:, 1:] / 4
    terms = scales[..., :1] * (d * parts - offset * shared)
    if format in {"q4_1", "q5_1"}:
        terms = terms + scales[..., 1:] * shared
    out.copy_(terms.flatten(1).sum(dim=-1))
