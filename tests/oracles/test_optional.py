"""Optional inputs and attributes: what a case may leave out, what a contract is without them, and their budgets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.measure import measure
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.numerics.products import ALPHAS, BETAS
from kernel_assay.oracles.spec.axes import shape_of
from kernel_assay.oracles.spec.contract import NINF, PINF, Contract, Dim, Input, Output

CARELESS = np.errstate(all="ignore")
U = 2.0**-24


def recipe(*shape, dtype="float32", distribution="small_integers", seed=1, **fields):
    return TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution=distribution, seed=seed), **fields)


def gemm(m=3, n=4, k=5, *, c=True, dtype="float32", alpha=1.0, beta=1.0, **fields):
    tensors = {"a": recipe(m, k, dtype=dtype, **fields), "b": recipe(k, n, dtype=dtype, seed=2, **fields)}
    if c:
        tensors["c"] = recipe(m, n, dtype="float32" if "8" in dtype else dtype, seed=3, **fields)
    return Case(op="gemm", tensors=tensors, attrs={"alpha": alpha, "beta": beta})


class Answer:
    """The oracle's answer to a case; inputs may be given as they are."""

    def __init__(self, case, numerics=None, **inputs):
        self.case = case
        given = {name: np.asarray(value, format_of(case.tensors[name].dtype).dtype) for name, value in inputs.items()}
        self.inputs = {**materialize_all(case), **given}
        self.reference = Reference(contract_of(case.op), case, self.inputs)
        self.want = self.reference.want["out"]
        self.budget = self.reference.budget(numerics or Numerics())["out"]
        self.error = np.broadcast_to(np.asarray(self.budget.error), self.want.shape)

    def fails(self, got):
        """How many elements of an output fail."""
        got = np.broadcast_to(np.asarray(got, self.dtype), self.want.shape).copy()
        return measure(got, self.want, self.budget.error, self.budget.accept).bad

    def rho(self, got):
        return measure(np.asarray(got, self.dtype), self.want, self.budget.error, self.budget.accept).rho

    @property
    def dtype(self):
        return format_of(self.reference.specs["out"].dtype).dtype


# ---- what a case may leave out ---------------------------------------------------------------------------------------


def own(**fields):
    made = {
        "name": "own",
        "summary": "",
        "dims": {"tokens": Dim(0, 9), "heads": Dim(0, 9), "group": Dim(1, 4)},
        "inputs": {
            "x": Input(("tokens", "heads*group", "{part}*2")),
            "y": Input(("heads",)),
            "bias": Input(("heads*group",)),
            "low": Input(("tokens",)),
            "high": Input(("tokens",)),
        },
        "outputs": {"out": Output(("heads", "heads*{part}"), like="x")},
        "variants": (dict.fromkeys(("x", "y", "bias", "low", "high"), "float32"),),
        "attrs": {"part": (1, 2, 3), "eps": (0.5,), "mode": ("plain", "odd")},
        "optional": ("part", "mode", "bias", "low", "high"),
        "together": (("low", "high"),),
        "reference": lambda **_: {},
    }
    return Contract(**{**made, **fields})


def case_of(x=(5, 6, 4), y=(3,), attrs=(("part", 2), ("eps", 0.5)), **shapes):
    shapes = {"x": x, "y": y, **shapes}
    return Case(op="own", tensors={n: recipe(*shape) for n, shape in shapes.items() if shape}, attrs=dict(attrs))


def test_an_attribute_that_a_case_leaves_out_is_plain():
    contract = own()
    assert contract.attrs_of(case_of()) == {"part": 2, "mode": "plain", "eps": 0.5}
    assert contract.attrs_of(case_of(attrs=[("eps", 0.5)])) == {"part": 1, "mode": "plain", "eps": 0.5}
    contract.check(case_of(x=(5, 6, 2), attrs=[("eps", 0.5)]))
    assert contract.output_specs(case_of(x=(5, 6, 2), attrs=[("eps", 0.5)]))["out"].shape == (3, 3)


