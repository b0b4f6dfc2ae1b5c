"""Packed blocks: where their bytes lie, and the distributions that fill tensors with them."""

import hashlib

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assay.corpus.blocks import BLOCKS, ELEMENTS, block_format
from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.materialize import materialize
from kernel_assay.corpus.model.case import Fill, TensorRecipe
from kernel_assay.oracles.numerics.blocks import unpack

NAMES = ("exact_blocks", "blocks", "wild_blocks")
EVERY = (*NAMES, "every_blocks")
GOLDEN = {
    "exact_blocks": "8b78f504d4aa14f71cce1f2351babca1",
    "blocks": "f1a8832b84c92389c349adf2d9c5d2cb",
    "wild_blocks": "a050a1d8ce91e6d06ed485e9043056ad",
    "every_blocks": "0027e9c745a25b626c053bc4b308629d",
}


def recipe(distribution, form, shape, origin=(), seed=11, **params):
    fmt = BLOCKS[form]
    told = {"block": fmt.size, "scales": fmt.scales} | params
    return TensorRecipe(
        shape=shape, dtype="uint8", origin=origin, fill=Fill(distribution=distribution, seed=seed, params=told)
    )


def blocks_of(distribution, form, rows=64, count=32, **params):
    """(rows, count, bytes of a block)."""
    size = BLOCKS[form].size
    return materialize(recipe(distribution, form, (rows, count * size), **params)).reshape(rows, count, size)


def scales_of(distribution, form, field=0):
    pair = blocks_of(distribution, form)[..., 2 * field : 2 * field + 2]
    return np.ascontiguousarray(pair).view("<f2")[..., 0].astype(np.float64)


def test_sizes_are_those_of_the_structs():
    """sizeof of block_q4_0 to block_q8_1, as static_asserts in ggml-common.h have them."""
    sizes = {"q4_0": 18, "q4_1": 20, "q5_0": 22, "q5_1": 24, "q8_0": 34, "q8_1": 36}
    assert {name: fmt.size for name, fmt in BLOCKS.items()} == sizes


@pytest.mark.parametrize("form", [f for f in BLOCKS if f != "q8_1"])  # of which gguf has a layout of older days
def test_sizes_are_those_of_gguf(form):
    assert GGML_QUANT_SIZES[GGMLQuantizationType[form.upper()]] == (ELEMENTS, BLOCKS[form].size)


def test_places_within_a_block():
    places = {name: (f.scales, f.high_bits, f.quants) for name, f in BLOCKS.items()}
    assert places == {
        "q4_0": (1, 2, 2),
        "q4_1": (2, 4, 4),
        "q5_0": (1, 2, 6),
        "q5_1": (2, 4, 8),
        "q8_0": (1, 2, 2),
        "q8_1": (2, 4, 4),
    }


def test_an_unknown_format_is_refused_by_name():
    with pytest.raises(UsageError, match="block format 'q3_k' is not known; the known ones are q4_0, q4_1"):
        block_format("q3_k")


@st.composite
def cuts(draw):
    """A shape, an origin, and how much is cut off each axis before and after; not only whole blocks."""
    size = draw(st.sampled_from([f.size for f in BLOCKS.values()]))
    shape = (*draw(st.lists(st.integers(0, 3), max_size=2)), draw(st.integers(0, 4 * size)))
    origin = tuple(draw(st.integers(0, 100)) for _ in shape)
    before = [draw(st.integers(0, n)) for n in shape]
    after = [draw(st.integers(0, n - b)) for n, b in zip(shape, before, strict=True)]
    return size, shape, origin, before, after


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=60, deadline=None, database=None)
@given(cut=cuts(), seed=st.integers(0, 2**64 - 1), scales=st.integers(1, 2))
def test_cutting_keeps_the_values(name, cut, seed, scales):
    size, shape, origin, before, after = cut
    fill = Fill(distribution=name, seed=seed, params={"block": size, "scales": scales})
    base = TensorRecipe(shape=shape, dtype="uint8", origin=origin, fill=fill)
    whole = materialize(base)
    kept = tuple(slice(b, n - a) for n, b, a in zip(shape, before, after, strict=True))
    part = base.but(
        shape=tuple(s.stop - s.start for s in kept), origin=tuple(o + b for o, b in zip(origin, before, strict=True))
    )
    assert whole.shape == shape
    assert materialize(part).tobytes() == whole[kept].tobytes()


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 18), (1,), (2, 3, 36)], ids=str)
def test_every_shape_gives_a_writable_contiguous_tensor(name, shape):
    tensor = materialize(recipe(name, "q4_0", shape))
    assert (tensor.shape, tensor.dtype) == (shape, np.uint8)
    assert tensor.flags.c_contiguous
    assert tensor.flags.writeable


@pytest.mark.parametrize("name", EVERY)
def test_bytes_are_what_they_always_were(name):
    """If this fails, stored cases mean something else: undo it, or raise GENERATOR_VERSION."""
    said = hashlib.sha256()
    for form in BLOCKS:
        said.update(materialize(recipe(name, form, (5, 3 * BLOCKS[form].size + 1), origin=(3, 7))).tobytes())
    assert said.hexdigest()[:32] == GOLDEN[name]


