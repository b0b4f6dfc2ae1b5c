"""Packed blocks mean what they mean to ggml: by hand, beside gguf, and beside ggml's own C reference."""

import ctypes
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from kernel_assay.corpus.blocks import BLOCKS
from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.inputs.materialize import materialize
from kernel_assay.corpus.model.case import Fill, TensorRecipe
from kernel_assay.oracles.numerics.blocks import dequantized, quantized, unpack

KNOWN_TO_GGUF = [name for name in BLOCKS if name != "q8_1"]
COUNT = 10_000
RAMP = bytes((15 - j) << 4 | j for j in range(16)).hex()  # elements 0..15 hold 0..15, elements 16..31 hold 15..0


def raw(text):
    return np.frombuffer(bytes.fromhex(text), np.uint8)


def filled(distribution, name, shape, seed=7):
    """Blocks of a distribution, of shape (..., blocks)."""
    fmt = BLOCKS[name]
    fill = Fill(distribution=distribution, seed=seed, params={"block": fmt.size, "scales": fmt.scales})
    return materialize(TensorRecipe(shape=(*shape[:-1], shape[-1] * fmt.size), dtype="uint8", fill=fill))


def same_bits(a, b):
    """NaN is NaN, whatever its bits."""
    return bool((np.isnan(a) & np.isnan(b) | (a.view(np.uint32) == b.view(np.uint32))).all())


UP, DOWN = list(range(16)), list(range(15, -1, -1))
FIFTH = {0: 16, 15: 16, 16: 16, 31: 16}
"""The bits 0, 15, 16 and 31 of 0x80018001, stored as 01 80 01 80."""


@pytest.mark.parametrize(
    ("name", "block", "d", "m", "stored"),
    [
        ("q4_0", "0038" + RAMP, 0.5, 0, UP + DOWN),
        ("q4_1", "0038" + "00c2" + RAMP, 0.5, -3, UP + DOWN),
        ("q5_0", "0038" + "01800180" + RAMP, 0.5, 0, [q + FIFTH.get(j, 0) for j, q in enumerate(UP + DOWN)]),
        ("q5_1", "0038" + "00c2" + "01800180" + RAMP, 0.5, -3, [q + FIFTH.get(j, 0) for j, q in enumerate(UP + DOWN)]),
        ("q8_0", "0038" + "8081ff00017f" + "05" * 26, 0.5, 0, [-128, -127, -1, 0, 1, 127] + [5] * 26),
        ("q8_1", "0038" + "00c2" + "8081ff00017f" + "05" * 26, 0.5, -3, [-128, -127, -1, 0, 1, 127] + [5] * 26),
    ],
)
def test_blocks_by_hand(name, block, d, m, stored):
    content = unpack(raw(block), name)
    assert (content.d.tolist(), content.m.tolist(), content.quants.tolist()) == ([d], [m], [stored])
    assert (content.d.dtype, content.m.dtype, content.quants.dtype) == (np.float64, np.float64, np.int32)
    zero, least = {"q4_0": (8, 0), "q5_0": (16, 0), "q4_1": (0, m), "q5_1": (0, m)}.get(name, (0, 0))
    assert dequantized(raw(block), name).tolist() == [0.5 * (q - zero) + least for q in stored]


def of(values, rest=0.0):
    """A block that begins with these values."""
    return np.array([*values, *[rest] * (32 - len(values))], np.float32)


@pytest.mark.parametrize(
    ("name", "x", "d", "m", "stored"),
    [
        # d = -8 / -8: halves go up, and what would be 16 is 15
        ("q4_0", of([-8, 8, 0.5, -0.5, 0.49, -1.5]), 1, 0, [0, 15, 9, 8, 8, 7] + [8] * 26),
        ("q4_0", of([8, -8]), -1, 0, [0, 15] + [8] * 30),  # of two that are largest in magnitude the first counts
        ("q5_0", of([-16, 16, 0.5, -0.5, 0.49, -1.5]), 1, 0, [0, 31, 17, 16, 16, 15] + [16] * 26),
        ("q4_1", of([-2, 13, -1.5, -0.5, -0.51], -2), 1, -2, [0, 15, 1, 2, 1] + [0] * 27),
        ("q5_1", of([-2, 29, -1.5, -0.5, -0.51], -2), 1, -2, [0, 31, 1, 2, 1] + [0] * 27),
        ("q8_0", of([127, -127, 0.5, -0.5, 2.5, -2.5, 0.49]), 1, 0, [127, -127, 1, -1, 3, -3] + [0] * 26),
        ("q8_1", of([127, 0.5, 2.5, 0.49]), 1, 131, [127, 1, 3, 0] + [0] * 28),  # s is of the quants: not 130.49
        # d is 1 + 2**-12, stored as 1; by the stored one 63.5 would become 64
        ("q8_0", of([127 * (1 + 2**-12), 63.5]), 1, 0, [127, 63] + [0] * 30),
        ("q8_1", of([127 * (1 + 2**-12), 63.5]), 1, 190, [127, 63] + [0] * 30),
        ("q4_0", of([-8 * (1 + 2**-12), -3.5]), 1, 0, [0, 5] + [8] * 30),  # 8.5 - 3.4991...; 4.99... if rounded first
        *[(name, of([]), 0, 0, [fmt.offset] * 32) for name, fmt in BLOCKS.items()],
    ],
)
def test_quantized_by_hand(name, x, d, m, stored):
    content = unpack(quantized(x, name), name)
    assert (content.d.tolist(), content.m.tolist(), content.quants[0].tolist()) == ([d], [m], stored)


