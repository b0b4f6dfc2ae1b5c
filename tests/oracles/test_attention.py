"""What attention may answer: who sees whom, what is exact, what is anybody's guess, and what must not show."""

import re
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest

from kernel_assay.corpus.formats import bits_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.kernels.attention import numpy_flash, numpy_float32, numpy_online
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.judge import judge
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.numerics.attention_error import scores_of, visible
from kernel_assay.oracles.spec.contract import ALL, INTERVAL, NAN, NINF, PINF, ZERO

CONTRACT = contract_of("attention")
SUBJECT = Subject(op="attention", name="mine", backend="numpy")
SHAPE = {"batch": 2, "kv_heads": 2, "group": 2, "queries": 5, "keys": 9, "head": 4}


def asked(dtype="float32", *, causal=False, lengths=None, scale=0.0, fills=None, exact=False, **dims):
    """A reference for a case of these dims; fills: by input, else all are normal."""
    d = SHAPE | dims
    shapes = {"q": (d["batch"], d["kv_heads"] * d["group"], d["queries"], d["head"])}
    shapes |= dict.fromkeys("kv", (d["batch"], d["kv_heads"], d["keys"], d["head"]))
    normal = Fill(distribution="small_integers" if exact else "normal")
    fills = {name: (fills or {}).get(name, normal).but(seed=n) for n, name in enumerate("qkv")}
    tensors = {n: TensorRecipe(shape=s, dtype=dtype, fill=fills[n]) for n, s in shapes.items()}
    if lengths is not None:
        poked = tuple(enumerate(lengths))
        tensors["lengths"] = TensorRecipe(shape=(d["batch"],), dtype="int32", pokes=poked)
    case = Case(op="attention", tensors=tensors, attrs={"causal": causal, "scale": scale})
    return Reference(CONTRACT, case, materialize_all(case))


def budget(reference, **claims):
    """Error and accept mask of every element."""
    with np.errstate(all="ignore"):
        found = reference.budget(Numerics(**claims))["out"]
    shape = reference.want["out"].shape
    accept = INTERVAL if found.accept is None else found.accept
    return np.broadcast_to(found.error, shape), np.broadcast_to(accept, shape)


def verdict(reference, output):
    told = OutputReport(name="out", shape=output.shape, dtype=output.dtype.name)
    return judge(reference, SUBJECT, Execution(status=Status.OK, subject=SUBJECT.key, outputs=(told,)), {"out": output})


def answer(reference, module=numpy_float32):
    """What a clean kernel says."""
    return module.run(**reference.inputs, **reference.case.attrs)


def picture(mask):
    return ["".join(".#"[int(x)] for x in row) for row in mask]


def test_the_last_query_sees_all():
    assert picture(visible((1, 1, 3, 2), (1, 1, 5, 2), causal=True)[0, 0]) == ["###..", "####.", "#####"]
    assert picture(visible((1, 1, 4, 2), (1, 1, 2, 2), causal=True)[0, 0]) == ["..", "..", "#.", "##"]
    assert visible((1, 1, 4, 2), (1, 1, 2, 2)).all()


def test_a_mask_ends_where_a_sequence_ends():
    seen = visible((2, 1, 3, 2), (2, 1, 4, 2), np.int32([3, 0]), causal=True)
    assert picture(seen[0, 0]) == ["#...", "##..", "###."]
    assert not seen[1].any()
    assert picture(visible((2, 1, 3, 2), (2, 1, 4, 2), np.int32([3, 0]))[:, 0, 0]) == ["###.", "...."]


@pytest.mark.parametrize("module", [numpy_float32, numpy_flash, numpy_online])
@pytest.mark.parametrize("causal", [False, True])
def test_the_house_agrees_with_itself(module, causal):
    reference = asked(causal=causal, lengths=[7, 2], keys=40, scale=0.3)
    assert verdict(reference, answer(reference, module)).kind is Kind.PASS