@pytest.mark.parametrize("name", EVERY)
def test_nobody_is_filled_with_blocks_unasked(name):
    d = DISTRIBUTIONS[name]
    assert d.by_name_only
    assert d.patterns
    assert list(DISTRIBUTIONS).index(name) > list(DISTRIBUTIONS).index("every_bits")


@pytest.mark.parametrize("name", EVERY)
def test_nonsense_is_refused(name):
    good = recipe(name, "q4_0", (18,))
    for dtype in set(FORMATS) - {"uint8"}:
        with pytest.raises(UsageError, match=f"{dtype} cannot be filled"):
            materialize(good.but(dtype=dtype))
    for params in ({}, {"block": 18}, {"scales": 1}):
        with pytest.raises(UsageError, match="need the params block and scales"):
            materialize(good.but(fill=good.fill.but(params=params)))
    for params in ({"block": 3, "scales": 2}, {"block": 0, "scales": 0}, {"block": 18, "scales": -1}):
        with pytest.raises(UsageError, match="has no room for"):
            materialize(good.but(fill=good.fill.but(params=params)))


@pytest.mark.parametrize("form", BLOCKS)
def test_every_scale_and_every_quant_come_once(form):
    fmt, quants = BLOCKS[form], set()
    for start in range(0, 1 << fmt.bits, ELEMENTS):
        blocks = blocks_of("every_blocks", form, 256, 256, start=start, second=0xB801).reshape(-1, fmt.size)
        scales = np.ascontiguousarray(blocks[:, : 2 * fmt.scales]).view("<u2")
        assert (scales[:, 0] == np.arange(1 << 16)).all()
        assert (scales[:, 1:] == 0xB801).all()
        assert (blocks[:, 2 * fmt.scales :] == blocks[0, 2 * fmt.scales :]).all()
        quants |= set(unpack(blocks[:1], form).quants.ravel().tolist())
    assert len(quants) == 1 << fmt.bits


@pytest.mark.parametrize("form", BLOCKS)
def test_plain_scales(form):
    for field in range(BLOCKS[form].scales):
        top = 256.0 if field and form == "q8_1" else 1.0
        found = scales_of("blocks", form, field)
        assert np.abs(found).min() >= top / 256
        assert np.abs(found).max() < top
        assert 0.4 < (found < 0).mean() < 0.6
        assert len(np.unique(found)) > 1500  # of 2048: full mantissas


@pytest.mark.parametrize("form", BLOCKS)
def test_exact_scales(form):
    for field in range(BLOCKS[form].scales):
        assert set(np.unique(scales_of("exact_blocks", form, field))) == {-2, -1, -0.5, 0.5, 1, 2}


@pytest.mark.parametrize("form", BLOCKS)
def test_wild_scales(form):
    for field in range(BLOCKS[form].scales):
        found = scales_of("wild_blocks", form, field)
        size = np.abs(found)
        assert np.isfinite(found).all()
        for stratum in (size == 0, (size > 0) & (size < 2.0**-14), size == 65504):
            assert (stratum & np.signbit(found)).sum() > 80  # of 128 expected
            assert (stratum & ~np.signbit(found)).sum() > 80
        assert len(np.unique(np.frexp(size[size > 0])[1])) == 40  # every exponent there is, 2**-24 to 2**15


@pytest.mark.parametrize("form", ["q8_0", "q8_1"])
@pytest.mark.parametrize(("name", "most"), [("exact_blocks", 8), ("blocks", 127), ("wild_blocks", 127)])
def test_quants_of_a_byte(form, name, most):
    quants = blocks_of(name, form)[..., BLOCKS[form].quants :].view(np.int8)
    assert (quants.min(), quants.max()) == (-most, most)


def test_the_bound_of_exact_quants_can_be_chosen():
    quants = blocks_of("exact_blocks", "q8_0", bound=3)[..., 2:].view(np.int8)
    assert (quants.min(), quants.max()) == (-3, 3)


@pytest.mark.parametrize("form", ["q4_0", "q4_1", "q5_0", "q5_1"])
@pytest.mark.parametrize("name", NAMES)
def test_narrow_quants_are_any_bits(form, name):
    quants = blocks_of(name, form)[..., BLOCKS[form].high_bits :]
    assert np.bincount(quants.ravel(), minlength=256).min() > 50  # of 128 or more


@pytest.mark.parametrize("name", NAMES)
def test_every_place_has_words_of_its_own(name):
    raw = blocks_of(name, "q8_1", rows=40, count=40)
    words = raw.astype(np.float64) - raw.mean(axis=(0, 1))
    others = blocks_of(name, "q8_1", rows=40, count=40, seed=12)
    assert not np.array_equal(raw, others)
    spread = (words**2).mean(axis=(0, 1))
    for shifted in (words[1:] * words[:-1], words[:, 1:] * words[:, :-1], words[..., 1:] * words[..., :-1]):
        kept = spread[:-1] ** 0.5 * spread[1:] ** 0.5 if shifted.shape[-1] == 35 else spread
        assert np.abs(shifted.mean(axis=(0, 1)) / np.maximum(kept, 1e-9))[4:].max() < 0.15  # quants, of 1600 samples
