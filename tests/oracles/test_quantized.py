"""What is right of packed blocks, and no more: quantizers that differ, sums that are given, bounds that hold."""

from importlib.util import find_spec

import numpy as np
import pytest

from kernel_assay.corpus.blocks import BLOCKS
from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.backends.support.ggml_library import quantize as ggml_quantize
from kernel_assay.kernels.catalog import subjects_of
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.reference import Reference, is_exact, is_iid
from kernel_assay.oracles.numerics.block_products import ACTIVATIONS, WEIGHTS
from kernel_assay.oracles.numerics.blocks import dequantized, quantized, unpack
from kernel_assay.oracles.numerics.packing import right_bytes
from kernel_assay.oracles.spec.axes import shape_of

NARROW = ("q4_0", "q4_1", "q5_0", "q5_1")
HALF = np.float16

# ---- quantize --------------------------------------------------------------------------------------------------------


def families(count=200):
    """Rows of blocks of many kinds."""
    rng = np.random.default_rng(3)
    normal = rng.standard_normal((count, 64))
    made = [normal, normal * 2.0**-12, normal * 2.0**-30, normal * 2.0**20, normal * 2.0**-120, np.round(normal * 2)]
    made += [np.round(normal * 8) / 2, np.zeros((count, 64)), np.repeat(normal[:, :1], 64, axis=1), normal + 1000]
    made += [normal * np.exp2(rng.integers(-20, 21, (count, 64))), normal * 2.0**-127, normal * 2.0**125, -abs(normal)]
    return np.concatenate(made).astype(np.float32)


def packed_by_division(x, name):
    """q8_0 and q8_1 as on GPUs: quotients, halves to even, and the sum of the numbers themselves."""
    with np.errstate(all="ignore"):
        blocks = x.reshape(len(x), -1, 32)
        d = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127)
        quants = np.rint(np.where(d != 0, blocks / d, np.float32(0))).astype(np.int8)
        scales = [d, blocks.sum(axis=-1, keepdims=True)] if name == "q8_1" else [d]
        heads = np.concatenate(scales, axis=-1).astype(HALF).view(np.uint8)
        return np.concatenate([heads, quants.view(np.uint8)], axis=-1).reshape(len(x), -1)


@pytest.mark.parametrize("name", BLOCKS)
def test_what_quantizers_of_the_field_give_is_right(name):
    x = families()
    assert right_bytes(quantized(x, name), x, name).all()
    if name.startswith("q8"):
        tame = x[np.abs(x).max(axis=1) < 1e38]
        assert right_bytes(packed_by_division(tame, name), tame, name).all()
    if find_spec("libggml"):
        for reference in (True, False):
            out = np.empty_like(quantized(x, name))
            ggml_quantize(out, x, name, reference=reference)
            assert right_bytes(out, x, name).all()


@pytest.mark.parametrize("name", BLOCKS)
def test_no_other_byte_is_right(name):
    """Every byte of blocks that are nowhere near a tie, with every other value."""
    x = np.random.default_rng(5).standard_normal((6, 32)).astype(np.float32)
    packed = quantized(x, name)
    for place in range(packed.shape[1]):
        for change in range(1, 256):
            other = packed.copy()
            other[:, place] ^= change
            right = right_bytes(other, x, name)
            ok = right.all(axis=1)
            near = name == "q8_1" and place == 2  # either of two sums, which differ in their last bits
            assert not ok.any() or near, (place, change)
            assert right_bytes(packed, x, name).all()
            shown = np.where(right, other, packed) != other  # what the judge compares with
            assert (shown.any(axis=1) | ok).all(), (place, change)


def block(*values):
    return np.array([[*values, *[0.0] * (32 - len(values))]], np.float32)