def test_a_row_that_sees_nothing_is_zero_or_nan():
    reference = asked(lengths=[9, 0])
    error, accept = budget(reference)
    assert (accept[0] == INTERVAL).all()
    assert (error[1] == 0).all()
    assert (accept[1] == INTERVAL | NAN).all()
    out = answer(reference)
    for value, kind in ((0.0, Kind.PASS), (np.nan, Kind.PASS), (0.1, Kind.MISMATCH), (np.inf, Kind.NONFINITE)):
        out[1] = value
        assert verdict(reference, out).kind is kind, value


# ---- exact probes ----------------------------------------------------------------------------------------------------


def probed(keys, dtype="float32", **more):
    fills = CONTRACT.probe(SHAPE | {"keys": keys}, dict.fromkeys("qkv", dtype))
    return asked(dtype, keys=keys, fills=fills, **more)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("keys", [1, 8, 512])
def test_equal_scores_of_a_power_of_two_of_keys_leave_the_quotient_its_error(dtype, keys):
    reference = probed(keys, dtype)
    assert flat(reference).all()
    out = answer(reference)
    assert verdict(reference, out).kind is Kind.PASS
    out[1, 2, 3, 1] += 16 * np.spacing(np.abs(out[1, 2, 3, 1]))
    assert verdict(reference, out).kind is Kind.MISMATCH


def flat(reference, **claims):
    """Where only the quotient rounds."""
    unit = 8 * 2.0**-53 if reference.case.dtype == "float64" else 4 * 2.0**-24
    return budget(reference, **claims)[0] == unit * np.abs(reference.want["out"])


def test_with_a_mask_it_is_the_rows_of_a_power_of_two():
    rows = flat(probed(8, causal=True, queries=8))[0, 0, :, 0]
    assert [int(i) + 1 for i in np.flatnonzero(rows)] == [1, 2, 4, 8]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(("keys", "head"), [(7, 1), (9, 4), (100, 33), (333, 256)])
def test_scores_far_apart_select_a_key(dtype, keys, head):
    reference = probed(keys, dtype, head=head, causal=True)
    for module in (numpy_float32, numpy_flash):
        assert verdict(reference, answer(reference, module)).kind is Kind.PASS
    v = reference.inputs["v"].astype(np.float64)[0, 0]
    rows = reference.want["out"][0, 0]
    assert np.mean([(np.abs(row - v) < 1e-30).all(axis=1).any() for row in rows]) > 0.8, "each is a row of v"
    error = budget(reference)[0]
    assert (error <= 2.0**-24 * (4 * keys + 16) * np.abs(v).max()).mean() > 0.8, "of the key, not of the scores"


def test_a_narrow_accumulator_must_hold_the_sum_of_weights():
    """A bfloat16 counts to 256: 256 + 1 is 256."""
    claim = {"accumulate": "bfloat16"}
    for keys, exact in ((256, True), (512, False)):
        reference = asked("bfloat16", keys=keys, fills=dict.fromkeys("qkv", Fill(distribution="zeros")))
        assert flat(reference, **claim).all() == exact
        assert flat(reference).all()


def test_a_narrow_accumulator_must_hold_the_smallest_product():
    """A weight of 1/8 times 2**-14 is a subnormal float16."""
    fills = {"q": Fill(distribution="zeros"), "v": Fill(distribution="ones", scale=2.0**-14)}
    reference = asked("float16", keys=8, fills=fills, exact=True)
    assert flat(reference).all()
    assert not flat(reference, accumulate="float16").any()


def test_infinite_scores_are_not_equal_ones():
    """Their magnitudes are left out of sums, as if they were 0."""
    reference = asked("float16", head=1, keys=2, exact=True)
    reference.inputs["q"][...] = np.inf
    reference.inputs["k"][...] = np.float16([[[[1.0], [-1.0]]]])
    reference.inputs["v"][...] = np.float16([[[[1.0], [3.0]]]])
    assert (reference.want["out"] == 1.0).all()
    assert (budget(reference)[1] == INTERVAL | NAN).all()


