"""Tensor operations; quotients by a division, sums of q8_1 over the numbers themselves, as on GPUs."""

import torch

BACKEND = "torch"


def halves(*scales):
    """Numbers as float16, two bytes each."""
    return torch.cat(scales, dim=-1).half().view(torch.uint8)


def bytes_of(quants, bits):
    """Nibbles, the first half of a block low and the second high; before them the fifth bits, one for each element."""
    low = quants & 15
    nibbles = (low[..., :16] | low[..., 16:] << 4).to(torch.uint8)
    if bits == 4:
        return [nibbles]
    fifth = (quants >> 4 & 1).reshape(*quants.shape[:-1], 4, 8) << torch.arange(8, dtype=torch.int32)
    return [fifth.sum(dim=-1).to(torch.uint8), nibbles]


def divided(x, d):
    return torch.where(d != 0, x / d, torch.zeros_like(x))


def pack(x, format):
    bits, magnitude = int(format[1]), x.abs().amax(dim=-1, keepdim=True)
    if bits == 8:
        d = magnitude / 127
        quants = torch.round(divided(x, d)).to(torch.int8)
        scales = [d, x.sum(dim=-1, keepdim=True)] if format == "q8_1" else [d]
        return [halves(*scales), quants.view(torch.uint8)]
    if format.endswith("_1"):
        least = x.amin(dim=-1, keepdim=True)
        d = (x.amax(dim=-1, keepdim=True) - least) / (2**bits - 1)
        quants = (divided(x - least, d) + 0.5).clamp(0, 2**bits - 1).int()
        return [halves(d, least), *bytes_of(quants, bits)]
    half = 1 << bits - 1
    places = torch.arange(32).expand(x.shape)
    first = torch.where(x.abs() == magnitude, places, 32).amin(dim=-1, keepdim=True)
    d = x.gather(-1, first) / -half
    quants = (divided(x, d) + (half + 0.5)).clamp(0, 2 * half - 1).int()
    return [halves(d), *bytes_of(quants, bits)]


def run(out, x, *, format):
    if x.numel():
        blocks = x.reshape(x.shape[0], x.shape[1] // 32, 32)
        out.copy_(torch.cat(pack(blocks, format), dim=-1).reshape(out.shape))
