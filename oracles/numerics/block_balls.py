"""Packed blocks in ball arithmetic, read byte by byte as ggml-common.h has them: independent of blocks.py."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kernel_assay.corpus.blocks import BLOCKS, ELEMENTS
from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.spec.balls import Ball, ball, total


@dataclass(frozen=True, slots=True)
class Block:
    """One block, nothing computed yet."""

    d: Ball
    second: Ball
    """The min or the sum; 0 in formats that have neither."""
    quants: list[int]
    """As stored: the offset is not subtracted."""


def read_block(row: Array, place: int, name: str) -> Block:
    """The block at a place of a row of bytes."""
    size, two = BLOCKS[name].size, name.endswith("_1")
    raw = row[place * size : (place + 1) * size].tobytes()
    halves = struct.unpack_from("<ee" if two else "<e", raw)
    behind = raw[4 if two else 2 :]
    return Block(ball(halves[0]), ball(halves[1] if two else 0.0), _quants(behind, name[1]))


def _quants(raw: bytes, bits: str) -> list[int]:
    if bits == "8":
        return list(struct.unpack("<32b", raw))
    fifth = int.from_bytes(raw[:4], "little") if bits == "5" else 0
    nibbles = raw[4:] if bits == "5" else raw
    found = [byte & 0x0F for byte in nibbles] + [byte >> 4 for byte in nibbles]
    return [q + 16 * (fifth >> j & 1) for j, q in enumerate(found)]


def value(row: Array, at: int, name: str) -> Ball:
    """One element of a row of blocks."""
    block = read_block(row, at // ELEMENTS, name)
    product = block.d * (block.quants[at % ELEMENTS] - BLOCKS[name].offset)
    return product + block.second if BLOCKS[name].second == "min" else product


def dot(w: Array, a: Array, name: str, activations: str) -> Ball:
    """The sum of products of a row of weights and one of activations."""
    count = len(w) // BLOCKS[name].size
    pairs = ((read_block(w, i, name), read_block(a, i, activations)) for i in range(count))
    return total(_product(x, y, name, activations) for x, y in pairs)


def _product(w: Block, a: Block, name: str, activations: str) -> Ball:
    whole = ball(sum(p * q for p, q in zip(w.quants, a.quants, strict=True)))
    added = a.second if activations == "q8_1" else a.d * sum(a.quants)
    return w.d * (a.d * whole - BLOCKS[name].offset * added) + w.second * added