def test_a_cubic_exponential_is_not_exact_anywhere():
    assert (budget(probed(8), exp="poly3")[0] > 0).all()
    assert (budget(probed(9), exp="poly3")[0] > 0).all()


# ---- scores that nobody knows ----------------------------------------------------------------------------------------


def test_an_uncertain_score_leaves_a_mixture_of_what_may_be_chosen():
    """q k is 2**24 for two keys, off by some 2**2, and far less for the third."""
    reference = asked(batch=1, kv_heads=1, group=1, queries=1, keys=3, head=2, scale=1.0)
    reference.inputs["q"][...] = 2.0**12
    reference.inputs["k"][0, 0] = [[2.0**12, 2.0**2], [2.0**2, 2.0**12], [-1.0, 1.0]]
    reference.inputs["v"][0, 0] = [[1.0, 1.0], [3.0, 1.0], [1e9, 1.0]]
    for share in (0.0, 0.3, 1.0):
        out = np.float32([[[[1.0 + 2.0 * share, 1.0]]]])
        assert verdict(reference, out).kind is Kind.PASS
        assert verdict(reference, out).rho <= 0.5, "what is right is no close call"
    assert verdict(reference, np.float32([[[[100.0, 1.0]]]])).kind is Kind.MISMATCH
    assert verdict(reference, np.float32([[[[2.0, 1.001]]]])).kind is Kind.MISMATCH


def test_one_key_that_is_far_above_all_others_leaves_no_choice():
    reference = asked(batch=1, kv_heads=1, group=1, queries=1, keys=2, head=1, scale=1.0)
    reference.inputs["q"][...] = 2.0**12
    reference.inputs["k"][0, 0] = [[3.0 * 2.0**10], [2.0**10]]
    reference.inputs["v"][0, 0] = [[0.1], [1e9]]
    assert verdict(reference, np.float32([[[[0.1]]]])).kind is Kind.PASS
    assert verdict(reference, np.float32([[[[0.10001]]]])).kind is Kind.MISMATCH


def test_scores_so_large_that_a_fused_product_leaves_hundreds_leave_anything():
    assert budget(one_query(2.0**14, [3.0 * 2.0**10, 2.0**10]))[1].item() == INTERVAL
    assert budget(one_query(2.0**20, [3.0 * 2.0**10, 2.0**10]))[1].item() == ALL
    far = one_query(2.0**50, [3.0 * 2.0**10, 2.0**10], [0.1, 1e9])
    assert [verdict(far, np.float32([[[[x]]]])).failed for x in (0.1, 0.0, np.nan, 0.2, np.inf)] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("module", [numpy_float32, numpy_flash, numpy_online])
@pytest.mark.parametrize("size", [1.0, 2.0**-60, 2.0**-300])
def test_a_tiny_weight_is_as_uncertain_as_its_score(module, size):
    """The squares of what it makes have vanished in float64, which tells nothing of the error."""
    shape = {"q": (1, 1, 1, 3), "k": (1, 1, 7, 3), "v": (1, 1, 7, 3)}
    pokes = {"q": (1, 130.0), "k": (1, 6.0), "v": (19, size)}
    tensors = {
        n: TensorRecipe(shape=shape[n], dtype="float64", pokes=((at, bits_of(x, np.dtype(np.float64))),))
        for n, (at, x) in pokes.items()
    }
    case = Case(op="attention", tensors=tensors, attrs={"causal": False, "scale": 0.0})
    reference = Reference(CONTRACT, case, materialize_all(case))
    assert 0 < reference.want["out"][0, 0, 0, 1] < 1e-190 * size
    error, _ = budget(reference)
    assert 1e-14 < error[0, 0, 0, 1] / reference.want["out"][0, 0, 0, 1] < 1e-11
    assert verdict(reference, answer(reference, module)).kind is Kind.PASS


