"""Meaning of packed blocks of GGML, and packing: gguf where it knows the format, own code for the rest.

gguf is the field's own Python library of these formats; its results are those of ggml's C reference byte for byte
(tests/oracles/test_blocks.py). It lacks Q8_1 and gives no quants, so both stand here.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.blocks import ELEMENTS, BlockFormat, block_format
from kernel_assay.corpus.errors import InternalError

_MINUS_ZERO = np.array([0x00, 0x80], np.uint8)
"""A float16."""

Bytes = NDArray[np.uint8]
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Unpacked:
    """The contents of packed blocks, nothing computed yet."""

    d: Reals
    """The scales, of shape (..., blocks)."""
    m: Reals
    """The mins, or the stored sums of q8_1, likewise; zeros in formats that have neither."""
    quants: NDArray[np.int32]
    """As stored, of shape (..., blocks, 32): the format's offset is not subtracted."""


def unpack(raw: Bytes, name: str) -> Unpacked:
    """Take blocks apart. raw: uint8 of shape (..., blocks * bytes of a block)."""
    fmt = block_format(name)
    blocks = _split(raw, fmt.size, name)
    scales = np.ascontiguousarray(blocks[..., : 2 * fmt.scales]).view("<f2").astype(np.float64)
    d = scales[..., 0]
    return Unpacked(d, scales[..., 1] if fmt.second else np.zeros_like(d), _quants(blocks, fmt))


def dequantized(raw: Bytes, name: str) -> Reals:
    """The exact value of every element, of shape (..., blocks * 32); Inf and NaN scales go the way of IEEE 754.

    d * q has at most 19 bits, so gguf's float32 holds it exactly. A sum with the min may need more: it is made here,
    in float64, where 45 bits are enough.
    """
    fmt = block_format(name)
    blocks = _split(raw, fmt.size, name)
    shape = (*blocks.shape[:-2], blocks.shape[-2] * ELEMENTS)
    if fmt.second == "sum":
        content = unpack(raw, name)
        return (content.d[..., None] * content.quants).reshape(shape)
    if fmt.second != "min":
        return _values_by_gguf(blocks, name).reshape(shape).astype(np.float64)
    without_min = blocks.copy()
    without_min[..., 2:4] = _MINUS_ZERO  # which no sum shows
    products = _values_by_gguf(without_min, name).astype(np.float64)
    return (products.reshape(*blocks.shape[:-1], ELEMENTS) + unpack(raw, name).m[..., None]).reshape(shape)


def quantized(x: NDArray[np.float32], name: str) -> Bytes:
    """Blocks as ggml's C reference packs them, byte for byte; x: float32 of shape (..., blocks * 32).

    The reference leaves open what becomes of NaN and Inf, and of blocks whose scale is so small that 1/d overflows.
    """
    fmt = block_format(name)
    if x.dtype != np.float32:
        raise InternalError(f"blocks are made of float32, not of {x.dtype}")
    blocks = _split(x, ELEMENTS, name)
    packed = _q8_1(blocks) if fmt.second == "sum" else _packed_by_gguf(blocks + np.float32(0), name)  # -0 becomes 0
    packed = packed.reshape(*blocks.shape[:-1], fmt.size)
    if fmt.second == "min":
        packed[_min_is_minus_zero(blocks), 2:4] = _MINUS_ZERO
    return packed.reshape(*blocks.shape[:-2], blocks.shape[-2] * fmt.size)


def _split(flat: NDArray[Any], size: int, name: str) -> NDArray[Any]:
    """(..., blocks * size) as (..., blocks, size)."""
    *rows, length = flat.shape
    if length % size:
        raise InternalError(f"a row of {length} is no whole number of {name} blocks, which take {size} each")
    return np.ascontiguousarray(flat).reshape(*rows, length // size, size)


def _quants(blocks: Bytes, fmt: BlockFormat) -> NDArray[np.int32]:
    stored = blocks[..., fmt.quants :]
    if fmt.bits == 8:
        return stored.view(np.int8).astype(np.int32)
    quants = np.concatenate([stored & 15, stored >> 4], axis=-1).astype(np.int32)
    if fmt.bits == 5:
        fifth = np.unpackbits(blocks[..., fmt.high_bits : fmt.quants], axis=-1, bitorder="little")
        quants |= fifth.astype(np.int32) << 4
    return quants


def _min_is_minus_zero(x: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Mark least zeros that are -0: C takes the first of a block; which one numpy takes differs between machines."""
    first = np.take_along_axis(x, x.argmin(axis=-1, keepdims=True), axis=-1)[..., 0]
    return np.signbit(first) & np.equal(first, 0)


def _q8_1(x: NDArray[np.float32]) -> Bytes:
    """quantize_row_q8_1_ref: quants by the unrounded d, halves away from zero; s is the sum of the quants, times d."""
    with np.errstate(all="ignore"):
        d = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
        scaled = x * np.where(d != 0, np.float32(1) / d, np.float32(0))
        whole = np.trunc(scaled)
        quants = (whole + np.copysign(np.abs(scaled - whole) >= np.float32(0.5), scaled)).astype(np.int8)
        s = quants.sum(axis=-1, keepdims=True, dtype=np.int32).astype(np.float32) * d
        scales = np.concatenate([d, s], axis=-1).astype("<f2")
    return np.concatenate([scales.view(np.uint8), quants.view(np.uint8)], axis=-1)


def _packed_by_gguf(blocks: NDArray[np.float32], name: str) -> Bytes:
    if not blocks.size:
        return np.zeros(0, np.uint8)
    quants, kind = _gguf(name)
    with np.errstate(all="ignore"):  # scales beyond float16 become Inf, as in C
        return np.asarray(quants.quantize(blocks.reshape(1, -1), kind))


def _values_by_gguf(blocks: Bytes, name: str) -> NDArray[np.float32]:
    if not blocks.size:
        return np.zeros(0, np.float32)
    quants, kind = _gguf(name)
    with np.errstate(all="ignore"):
        return np.asarray(quants.dequantize(blocks.reshape(1, -1), kind))


def _gguf(name: str) -> tuple[Any, Any]:
    """The module of quantization, and the format as gguf calls it.

    All blocks are handed over as one row: gguf takes rows 16 at a time, each time anew.
    """
    from gguf import GGMLQuantizationType, quants  # noqa: PLC0415  it takes 80 ms, and most runs meet no blocks

    return quants, GGMLQuantizationType[name.upper()]