@pytest.mark.parametrize("distribution", ["exact_blocks", "blocks", "wild_blocks", "raw_bits"])
@pytest.mark.parametrize("name", KNOWN_TO_GGUF)
def test_dequantized_is_what_gguf_says(name, distribution):
    packed = filled(distribution, name, (COUNT,))
    with np.errstate(all="ignore"):
        theirs = quants.dequantize(packed.reshape(1, -1), GGMLQuantizationType[name.upper()])[0]
        assert same_bits(dequantized(packed, name).astype(np.float32), theirs)


@pytest.mark.parametrize("distribution", ["blocks", "wild_blocks"])
@pytest.mark.parametrize("name", BLOCKS)
def test_dequantized_is_exact(name, distribution):
    """In fractions, from what was unpacked: a third way, which rounds nowhere."""
    packed, fmt = filled(distribution, name, (40,)), BLOCKS[name]
    content = unpack(packed, name)
    least = content.m if fmt.second == "min" else np.zeros_like(content.m)
    exact = [
        Fraction(d) * (int(q) - fmt.offset) + Fraction(m)
        for d, m, block in zip(content.d, least, content.quants, strict=True)
        for q in block
    ]
    assert [Fraction(value) for value in dequantized(packed, name)] == exact


@pytest.mark.parametrize("name", KNOWN_TO_GGUF)
def test_sums_with_exact_blocks_are_exact(name):
    """Up to 8192 columns: terms are multiples of 1/4, and all together stay below 2**24 of them."""
    other = "q8_1" if BLOCKS[name].second else "q8_0"
    w, a = (unpack(filled("exact_blocks", form, (16, 256), seed), form) for form, seed in ((name, 1), (other, 2)))
    products = np.abs((w.quants - BLOCKS[name].offset) * a.quants).sum(axis=-1) * np.abs(w.d * a.d)
    terms = np.concatenate([products, np.abs(w.m * a.m)], axis=-1)
    assert (terms * 4 == np.floor(terms * 4)).all()
    assert terms.sum(axis=-1).max() * 4 < 2**24


@pytest.mark.parametrize("name", BLOCKS)
def test_every_shape(name):
    size, x = BLOCKS[name].size, np.random.default_rng(0).standard_normal((2, 3, 128)).astype(np.float32)
    packed = quantized(x, name)
    assert packed.shape == (2, 3, 4 * size)
    assert (packed.reshape(-1) == quantized(x.reshape(-1), name)).all()
    assert (quantized(x.transpose(1, 0, 2), name) == packed.transpose(1, 0, 2)).all()
    assert (dequantized(packed[:, 1:, size:], name) == dequantized(packed, name)[:, 1:, 32:]).all()
    assert (dequantized(np.broadcast_to(packed[:1], (5, 3, 4 * size)), name)[4] == dequantized(packed, name)[0]).all()
    content = unpack(packed[..., ::-1][..., ::-1], name)
    assert (content.d.shape, content.m.shape, content.quants.shape) == ((2, 3, 4), (2, 3, 4), (2, 3, 4, 32))
    for empty in ((0,), (0, 2), (3, 0)):
        none = quantized(np.zeros((*empty[:-1], empty[-1] * 32), np.float32), name)
        assert none.shape == (*empty[:-1], empty[-1] * size)
        assert dequantized(none, name).shape == (*empty[:-1], empty[-1] * 32)
        assert unpack(none, name).quants.shape == (*empty, 32)


def test_nonsense_is_refused():
    with pytest.raises(InternalError, match="a row of 19 is no whole number of q4_0 blocks, which take 18 each"):
        unpack(np.zeros(19, np.uint8), "q4_0")
    with pytest.raises(InternalError, match="a row of 33 is no whole number"):
        quantized(np.zeros(33, np.float32), "q8_1")
    with pytest.raises(InternalError, match="not of float64"):
        quantized(np.zeros(32), "q4_0")
    with pytest.raises(UsageError, match="'q4_2' is not known"):
        dequantized(np.zeros(18, np.uint8), "q4_2")


def halves(low, high, **fixed):
    """Multiples of 1/2, with some elements given: d is a power of two, and every second quotient a tie."""
    x = np.random.default_rng(1).integers(2 * low, 2 * high + 1, (COUNT, 32)) / 2
    for place, value in fixed.items():
        x[:, int(place[1:])] = value
    return x