def test_dimensions_are_read_from_products_and_attributes():
    contract = own()
    assert contract.dims_of(case_of()) == {"tokens": 5, "heads": 3, "group": 2}
    assert contract.output_specs(case_of())["out"].shape == (3, 6)
    assert contract.dims_of(case_of(x=(5, 0, 4), y=(0,)))["group"] == 1
    assert contract.dims_of(case_of(bias=(6,), low=(5,), high=(5,))) == contract.dims_of(case_of())


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"x": (5, 7, 4)}, r"y has shape \(3,\)"),
        ({"x": (5, 6, 2)}, r"x has shape \(5, 6, 2\), which does not fit the axes"),
        ({"x": (5, 6)}, r"x has shape \(5, 6\)"),
        ({"bias": (5,)}, r"bias has shape \(5,\), which does not fit the axes \(heads\*group\) of own"),
        ({"low": (5,), "high": (4,)}, r"high has shape \(4,\)"),
    ],
)
def test_shapes_that_contradict_one_another(shapes, words):
    with pytest.raises(UsageError, match=words):
        own().dims_of(case_of(**shapes))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (case_of(y=None), "the inputs of own are x, y, bias, low, high, but those of the case are x"),
        (case_of(attrs=[("part", 2)]), "the attributes of own are part, eps, mode, but those of the case are part"),
        (case_of(attrs=[("eps", 0.5), ("part", 2), ("odd", 1)]), "those of the case are eps, part, odd"),
        (case_of(low=(5,)), "a case of own has all of low, high or none of them"),
        (case_of(high=(5,)), "a case of own has all of low, high or none of them"),
        (case_of(odd=(5,)), "the inputs of own are"),
    ],
)
def test_what_a_case_cannot_do_without(case, words):
    with pytest.raises(UsageError, match=words):
        own().check(case)


def test_optional_inputs_have_their_dtype_like_all_others():
    own().check(case_of(bias=(6,), low=(5,), high=(5,)))
    wrong = case_of(bias=(6,))
    wrong = wrong.but(tensors={**wrong.tensors, "bias": wrong.tensors["bias"].but(dtype="float16")})
    with pytest.raises(UsageError, match="own does not take x as float32, y as float32, bias as float16"):
        own().check(wrong)


def test_groups():
    contract = own()
    assert contract.group("low") == contract.group("high") == ("low", "high")
    assert contract.group("bias") == ("bias",)


def test_a_narrowed_contract_has_no_more_than_is_used():
    contract = own()
    narrow = contract.narrowed(["bias", "part", "eps"], ["low", "high"], {})
    assert list(narrow.inputs) == ["x", "y", "low", "high"]
    assert narrow.attrs == {"part": (1,), "eps": (0.5,), "mode": ("plain", "odd")}, "eps is not optional"
    assert narrow.optional == ("mode",)
    assert contract.narrowed([], [], {}) == contract
    assert list(contract.narrowed(["x"], [], {}).inputs) == list(contract.inputs)


# ---- products --------------------------------------------------------------------------------------------------------

POWERS = [(alpha, beta) for alpha in ALPHAS for beta in BETAS if alpha != 0.3 and beta != -1.7]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize(("alpha", "beta"), POWERS)
@pytest.mark.parametrize("c", [True, False])
@CARELESS
def test_products_and_summands_of_integers_times_powers_of_two_are_exact(dtype, alpha, beta, c):
    answer = Answer(gemm(dtype=dtype, alpha=alpha, beta=beta, c=c))
    assert (answer.error == 0).all()
    a, b = (answer.inputs[name].astype(np.float64) for name in "ab")
    right = alpha * (a @ b) + (beta * answer.inputs["c"].astype(np.float64) if c else 0)
    assert answer.fails(right) == 0
    wrong = right.astype(answer.dtype)
    wrong[1, 2] = np.nextafter(wrong[1, 2], answer.dtype.type(9))
    assert answer.fails(wrong) == 1


@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 1.0), (1.0, -1.7), (0.3, 0.0)])
@CARELESS
def test_other_factors_round(alpha, beta):
    answer = Answer(gemm(alpha=alpha, beta=beta))
    assert (answer.error > 0).any()
    assert (answer.error < 40 * U * 9 * 5).all()