def test_scores_beyond_the_range_leave_any_mixture_or_nan():
    reference = asked(batch=1, kv_heads=1, group=1, queries=1, keys=2, head=2, scale=1.0)
    reference.inputs["q"][...] = 1e30
    reference.inputs["k"][0, 0] = [[1e30, -1e30], [-1.0, -1.0]]
    reference.inputs["v"][0, 0] = [[1.0, 5.0], [3.0, 6.0]]
    for row in ([np.nan, np.nan], [2.0, 5.5], *reference.inputs["v"][0, 0]):
        assert verdict(reference, np.float32([[[row]]])).kind is Kind.PASS
    for row in ([np.inf, 5.0], [1.0, -np.inf], [100.0, 5.0]):
        assert verdict(reference, np.float32([[[row]]])).failed
    assert (budget(reference)[1] == INTERVAL | ZERO | NAN).all()


def test_a_row_whose_scores_may_all_be_minus_infinity_may_be_masked():
    reference = one_query(-1e30, [1e30, 2e30], [3.0, 3.0])
    assert (budget(reference)[1] == INTERVAL | ZERO | NAN).all()


def test_a_score_beyond_float64_takes_nothing_for_certain():
    """It is no +Inf: 1e400 - 5e399 may become -Inf, or NaN."""
    reference = asked("float64", batch=1, kv_heads=1, group=1, queries=1, keys=2, head=2, scale=1.0)
    reference.inputs["q"][...] = 1e200
    reference.inputs["k"][0, 0] = [[1e200, -5e199], [1.0, 1.0]]
    reference.inputs["v"][0, 0] = [[1.0, 5.0], [3.0, 6.0]]
    assert reference.want["out"].tolist() == [[[[1.0, 5.0]]]]
    assert (budget(reference)[1] == INTERVAL | ZERO | NAN).all()
    assert (budget(reference)[0] >= [2.0, 1.0]).all()


def test_an_exponential_to_the_base_of_two_has_less_range():
    """Scores of 3e38 are numbers of float32, their 1.44 times are not."""
    assert budget(one_query(1e19, [3e19, 1.0]))[0].item() > budget(one_query(1e19, [2e19, 1.0]))[0].item()


@pytest.mark.parametrize(("values", "accepted"), [([2e38, 2e38], PINF), ([-2e38, -2e38], NINF), ([3e38, -1.0], 0)])
def test_only_a_sum_of_values_overflows_and_to_its_own_side(values, accepted):
    want = INTERVAL | accepted | (NAN if accepted else 0)
    assert (budget(one_query(0.0, [1.0, 1.0], values))[1] == want).all()
    hidden = asked(causal=True, keys=5)
    hidden.inputs["v"][:, :, 1:] = 3e38
    assert (budget(hidden)[1][:, :, 0] == INTERVAL).all(), "nobody adds what is hidden"


# ---- what must not show ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["k", "v"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_what_lies_behind_a_length_must_not_show(name, value):
    plain, reference = asked(lengths=[7, 2]), asked(lengths=[7, 2])
    reference.inputs[name][0, :, 7:] = reference.inputs[name][1, :, 2:] = value
    assert reference.want["out"].tolist() == plain.want["out"].tolist()
    assert np.array_equal(budget(reference), budget(plain))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_a_mask_hides_may_show_in_v_where_it_is_and_in_k_all_over(value):
    in_v, in_k = asked(causal=True), asked(causal=True)
    in_v.inputs["v"][0, 0, 8, 2] = in_k.inputs["k"][0, 0, 8, 2] = value
    rows = (slice(0, 2), slice(0, 4))  # the heads that share it; only the last query sees it
    accept = budget(in_v)[1]
    assert (accept[0][rows][..., 2] == INTERVAL | NAN).all()
    assert (np.delete(accept[0][rows], 2, axis=-1) == INTERVAL).all()
    assert (accept[1] == INTERVAL).all()
    accept = budget(in_k)[1]
    assert (accept[0][rows] == INTERVAL | NAN).all()
    assert (accept[0, 2:] == INTERVAL).all()


