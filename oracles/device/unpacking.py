"""Meaning of packed blocks of GGML, by torch: oracles/numerics/blocks.py on a device, exact in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernel_assay.corpus.blocks import ELEMENTS, BlockFormat, block_format


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The contents of packed blocks, all of float64; oracles.numerics.blocks.Unpacked says what they are."""

    d: Tensor
    """(..., blocks)."""
    m: Tensor
    """(..., blocks); zeros in formats that have neither a min nor a sum."""
    quants: Tensor
    """As stored: (..., blocks, 32)."""


def unpack(raw: Tensor, name: str) -> Unpacked:
    """Take blocks apart. raw: uint8 of shape (..., blocks * bytes of a block)."""
    fmt = block_format(name)
    blocks = raw.reshape(*raw.shape[:-1], raw.shape[-1] // fmt.size, fmt.size)
    scales = blocks[..., : 2 * fmt.scales].clone(memory_format=torch.contiguous_format).view(torch.float16).double()
    d = scales[..., 0]
    return Unpacked(d, scales[..., 1] if fmt.second else torch.zeros_like(d), _quants(blocks, fmt).double())


def dequantized(raw: Tensor, name: str) -> Tensor:
    """The value of every element: (..., blocks * 32)."""
    content, fmt = unpack(raw, name), block_format(name)
    return flat(values(content, fmt))


def values(content: Unpacked, fmt: BlockFormat) -> Tensor:
    """The value of every element: (..., blocks, 32)."""
    product = (content.quants - fmt.offset) * content.d[..., None]
    return product + content.m[..., None] if fmt.second == "min" else product


def flat(blocks: Tensor) -> Tensor:
    """(..., blocks, 32) as (..., blocks * 32)."""
    return blocks.reshape(*blocks.shape[:-2], blocks.shape[-2] * ELEMENTS)


def _quants(blocks: Tensor, fmt: BlockFormat) -> Tensor:
    stored = blocks[..., fmt.quants :]
    if fmt.bits == 8:
        return stored.view(torch.int8)
    quants = torch.cat([stored & 15, stored >> 4], dim=-1)
    if fmt.bits == 5:
        places = torch.arange(8, dtype=torch.uint8, device=blocks.device)
        fifth = (blocks[..., fmt.high_bits : fmt.quants, None] >> places) & 1
        quants += fifth.reshape(quants.shape) << 4
    return quants