def probe(op, attrs, variant=0, **dims):
    """A case of all inputs, filled as an exact probe is."""
    contract = contract_of(op)
    dtypes = contract.variants[variant]
    fills = contract.probe(dims, dtypes)
    tensors = {
        name: TensorRecipe(shape=shape_of(spec.axes, dims, attrs), dtype=dtypes[name], fill=fills[name].but(seed=seed))
        for seed, (name, spec) in enumerate(contract.inputs.items())
    }
    return Case(op=op, tensors=tensors, attrs=attrs)


@pytest.mark.parametrize("k", [1, 7, 300])
@pytest.mark.parametrize("variant", range(7))
@pytest.mark.parametrize("op", ["gemm", "gemv"])
@CARELESS
def test_probes_stay_exact_with_a_summand(op, variant, k):
    dims = {"m": 3, "n": 2, "k": k} if op == "gemm" else {"m": 3, "k": k}
    for alpha, beta in POWERS:
        answer = Answer(probe(op, {"alpha": alpha, "beta": beta}, variant, **dims))
        assert (answer.error == 0).all()
        assert answer.fails(answer.want) == 0


@CARELESS
def test_a_sum_that_outgrows_the_accumulator_with_its_summand_is_not_exact():
    case = gemm(1, 1, 1)
    big = Answer(case, a=[[2.0**12]], b=[[2.0**12 - 1]], c=[[1.0]])
    assert big.error == 0, "2**24 - 2**12 + 1 has 24 bits"
    assert Answer(case, a=[[2.0**12]], b=[[2.0**12]], c=[[1.0]]).error > 0
    assert Answer(case, a=[[1.0]], b=[[1.0]], c=[[2.0**-24]]).error > 0
    assert Answer(case, a=[[1.0]], b=[[1.0]], c=[[2.0**-23]]).error == 0


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (0.3, 0.0)])
@CARELESS
def test_what_beta_0_multiplies_may_be_read_or_not(alpha, beta):
    answer = Answer(gemm(1, 3, 2, alpha=alpha, beta=beta), c=[[np.nan, np.inf, 1.0]])
    assert answer.fails(answer.want) == 0
    assert answer.fails([[np.nan, np.nan, answer.want[0, 2]]]) == 0
    assert answer.fails([[np.nan, np.inf, np.nan]]) == 2, "0 * Inf is NaN; 0 * 1 is not"


@CARELESS
def test_what_alpha_0_multiplies_may_be_read_or_not():
    a = [[1.0, np.inf], [np.nan, 1.0], [3e38, 3e38], [1.0, 1.0]]
    answer = Answer(gemm(4, 1, 2, alpha=0.0, beta=-1.7), a=a, b=[[2.0], [2.0]], c=np.ones((4, 1)))
    assert np.array_equal(answer.want, np.full((4, 1), -1.7))
    assert answer.fails(answer.want) == 0
    assert answer.fails([[np.nan], [np.nan], [np.nan], [-1.7]]) == 0, "the third sum overflows first"
    assert answer.fails([[np.nan]] * 4) == 1
    assert answer.fails([[np.inf]] * 4) == 4


@CARELESS
def test_infinite_summands_decide():
    attrs = {"alpha": 1.0, "beta": -1.7}
    case = gemm(1, 4, 1, **attrs)
    answer = Answer(case, a=[[1.0]], b=[[1.0, np.inf, -np.inf, 3e38]], c=[[np.inf, np.inf, np.inf, np.nan]])
    assert answer.fails([[-np.inf, np.nan, -np.inf, np.nan]]) == 0
    assert answer.fails([[1.0, 1.0, 1.0, 1.0]]) == 4
    far = Answer(gemm(1, 1, 1, **attrs), a=[[2e38]], b=[[1.0]], c=[[3e38]])
    assert abs(far.want) < 3.4e38
    assert [far.fails([[y]]) for y in (far.want.item(), -np.inf, np.inf, np.nan)] == [0] * 4, "-1.7 * 3e38 overflows"


