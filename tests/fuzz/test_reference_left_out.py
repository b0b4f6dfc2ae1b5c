"""What a mask, a weight of 0 or torch's own attention leaves out may be left out, and nothing else."""

import numpy as np
import pytest
import torch
from _references import hosted
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.oracles.references.torch.left_out import LeftOut

ODD = st.sampled_from([0.0, -0.0, 1.0, -2.0, 0.5, np.nan, np.inf, -np.inf])
CAUSAL = """
def f(q: "float32[n, d]", k: "float32[n, d]", v: "float32[n, d]"):
    scores = q @ k.T / q.shape[1] ** 0.5
    later = torch.ones(len(q), len(q), dtype=torch.bool).triu(1)
    return torch.softmax({}, -1) @ v
"""
OPERATOR = """
def f(q: "float32[n, d]", k: "float32[n, d]", v: "float32[n, d]"):
    return F.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None], is_causal={})[0, 0]
"""
ATTENTION = {
    "filled": CAUSAL.format("scores.masked_fill(later, float('-inf'))"),
    "chosen": CAUSAL.format("torch.where(later, float('-inf'), scores)"),
    "added": CAUSAL.format("scores + torch.zeros_like(scores).masked_fill(later, float('-inf'))"),
    "operator": OPERATOR.format("True"),
}


def pokes(*found):
    return tuple((index, int(np.float32(value).view(np.uint32))) for index, value in found)


def case_of(n=6, d=4, **odd):
    return Case(
        op="op",
        tensors={
            name: TensorRecipe(
                shape=(n, d),
                dtype="float32",
                fill=Fill(distribution="normal", seed=seed),
                pokes=odd.get(name, ()),
            )
            for seed, name in enumerate("qkv")
        },
    )


def free(host, case):
    """Whether there may be anything, for each row."""
    _, spans = host.answer(case, Numerics())
    (span,) = spans.values()
    return (np.isneginf(span.low) & np.isposinf(span.high)).any(1)


@pytest.mark.parametrize("how", ATTENTION)
@pytest.mark.parametrize(("name", "value"), [("v", np.nan), ("v", np.inf), ("k", np.inf), ("k", np.nan)])
def test_a_key_behind_a_mask_may_be_read_or_not(tmp_path, how, name, value):
    host = hosted(tmp_path, ATTENTION[how])
    last = (6 - 1) * 4
    case = case_of(**{name: pokes((last, value))})
    want, _ = host.answer(case, Numerics())
    marked = free(host, case)
    hidden = np.isnan(want["out"]).any(1)[:5]
    assert (marked[:5] >= hidden).all(), "a kernel need not read it"
    assert hidden.any() or name == "k"
    assert not marked[5], "the last query sees it"
    assert not np.isfinite(want["out"][5]).all()


def test_torchs_own_attention_may_lose_a_nan_and_a_formula_may_not(tmp_path):
    case = case_of(q=pokes((0, np.nan)))
    operator = hosted(tmp_path, OPERATOR.format("False"))
    tensors = [torch.randn(1, 1, 6, 4) for _ in range(3)]
    tensors[0][0, 0, 0, 0] = np.nan
    if not scaled_dot_product_attention(*tensors)[0, 0, 0].isnan().any():
        assert free(operator, case).tolist() == [True] + [False] * 5
    formula = hosted(tmp_path, CAUSAL.format("scores"))
    assert not free(formula, case).any()
    assert np.isnan(operator.answer(case, Numerics())[0]["out"][0]).all(), "NaN is what is right"


def test_torchs_own_attention_does_not_say_which_extents_are_equal(tmp_path):
    text = 'def f(q: "float32[b, h, n, d]", k: "float32[b, h, m, d]", v: "float32[b, h, m, d]"):\n    return {}\n'
    examples = "def get_inputs():\n    return [torch.rand(2, 4, 16, 32) for _ in range(3)]\n"
    attend = "F.scaled_dot_product_attention(q, k, v)"
    bare = text.replace(': "float32[b, h, n, d]"', "").replace(': "float32[b, h, m, d]"', "")
    axes = {t.name: tuple(t.axes) for t in hosted(tmp_path, bare.format(attend) + examples).described.tensors}
    assert axes["k"][2] == axes["v"][2], "keys and values come in pairs"