@pytest.mark.parametrize(
    ("name", "x", "place", "quants"),
    [
        ("q8_0", block(127, 0.5, -2.5), 1, {0, 1}),
        ("q8_0", block(127, 0.5, -2.5), 2, {-3, -2}),
        ("q8_0", block(127, 0.6), 1, {1}),
        ("q4_0", block(-8, 0.5, 8), 1, {8, 9}),
        ("q4_0", block(-8, 0.5, 8), 2, {15}),
        ("q4_0", block(8, -8), 1, {15}),
        ("q5_0", block(-16, 2.5, 2.51), 1, {18, 19}),
        ("q5_0", block(-16, 2.5, 2.51), 2, {19}),
        ("q4_1", block(15, 1.5), 1, {1, 2}),
        ("q5_1", block(31, 1.5, 1.4), 1, {1, 2}),
        ("q5_1", block(31, 1.5, 1.4), 2, {1}),
        ("q8_0", block(0.0), 5, {0}),
        ("q4_0", block(0.0), 5, {8}),
    ],
)
def test_beside_a_tie_either_quant_is_right(name, x, place, quants):
    fmt, found = BLOCKS[name], set()
    for q in range(-128, 128) if fmt.bits == 8 else range(1 << fmt.bits):
        packed = quantized(x, name).copy()
        body = packed[0, fmt.quants :]
        if fmt.bits == 8:
            body[place] = q % 256
        else:
            body[place] = body[place] & 0xF0 | q & 15
        if fmt.bits == 5:
            high = packed[0, fmt.high_bits : fmt.quants]
            high[place // 8] = high[place // 8] & 255 - (1 << place % 8) | (q >> 4) << place % 8
        if right_bytes(packed, x, name).all():
            found.add(q)
    assert found == quants


def test_a_sum_of_q8_1_is_that_of_quants_or_of_numbers():
    x = np.random.default_rng(2).standard_normal((1, 32)).astype(np.float32)
    packed = quantized(x, "q8_1")
    sums = {float(unpack(packed, "q8_1").m[0, 0]), float(x.sum().astype(HALF))}
    assert len(sums) == 2
    every = np.arange(1 << 16, dtype=np.uint16).view(HALF)
    right = set()
    for s in every:
        packed[0, 2:4] = np.array([s]).view(np.uint8)
        if right_bytes(packed, x, "q8_1")[0, 2:4].all():
            right.add(float(s))
    assert right == sums


@pytest.mark.parametrize("name", BLOCKS)
def test_where_the_reciprocal_may_overflow_quants_are_open(name):
    fmt, x = BLOCKS[name], block(1e-38, -2e-38, 3e-38)
    packed = quantized(x, name)
    packed[0, fmt.high_bits :] = 0x5A
    assert right_bytes(packed, x, name).all()
    packed[0, 0] = 1
    assert not right_bytes(packed, x, name)[0, :2].any(), "the scale is not"


@pytest.mark.parametrize("name", NARROW)
def test_either_zero_is_right(name):
    packed = quantized(block(0.0), name)
    assert right_bytes(packed, block(0.0), name).all()
    packed[0, 1] ^= 0x80
    assert right_bytes(packed, block(0.0), name).all()


def test_scales_beyond_float16_are_infinite():
    x = block(1e7, -3e6)
    packed = quantized(x, "q4_0")
    assert np.isneginf(unpack(packed, "q4_0").d).all()
    assert right_bytes(packed, x, "q4_0").all()
    packed[0, :2] = np.array([-65504], HALF).view(np.uint8)
    assert not right_bytes(packed, x, "q4_0")[0, :2].any()


def test_what_is_lost_is_told_for_many_numbers_with_normal_scales():
    loss = contract_of("quantize").fidelity
    assert set(loss.customary) == set(BLOCKS)
    x = np.random.default_rng(1).standard_normal((8, 128)).astype(np.float32)
    for name, most in (("q4_0", 0.015), ("q5_1", 0.01), ("q8_0", 0.005)):
        lost = loss.measure({"out": quantized(x, name)}, {"x": x}, {"format": name})
        assert 0 < lost < most
    asked = [x[:1], x * np.float32(0), x * np.float32(2.0**-20), x * np.float32(2.0**30)]
    assert [loss.measure({"out": quantized(y, "q8_0")}, {"x": y}, {"format": "q8_0"}) for y in asked] == [None] * 4


def test_it_is_told_of_who_passed_on_independent_numbers():
    subjects = [s for s in subjects_of("quantize") if s.name in {"numpy_blocks", "bug_stored_scale"}]
    cases = [
        Case(op="quantize", tensors={"x": TensorRecipe(shape=(8, 256), dtype="float32", fill=fill)}, attrs=attrs)
        for fill in (Fill(distribution="normal"), Fill(distribution="sparse"), Fill(distribution="normal", scale=1e8))
        for attrs in ({"format": "q8_0"},)
    ]
    with Examiner(subjects) as examiner:
        told = [c.fidelity for c in examiner.check([CheckRequest(case, tuple(examiner.subjects)) for case in cases])]
    assert [set(one) for one in told] == [{"quantize/numpy_blocks"}, set(), set()]
    kind, one = told[0]["quantize/numpy_blocks"]
    assert (kind, one.what, one.limit) == ("q8_0", "quantization error (NMSE)", 0.005)
    assert 1e-5 < one.worst < 1e-4


def test_a_format_that_is_none_is_refused_by_name():
    for op, given in (("quantize", {}), ("dequantize", {"to": "float32"})):
        contract = contract_of(op)
        ((name, spec),) = contract.inputs.items()
        dtype = contract.variants[0][name]
        recipe = TensorRecipe(shape=(1, 0), dtype=dtype)
        case = Case(op=op, tensors={name: recipe}, attrs={"format": "q3_k", **given})
        assert len(spec.axes) == 2
        with pytest.raises(UsageError, match="block format 'q3_k' is not known"):
            contract.check(case)


# ---- dequantize ------------------------------------------------------------------------------------------------------


def asked(op, dims, attrs, distribution="blocks", **claims):
    """Inputs, reference and budget of a case."""
    contract = contract_of(op)
    recipes = {
        name: TensorRecipe(
            shape=shape_of(spec.axes, dims, attrs),
            dtype="uint8",
            fill=Fill(distribution=distribution, seed=seed, params=spec.params(dims, attrs)),
        )
        for seed, (name, spec) in enumerate(contract.inputs.items())
    }
    case = Case(op=op, tensors=recipes, attrs=attrs)
    inputs = materialize_all(case)
    reference = Reference(contract, case, inputs)
    return inputs, reference, reference.budget(Numerics(**claims))["out"]


@pytest.mark.parametrize("name", BLOCKS)
def test_a_rounding_to_float32_is_allowed_where_it_rounds(name):
    dims = {"rows": 20, "blocks": 20}
    for distribution in ("blocks", "wild_blocks"):
        _, reference, exact = asked("dequantize", dims, {"format": name, "to": "float32"}, distribution)
        assert not np.any(exact.error)
        _, reference, budget = asked("dequantize", dims, {"format": name, "to": "float16"}, distribution)
        want = reference.want["out"]
        off = np.abs(want.astype(np.float32) - want)
        assert (np.broadcast_to(budget.error, want.shape) >= off).all()
        assert (np.broadcast_to(budget.error, want.shape)[off == 0] == 0).all()
        wide = distribution == "wild_blocks"  # others are sums that float32 holds
        assert np.any(budget.error) == (wide and BLOCKS[name].second == "min")


def test_arithmetic_of_float16_has_to_be_claimed():
    dims, attrs = {"rows": 40, "blocks": 20}, {"format": "q4_1", "to": "float16"}
    inputs, reference, budget = asked("dequantize", dims, attrs)
    content = unpack(inputs["w"], "q4_1")
    half = content.d.astype(HALF)[..., None] * content.quants.astype(HALF) + content.m.astype(HALF)[..., None]
    away = np.abs(half.reshape(40, -1).astype(np.float64) - reference.want["out"])
    final = 2.0**-11 * np.abs(reference.want["out"]) + 2.0**-25
    assert (away > budget.error + final).any()
    claimed = reference.budget(Numerics(accumulate="float16"))["out"]
    assert (away <= claimed.error + final).all()


# ---- products --------------------------------------------------------------------------------------------------------

PAIRS = [(w, a) for w in WEIGHTS for a in ACTIVATIONS]


@pytest.mark.parametrize(("weights", "activations"), PAIRS)
def test_of_honest_sums_a_product_is_that_of_the_numbers(weights, activations):
    x = np.random.default_rng(2).integers(-127, 128, (3, 64)).astype(np.float32)
    x[:, ::32] = 127  # d = 1, and the sum fits float16 or is rounded
    dims, attrs = {"m": 4, "n": 3, "blocks": 2}, {"format": weights, "activations": activations}
    inputs, _, _ = asked("qgemm", dims, attrs)
    a = quantized(x, activations)
    got = contract_of("qgemm").reference(inputs["w"], a, **attrs)["out"]
    want = dequantized(a, activations) @ dequantized(inputs["w"], weights).T
    rounded = 0.5 if activations == "q8_1" else 0.0  # of a sum below 2048
    content = unpack(inputs["w"], weights)
    room = rounded * (np.abs(content.d) * BLOCKS[weights].offset + np.abs(content.m)).sum(axis=-1)
    assert (np.abs(got - want) <= room + 1e-9).all()


def test_the_stored_sum_is_taken_as_it_is():
    dims, attrs = {"m": 3, "blocks": 2}, {"format": "q4_0", "activations": "q8_1"}
    inputs, reference, _ = asked("qgemv", dims, attrs)
    changed = inputs["a"].copy()
    changed[2:4] = np.array([100], HALF).view(np.uint8)
    other = contract_of("qgemv").reference(inputs["w"], changed, **attrs)["out"]
    content, old = unpack(inputs["w"], "q4_0"), unpack(inputs["a"], "q8_1").m[0]
    assert other == pytest.approx(reference.want["out"] - 8 * content.d[:, 0] * (100 - old))


def lanes(w, a, name, activations):
    """As SIMD code does it: eight lanes of four products each, in float32, over all blocks; then the lanes."""
    x, y, fmt = unpack(w, name), unpack(a, activations), BLOCKS[name]
    stored = activations == "q8_1"
    quants = x.quants - (0 if stored else fmt.offset)
    dots = (quants * y.quants).reshape(*x.quants.shape[:-1], 8, 4).sum(axis=-1).astype(np.float32)
    d = (x.d * y.d).astype(np.float32)
    total, extra = np.zeros((len(w), 8), np.float32), np.zeros(len(w), np.float32)
    for b in range(dots.shape[1]):
        total += d[:, b, None] * dots[:, b]
        s = (y.m if stored else y.d * y.quants.sum(axis=-1))[b]
        extra += ((x.m[:, b] - (fmt.offset * x.d[:, b] if stored else 0)) * s).astype(np.float32)
    return total.sum(axis=-1, dtype=np.float32) + extra


@pytest.mark.parametrize(("weights", "activations"), PAIRS)
@pytest.mark.parametrize("blocks", [1, 2, 7, 64])
@pytest.mark.parametrize("distribution", ["blocks", "exact_blocks", "wild_blocks"])
def test_lanes_keep_to_the_budget(weights, activations, blocks, distribution):
    attrs = {"format": weights, "activations": activations}
    inputs, reference, budget = asked("qgemv", {"m": 200, "blocks": blocks}, attrs, distribution)
    away = np.abs(lanes(inputs["w"], inputs["a"], weights, activations) - reference.want["out"])
    assert (away <= budget.error + 2.0**-24 * np.abs(reference.want["out"])).all()
    assert is_iid(reference.case, reference.contract) == (distribution == "blocks")
    assert is_exact(reference.case, reference.contract) == (distribution == "exact_blocks")
    assert np.all(budget.error == 0) == (distribution == "exact_blocks")


def test_budgets_of_blocks_would_be_too_small():
    """A block whose products cancel still has lanes that do not."""
    attrs = {"format": "q8_0", "activations": "q8_0"}
    inputs, reference, budget = asked("qgemv", {"m": 400, "blocks": 1}, attrs)
    away = np.abs(lanes(inputs["w"], inputs["a"], "q8_0", "q8_0") - reference.want["out"])
    want = np.abs(reference.want["out"])
    by_blocks = 7 * 2.0**-24 * want
    assert (away > by_blocks + 2.0**-24 * want).any()
    assert (away <= budget.error + 2.0**-24 * want).all()


def test_a_narrow_accumulator_has_to_be_claimed():
    attrs = {"format": "q4_0", "activations": "q8_1"}
    _, reference, budget = asked("qgemv", {"m": 8, "blocks": 5}, attrs)
    claimed = reference.budget(Numerics(accumulate="float16"))["out"]
    assert (claimed.error > 1000 * budget.error).all()