def rounded_in_order(answer, *, fold):
    """The loops of the reference BLAS: each product is added to what stands there, beginning with beta * c."""
    alpha, beta = (np.float32(answer.case.attrs[name]) for name in ("alpha", "beta"))
    a, b, c = (answer.inputs[name].astype(np.float32) for name in "abc")
    total = beta * c
    for column, row in zip(a.T, b * alpha if fold else b, strict=True):
        total = total + column[:, None] * row * (1 if fold else alpha)
    return total


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("beta", [1.0, -1.7])
@CARELESS
def test_a_summand_at_the_head_of_a_long_sum_may_swallow_every_product(fold, beta):
    """As netlib's loops do: half an ulp is lost k times, in one direction. No bound for random terms allows for it."""
    case = gemm(4, 4, 400, alpha=1.0, beta=beta, distribution="uniform")
    small = np.full((400, 4), 2.0**-12)
    answer = Answer(case, a=np.full((4, 400), 2.0**-12 * 0.99), b=small, c=np.ones((4, 4)) * 1.0001)
    assert answer.reference.iid
    assert 0.3 < answer.rho(rounded_in_order(answer, fold=fold)) <= 1.0


@pytest.mark.parametrize("seed", range(8))
@CARELESS
def test_a_factor_may_be_multiplied_into_an_operand(seed):
    answer = Answer(gemm(9, 9, 33, alpha=0.3, beta=0.5, distribution="normal", dtype="float32"))
    assert answer.rho(rounded_in_order(answer, fold=True)) < 0.9
    integers = gemm(9, 9, 33, alpha=0.3, beta=0.5, distribution="exact_integers")
    assert Answer(integers).rho(rounded_in_order(Answer(integers), fold=True)) < 0.9


@CARELESS
def test_a_subnormal_operand_may_be_flushed_when_it_was_multiplied_by_alpha():
    tiny = 2.0**-126
    case = gemm(1, 1, 1, c=False, alpha=0.3)
    answer = Answer(case, a=[[2.0 * tiny]], b=[[2.0**100]])
    assert [answer.fails([[y]]) for y in (answer.want.item(), 0.0, 3 * answer.want.item())] == [0, 0, 1]
    strict = Answer(case, Numerics(ftz=False), a=[[2.0 * tiny]], b=[[2.0**100]])
    assert strict.fails([[0.0]]) == 1


@pytest.mark.parametrize("accumulate", ["float16", "hopper", "fp8_hopper"])
@CARELESS
def test_a_coarse_accumulator_holds_the_summand_too(accumulate):
    case = gemm(4, 4, 64, dtype="float16", distribution="normal")
    fine, coarse = Answer(case), Answer(case, Numerics(accumulate=accumulate))
    alone = Answer(gemm(4, 4, 64, dtype="float16", distribution="normal", c=False), Numerics(accumulate=accumulate))
    assert (coarse.error > fine.error).all()
    assert (coarse.error > alone.error).all()


# ---- softmax ---------------------------------------------------------------------------------------------------------


def softmax(rows, cols, *, mask=True, scale=1.0, dtype="float32", **fields):
    names = ("x", "mask") if mask else ("x",)
    return Case(
        op="softmax", tensors={n: recipe(rows, cols, dtype=dtype, **fields) for n in names}, attrs={"scale": scale}
    )


@pytest.mark.parametrize("scale", [1.0, 0.125, 0.3, -2.0])
@pytest.mark.parametrize("variant", range(3))
@CARELESS
def test_a_mask_turns_the_levels_of_a_probe_round(variant, scale):
    case = probe("softmax", {"scale": scale}, variant, rows=2, cols=16)
    answer = Answer(case)
    assert sorted(set(answer.want.ravel())) == [0.0, 0.125]
    bare = Answer(case.but(tensors={"x": case.tensors["x"]}))
    for either in (answer, bare):  # a quotient may be off, and a product that rounds is not its own maximum
        assert np.array_equal(either.error, 4.0 * U * either.want) is (scale != 0.3)
        assert (either.error <= 4.0 * 2.0**-126 + 0.005 * either.want).all()
    assert (answer.fails(bare.want) == 32) is (scale > 0), "a negative scale turns them round, too"