def test_a_hidden_score_beyond_the_range_may_show():
    """+Inf and the -Inf of a mask that is added make NaN."""
    reference = asked(causal=True)
    reference.inputs["q"][...] = 16.0
    reference.inputs["k"][0, 0, 8] = 3e37
    assert (budget(reference)[1][0, 0, :4] & NAN).all()


def test_a_nan_that_is_seen_must_show():
    reference = asked()
    reference.inputs["q"][0, 0, 1, 0] = np.nan
    out = answer(reference)
    assert np.isnan(out[0, 0, 1]).all()
    assert verdict(reference, out).kind is Kind.PASS
    out[0, 0, 1] = 0.0
    assert verdict(reference, out).kind is Kind.NONFINITE


def test_a_nan_score_wins_over_an_infinite_value():
    assert (budget(one_query(np.nan, [1.0, 1.0], [np.inf, 1.0]))[1] == NAN).all()


def one_query(q, k, v=(), dtype="float32"):
    """A reference for one query of one number, and some keys; v: their values."""
    reference = asked(dtype, batch=1, kv_heads=1, group=1, queries=1, keys=len(k), head=1)
    reference.inputs["q"][...] = q
    reference.inputs["k"][0, 0, :, 0] = k
    if len(v):
        reference.inputs["v"][0, 0, :, 0] = v
    return reference


def accepted(reference):
    """Of the only element: the reference, and the classes that are right."""
    return float(reference.want["out"].item()), int(budget(reference)[1].item())


def test_a_score_of_minus_infinity_is_a_mask():
    assert (budget(one_query(1.0, [-np.inf, 1.0]))[1] == INTERVAL).all()
    reference = one_query(1.0, [-np.inf, 1.0])
    assert verdict(reference, answer(reference)).kind is Kind.PASS
    assert verdict(reference, answer(reference) + np.float32(0.01)).kind is Kind.MISMATCH


@pytest.mark.parametrize("values", [[2.0, 1.0], [3e38, 3e38], [np.inf, 1.0], [np.nan, 1.0]])
def test_a_row_of_minus_infinities_is_zero_or_nan(values):
    reference = one_query(-np.inf, [2.0, 1.0], values)
    assert accepted(reference) == (0.0, INTERVAL | NAN)
    assert budget(reference)[0].item() == 0
    for value, kind in ((0.0, Kind.PASS), (np.nan, Kind.PASS), (1e-37, Kind.MISMATCH), (np.inf, Kind.NONFINITE)):
        assert verdict(reference, np.float32([[[[value]]]])).kind is kind, value


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_a_score_of_infinity_takes_all_or_gives_nan(dtype):
    """As in softmax."""
    reference = one_query(1.0, [np.inf, 1.0, np.inf], [4.0, 1e4, 8.0], dtype)
    assert accepted(reference) == (6.0, INTERVAL | NAN)
    assert budget(reference)[0].item() < 1e-3
    kind = reference.inputs["v"].dtype.type
    for value, passes in ((6.0, True), (np.nan, True), (1e3, False), (np.inf, False), (0.0, False)):
        assert verdict(reference, np.full((1, 1, 1, 1), value, kind)).failed is not passes, value


def test_what_a_score_of_infinity_outdoes_may_show_as_nan_only():
    assert accepted(one_query(1.0, [np.inf, 1.0], [4.0, np.inf])) == (4.0, INTERVAL | NAN)
    assert accepted(one_query(1.0, [np.inf, 1.0], [4.0, np.nan])) == (4.0, INTERVAL | NAN)
    assert accepted(one_query(1.0, [-np.inf, 1.0], [np.inf, 4.0])) == (4.0, INTERVAL | NAN)
    assert accepted(one_query(1.0, [np.inf, 1.0], [np.inf, 4.0])) == (np.inf, PINF | NAN)
    assert accepted(one_query(1e30, [np.inf, 1e30], [4.0, -np.inf])) == (4.0, INTERVAL | ZERO | NINF | NAN)