MASKS = {
    "(x * (x > 0)).sum(1)": [False, True],
    "(x * x.clone().gt(0).float()).sum(1)": [False, True],
    "x.sum(1)": [False, False],
    "(x * x).sum(1)": [False, False],
}


@pytest.mark.parametrize("formula", MASKS)
def test_a_nan_that_a_mask_leaves_out_may_be_left_out(tmp_path, formula):
    host = hosted(tmp_path, f'def f(x: "float32[rows, cols]"):\n    return {formula}\n')
    x = TensorRecipe(shape=(2, 4), dtype="float32", pokes=pokes((5, np.nan), (1, 1.0)))
    span = host.answer(Case(op="op", tensors={"x": x}), Numerics())[1]["out"]
    assert (np.isneginf(span.low) & np.isposinf(span.high)).tolist() == MASKS[formula]


def test_an_input_of_zeros_leaves_nothing_out(tmp_path):
    host = hosted(tmp_path, 'def f(x: "float32[n, d]", w: "float32[d, d]"):\n    return torch.relu(x @ w)\n')
    x = TensorRecipe(shape=(2, 2), dtype="float32")
    case = Case(op="op", tensors={"x": x, "w": x.but(pokes=pokes((0, np.inf)))})
    _, spans = host.answer(case, Numerics())
    assert not np.isposinf(spans["out"].high).any()


def test_the_zeros_of_a_structure_leave_out_what_they_meet(tmp_path):
    text = 'def f(x: "float32[n, n]{}", w: "float32[n, n]"):\n    return x @ w\n'
    x = TensorRecipe(shape=(2, 2), dtype="float32", fill=Fill(distribution="ones"))
    for words in ("", " lower"):
        fill = x.fill.but(params={"lower": 1})  # [[1, 0], [1, 1]]
        case = Case(op="op", tensors={"x": x.but(fill=fill), "w": x.but(pokes=pokes((3, np.nan)))})
        assert free(hosted(tmp_path, text.format(words)), case).tolist() == [bool(words), False]


@given(st.lists(ODD, min_size=6, max_size=6), st.lists(ODD, min_size=6, max_size=6), st.booleans(), st.booleans())
def test_a_product_is_the_sum_of_the_terms_that_are_not_left_out(first, second, first_made, second_made):
    a, b = torch.tensor(first).double().reshape(2, 3), torch.tensor(second).double().reshape(3, 2)
    with LeftOut():
        x, y = (one.clone() if made else one for one, made in ((a, first_made), (b, second_made)))
        found = torch.mm(x, y).numpy()
    for i in range(2):
        for j in range(2):
            terms = [
                p * q
                for p, q in zip(a[i].tolist(), b[:, j].tolist(), strict=True)
                if not (first_made and p == 0) and not (second_made and q == 0)
            ]
            assert np.array_equal(found[i, j], float(sum(terms)), equal_nan=True)


def test_a_nan_that_torch_itself_makes_of_an_infinity_is_nobodys_fault(tmp_path):
    host = hosted(tmp_path, 'def f(x: "float32[n]"):\n    return F.gelu(x)\n')
    x = TensorRecipe(shape=(2,), dtype="float32", pokes=pokes((0, np.inf)))
    want, spans = host.answer(Case(op="op", tensors={"x": x}), Numerics())
    assert np.isposinf(want["out"][0])
    lost = bool(torch.nn.functional.gelu(torch.tensor([np.inf, 0.0])).isnan()[0])
    assert bool(np.isneginf(spans["out"].low[0])) == lost


def test_shares_may_be_divided_by_their_sum_at_last(tmp_path):
    host = hosted(tmp_path, CAUSAL.format("scores"))
    zeros = TensorRecipe(shape=(4, 1), dtype="float32")
    large = zeros.but(pokes=pokes(*((i, 1.7e38) for i in range(4))))
    case = Case(op="op", tensors={"q": zeros, "k": zeros, "v": large})
    want, spans = host.answer(case, Numerics())
    assert np.isfinite(want["out"]).all()
    assert np.isposinf(spans["out"].high).all(), "four of them are too large for a number before they are divided"
    half = case.but(tensors={"q": zeros, "k": zeros, "v": zeros.but(pokes=pokes((0, 1e30)))})
    assert np.isfinite(host.answer(half, Numerics())[1]["out"].high).all()
