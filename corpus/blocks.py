"""The block formats of GGML, in which weights and activations are stored: where each byte of a block lies.

Of public sources: ggml-common.h (the structs block_q4_0 to block_q8_1) and dequantize_row_* in ggml-quants.c. All six
begin with one or two float16 numbers, little-endian like everything in them. Quants of 4 bits share bytes: the low
nibbles hold elements 0 to 15, the high ones 16 to 31. The fifth bits are one uint32 whose bit j belongs to element j.
"""

from dataclasses import dataclass
from typing import Literal

from kernel_assay.corpus.errors import UsageError

ELEMENTS = 32
"""Numbers in a block; the same in all six formats."""


@dataclass(frozen=True)
class BlockFormat:
    """One format. An element is worth d * (q - offset), plus the min in formats that store one."""

    name: str
    bits: int
    """Width of a quant: 4 or 5, unsigned; 8, signed."""
    offset: int
    """What stands for zero; subtracted from the stored quant before it is multiplied."""
    second: Literal["", "min", "sum"] = ""
    """The float16 that follows d: the block's min, or the sum of its elements, which no element's value depends on."""

    @property
    def scales(self) -> int:
        """The number of float16 numbers that a block begins with; d is the first."""
        return 2 if self.second else 1

    @property
    def high_bits(self) -> int:
        """The byte where the uint32 of fifth bits begins, in formats that have one: right before the quants."""
        return 2 * self.scales

    @property
    def quants(self) -> int:
        """The byte where the quants begin that fill the rest of the block."""
        return self.high_bits + (ELEMENTS // 8 if self.bits == 5 else 0)

    @property
    def size(self) -> int:
        """Bytes of a block."""
        return self.quants + (ELEMENTS if self.bits == 8 else ELEMENTS // 2)


BLOCKS: dict[str, BlockFormat] = {
    f.name: f
    for f in (
        BlockFormat("q4_0", bits=4, offset=8),
        BlockFormat("q4_1", bits=4, offset=0, second="min"),
        BlockFormat("q5_0", bits=5, offset=16),
        BlockFormat("q5_1", bits=5, offset=0, second="min"),
        BlockFormat("q8_0", bits=8, offset=0),
        BlockFormat("q8_1", bits=8, offset=0, second="sum"),
    )
}


def block_format(name: str) -> BlockFormat:
    """The format of this name. Raises UsageError for one that is not known."""
    if name not in BLOCKS:
        raise UsageError(f"block format {name!r} is not known; the known ones are {', '.join(BLOCKS)}")
    return BLOCKS[name]