@CARELESS
def test_what_is_masked_is_nothing_and_a_row_of_nothing_is_zero_or_nan():
    answer = Answer(softmax(2, 3, distribution="zeros"), mask=[[-np.inf, 0, 0], [-np.inf] * 3])
    assert answer.fails([[0, 0.5, 0.5], [np.nan] * 3]) == 0
    assert answer.fails([[0, 0.5, 0.5], [0] * 3]) == 0
    assert answer.fails([[1e-30, 0.5, 0.5], [1 / 3] * 3]) == 4
    assert answer.fails([[np.nan, 0.5, 0.5], [0] * 3]) == 1
    both = Answer(softmax(1, 2, distribution="zeros"), x=[[np.inf, 0]], mask=[[-np.inf, 0]])
    assert both.fails([[np.nan, np.nan]]) == 0
    assert both.fails([[0, 1]]) == 2, "Inf - Inf is NaN, and so is the row"


@CARELESS
def test_a_scaled_number_may_overflow():
    """2**127 * -2 is Inf in float32; with a mask of -Inf their sum is NaN."""
    x, mask = [[0.0, -(2.0**127)]], [[-np.inf, 0.0]]
    for masks in (mask, [[0.0, -np.inf]]):
        answer = Answer(softmax(1, 2, scale=-2.0), x=x, mask=masks)
        assert answer.fails(answer.want) == 0
        assert answer.fails([[np.nan, np.nan]]) == 0
    plain = Answer(softmax(1, 2, mask=False), x=[[0.0, 2.0**127 * 1.99]])
    assert plain.fails([[np.nan, np.nan]]) == 2, "nothing overflows where nothing is scaled"
    masked = Answer(softmax(1, 2), x=[[0.0, 2.0**127 * 1.99]], mask=mask)
    assert masked.fails([[np.nan, np.nan]]) == 2


@CARELESS
def test_shares_of_numbers_too_large_to_tell_apart_are_free():
    x = np.float32([[1e9, 1e9 + 64, 1e9 - 64]])
    answer = Answer(softmax(1, 3, mask=False, scale=0.3), x=x)
    s = x * np.float32(0.3)
    e = np.exp(s - s.max())
    assert answer.rho(e / e.sum()) < 1
    assert answer.fails([[1.5, 0, 0]]) == 0, "the sum may be made of other exponentials than the result"
    assert answer.fails([[np.nan, 1e35, 0]]) == 2, "none is at the end of the range"
    sure = Answer(softmax(1, 3, mask=False, scale=0.3), x=[[1e9, 1e9 + 64, -1e9]])
    assert sure.fails([[0, 1, 0]]) == 0
    small = Answer(softmax(1, 3, mask=False, scale=0.3), x=[[1.0, 2.0, 3.0]])
    assert small.error.max() < 60 * U


# ---- rope ------------------------------------------------------------------------------------------------------------


def rope(tokens, heads, half, *, part=1, tables=False, dtype="float32", **attrs):
    tensors = {"x": recipe(tokens, heads, 2 * half * part, dtype=dtype, distribution="normal")}
    if tables:
        tensors |= {n: recipe(tokens, half, dtype=dtype, distribution="uniform", seed=9) for n in ("cos", "sin")}
    return Case(op="rope", tensors=tensors, attrs={"style": "neox", "part": part, **attrs})


@pytest.mark.parametrize("tables", [True, False])
@pytest.mark.parametrize("style", ["neox", "interleaved"])
@CARELESS
def test_what_is_not_rotated_is_copied(style, tables):
    answer = Answer(rope(3, 2, 2, part=4, tables=tables, style=style))
    assert (answer.error[..., 4:] == 0).all()
    assert (answer.error[..., :4] > 0).all()
    assert np.array_equal(answer.want[..., 4:], answer.inputs["x"][..., 4:])
    wrong = answer.want.copy()
    wrong[..., 4:] *= 1 + 2.0**-22
    assert answer.fails(wrong) == 3 * 2 * 12