@pytest.mark.parametrize(
    ("key", "claims", "accepted_classes"),
    [
        (1.0, {}, PINF),
        (80.0, {}, PINF),
        (100.0, {}, PINF | NAN),
        (8.0, {"intermediates": {"p": "float16"}}, PINF),
        (16.0, {"intermediates": {"p": "float16"}}, PINF | NAN),
    ],
)
def test_an_infinite_value_is_nan_where_its_weight_may_vanish(key, claims, accepted_classes):
    reference = one_query(1.0, [0.0, key], [np.inf, 4.0])
    assert budget(reference, **claims)[1].item() == accepted_classes


@pytest.mark.parametrize("keys", [1, 15, 16, 33])
def test_torch_declines_what_it_loses(keys):
    """A score of +Inf among whole vectors of keys gives 0; should it not do so any more, the subject may take it."""
    torch = pytest.importorskip("torch")
    subject = pytest.importorskip("kernels.attention.torch_sdpa_half")
    ones = torch.ones(1, 1, 1, 2, dtype=torch.float16)
    k, v = (ones.repeat(1, 1, keys, 1) for _ in range(2))
    k[0, 0, 0, 0] = torch.inf
    lost = bool((torch.nn.functional.scaled_dot_product_attention(ones, k, v) == 0).all())
    assert lost == (keys >= subject.VECTOR // 4)
    with pytest.raises(NotImplementedError, match=re.escape(subject.LOST_INFINITY)) if lost else nullcontext():
        subject.run(ones, k, v, causal=False)


def test_the_second_instance_knows_masks_and_infinities():
    """Close calls are decided in ball arithmetic."""
    for q, k, v, want in (
        (1.0, [np.inf, 1.0, np.inf], [4.0, np.inf, 8.0], 6.0),
        (1.0, [-np.inf, 1.0], [np.inf, 4.0], 4.0),
        (-np.inf, [1.0, 2.0], [np.inf, 4.0], 0.0),
    ):
        reference = one_query(q, k, v)
        assert reference.want["out"].item() == want
        assert CONTRACT.element(reference.inputs, reference.attrs, (0, 0, 0, 0)) == want


def test_inf_times_a_subnormal_number_may_be_nan():
    assert (budget(one_query(1e-40, [-np.inf, 1.0]))[1] == INTERVAL | NAN).all()
    assert (budget(one_query(1e-40, [-np.inf, 1.0]), ftz=False)[1] == INTERVAL).all()


# ---- claims and statistics -------------------------------------------------------------------------------------------


def test_rounded_weights_cost_a_unit_of_their_type():
    plain, rounded = asked("bfloat16"), partial(budget, intermediates={"p": "input"})
    extra = rounded(plain)[0] - budget(plain)[0]
    size = np.abs(plain.want["out"])
    assert (extra > 2.0**-9 * size).all()
    assert np.array_equal(rounded(asked())[0], budget(asked())[0]), "float32 weights are not narrow"


def test_queries_that_give_the_same_are_no_independent_rows():
    alike = asked("bfloat16", fills={"k": Fill(distribution="normal", scale=2.0**-30)})
    apart = asked("bfloat16")
    with np.errstate(all="ignore"):
        rows = [r.budget(Numerics())["out"].rows for r in (alike, apart)]
    assert rows == [4, 40]


def test_arithmetics_share_the_scores_of_a_case_and_nothing_else():
    claims = ({}, {"exp": "fast"}, {"accumulate": "float16"}, {"intermediates": {"p": "float16", "s": "float16"}})
    case = {"queries": 9, "keys": 40, "head": 16, "causal": True, "lengths": [40, 13]}
    one = asked("float16", **case)
    for said in claims:
        shared, alone = one.budget(Numerics(**said))["out"], asked("float16", **case).budget(Numerics(**said))["out"]
        assert np.array_equal(shared.error, alone.error)
        assert np.array_equal(shared.sigma, alone.sigma)
        assert np.array_equal(budget(one, **said)[1], budget(asked("float16", **case), **said)[1])
    assert list(one._made) == [scores_of]
    assert len({one.budget(Numerics(**said))["out"].error.tobytes() for said in claims}) == len(claims)