@pytest.fixture(scope="module")
def families():
    """Blocks of many kinds; finite, and 1/d does not overflow: C leaves open what casts would give."""
    rng = np.random.default_rng(0)
    normal, size = rng.standard_normal((COUNT, 32)), np.exp2(rng.integers(-20, 21, (COUNT, 32)))
    largest = np.abs(normal).max(axis=1, keepdims=True) * 1.5
    columns, sides = np.arange(32), rng.integers(0, 16, (2, COUNT, 1))
    made = {
        "normal": normal,
        "zero": np.zeros((COUNT, 32)),
        "minus zero": np.where(normal > 0, -0.0, 0.0),
        "constant": np.repeat(normal[:, :1], 32, axis=1),
        "negative": -np.abs(normal),
        "ties of 4 bits": halves(-8, 8, x3=-8),
        "ties of 4 bits from 0": halves(0, 15, x5=0, x9=15),
        "ties of 5 bits": halves(-16, 16, x3=16),
        "ties of 5 bits from 0": halves(0, 31, x5=0, x9=31),
        "ties of 8 bits": halves(-127, 127, x0=127),
        "two largest": np.where(columns == sides[0], largest, np.where(columns == 16 + sides[1], -largest, normal)),
        "one large": np.where(columns == sides[0], 1e4, 1) * normal,
        "far off": normal / 256 + 1000,
        "wide": normal * size,
        "subnormal d": normal * 2.0**-21 * np.exp2(rng.integers(-6, 4, (COUNT, 1))),
        "d becomes 0": normal * 2.0**-110,
        "d becomes Inf": normal * 2.0**18 * np.exp2(rng.integers(-4, 90, (COUNT, 1))),
    }
    return {family: x.astype(np.float32) for family, x in made.items()}


class Reference:
    """ggml's C reference: quantize_row_*_ref and dequantize_row_* of the library libggml-base."""

    def __init__(self, folder):
        self.library = ctypes.CDLL(str(folder / "libggml-base.so.0"))

    def _row(self, function, source, sink, count):
        call = getattr(self.library, function)
        call.argtypes, call.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64), None
        call(source.ctypes.data, sink.ctypes.data, count)
        return sink

    def quantized(self, x, name):
        sink = np.empty(x.size // 32 * BLOCKS[name].size, np.uint8)
        return self._row(f"quantize_row_{name}_ref", x, sink, x.size)

    def dequantized(self, packed, name):
        sink = np.empty(packed.size // BLOCKS[name].size * 32, np.float32)
        return self._row(f"dequantize_row_{name}", packed, sink, sink.size)


@pytest.fixture(scope="module")
def ggml():
    found = find_spec("libggml")
    if found is None:
        pytest.skip("libggml-python is not installed")
    return Reference(Path(found.origin).parent / "lib64")


@pytest.mark.parametrize("name", BLOCKS)
def test_quantized_is_what_ggml_says(ggml, name, families):
    differ = [f for f, x in families.items() if quantized(x, name).tobytes() != ggml.quantized(x, name).tobytes()]
    assert differ == []


def gguf_quantized(x, name):
    with np.errstate(all="ignore"):
        return quants.quantize(x, GGMLQuantizationType[name.upper()])


@pytest.mark.parametrize("name", KNOWN_TO_GGUF)
def test_quantized_is_what_gguf_says(name, families):
    """Rows of 50 blocks, as models have: we hand over all as one row."""
    rows = {family: x.reshape(-1, 1600) for family, x in families.items() if family != "minus zero"}
    differ = [f for f, x in rows.items() if quantized(x, name).tobytes() != gguf_quantized(x, name).tobytes()]
    assert differ == []


@pytest.mark.parametrize("name", KNOWN_TO_GGUF)
def test_only_the_sign_of_zero_scales_is_mended(name, families):
    """The C reference starts from +0 and takes the first of equal zeros; numpy takes one or the other."""
    x = families["minus zero"]
    ours, theirs = unpack(quantized(x, name), name), unpack(gguf_quantized(x, name), name)
    assert (ours.d.any(), ours.m.any()) == (theirs.d.any(), theirs.m.any()) == (False, False)
    assert (ours.quants == theirs.quants).all()


@pytest.mark.parametrize("distribution", ["exact_blocks", "blocks", "wild_blocks", "raw_bits"])
@pytest.mark.parametrize("name", KNOWN_TO_GGUF)  # of Q8_1 ggml has none: nobody needs its values
def test_dequantized_is_what_ggml_says(ggml, name, distribution):
    packed = filled(distribution, name, (COUNT,))
    with np.errstate(all="ignore"):
        assert same_bits(dequantized(packed, name).astype(np.float32), ggml.dequantized(packed, name))


@pytest.mark.parametrize("name", BLOCKS)
def test_a_changed_bit_is_noticed(name, families):
    """Every byte of a block decides something that this file compares."""
    packed = quantized(families["normal"][0], name)
    content = unpack(packed, name)
    for place in range(BLOCKS[name].size):
        changed = packed.copy()
        changed[place] ^= 1
        other = unpack(changed, name)
        assert (other.d != content.d).any() or (other.m != content.m).any() or (other.quants != content.quants).any()