@CARELESS
def test_the_first_token_and_the_first_pair_turn_by_exact_angles():
    first = Answer(rope(1, 1, 8, style="interleaved"))
    assert first.fails(first.inputs["x"]) == 0, "an angle of 0 turns nothing"
    assert (first.error <= 4.0 * U * np.abs(first.inputs["x"]).max() + 2.0**-125).all()
    far = Answer(rope(2, 1, 8, style="interleaved", offset=131071))
    size = np.abs(far.inputs["x"]).max()
    assert (far.error[..., :2] < 16.0 * U * size).all(), "131071 is a float32, and so is the next"
    assert (far.error[..., 2:4] > 1e4 * U * size * 0.001).all()


@CARELESS
def test_computed_angles_have_their_room_and_positions_rounded_to_16_bits_do_not():
    case = rope(40, 2, 16, offset=1000, theta=500000.0)
    answer = Answer(case)
    assert answer.rho(rotated(answer, np.float32(np.arange(1000, 1040)))) < 0.9
    rounded = np.arange(1000, 1040).astype(format_of("bfloat16").dtype).astype(np.float32)
    assert answer.fails(rotated(answer, rounded)) > 500


def rotated(answer, position):
    """As a float32 kernel does it, in the style neox."""
    x, half = answer.inputs["x"], answer.inputs["x"].shape[-1] // 2
    power = np.float32(answer.case.attrs["theta"]) ** -(np.arange(half, dtype=np.float32) / np.float32(half))
    c, s = (f(position[:, None, None] * power) for f in (np.cos, np.sin))
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * c - b * s, a * s + b * c], axis=-1)


@CARELESS
def test_an_infinity_turned_by_an_angle_in_doubt_may_have_either_sign():
    """Some sines and cosines of angles around 100,000 are smaller than what the angle may be off."""
    x = np.zeros((512, 1, 16))
    x[..., :8] = np.inf
    answer = Answer(rope(512, 1, 8, offset=131071), x=x)
    doubtful = np.asarray(answer.budget.accept) & (PINF | NINF) == PINF | NINF
    assert 0.01 < doubtful.mean() < 0.1
    assert not doubtful[..., ::8].any(), "the angles of the first pair are exact"
    assert answer.fails(answer.want) == 0
    assert answer.fails(-answer.want) == (~doubtful & ~np.isnan(answer.want)).sum() > 5000


@CARELESS
def test_rotated_numbers_near_the_largest_are_judged():
    case = rope(1, 1, 1, tables=True, dtype="float64", style="neox")
    answer = Answer(case, x=[[[1.7e308, 1.7e308]]], cos=[[1.0]], sin=[[0.5]])
    assert np.isfinite(answer.error).all() or answer.budget.accept is not None
    assert answer.fails(answer.want) == 0


@pytest.mark.parametrize("op", ["gemm", "gemv", "softmax", "rope"])
@CARELESS
def test_a_case_without_attributes_means_the_plain_ones(op):
    case = {
        "gemm": gemm(c=False),
        "gemv": Case(op="gemv", tensors={"a": recipe(3, 4), "x": recipe(4)}),
        "softmax": softmax(3, 4, mask=False),
        "rope": rope(3, 2, 2, tables=True),
    }[op]
    contract = contract_of(op)
    bare = case.but(attrs={"style": "neox"} if op == "rope" else {})
    full = case.but(attrs=dict(contract.attrs_of(bare)))
    assert np.array_equal(Answer(bare).want, Answer(full).want)
    assert np.array_equal(Answer(bare).error, Answer(full).error)


def test_a_budget_needs_no_contract_of_the_catalog():
    """A contract of one's own may use what the house's use."""
    contract = replace(contract_of("gemm"), attrs={}, optional=("c",))
    case = gemm(c=False).but(attrs={})
    assert (np.asarray(Reference(contract, case, materialize_all(case)).budget(Numerics())["out"].error) == 0).all()
