"""Rounding followed through torch: limits hold what float32 makes of a formula, and little more."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from _references import HEAD, LINEAR, hosted

from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.oracles.references.host import Refused

ONE = """
torch.relu(x)
F.gelu(x)
F.gelu(x, approximate="tanh")
F.silu(x)
F.mish(x)
F.elu(x)
F.selu(x)
F.softplus(x, beta=2.0)
F.hardswish(x)
F.hardsigmoid(x)
F.leaky_relu(x, 0.2)
F.logsigmoid(x)
F.softsign(x)
torch.tanh(x) + torch.sin(x) * torch.cos(x)
torch.softmax(x, dim=0)
torch.log_softmax(x, dim=1)
torch.logsumexp(x, dim=(0, 1))
x.var(dim=1)
x.std(dim=1, unbiased=False)
torch.var_mean(x, dim=1, correction=0)[1]
F.layer_norm(x, x.shape[1:])
F.rms_norm(x, x.shape[1:])
F.instance_norm(x[None])
F.normalize(x)
torch.linalg.norm(x, ord=1, dim=1)
torch.linalg.norm(x, ord=float("inf"), dim=1)
x.cumsum(1)
x.clamp(-1, 1).cumprod(1)
x.flip(1).sum(1, keepdim=True)
x.median(dim=1).values
x.sort(dim=1, descending=True).values
torch.where(x > 0.5, x, x * 0.5)
x.masked_fill(x < 0, float("-inf")).amax(1)
x.round() + x.floor() - x.ceil() + x.trunc()
x.half() * 2
F.pad(x, (1, 2), value=0.5)
F.avg_pool1d(x[None], 3, stride=1, padding=1)
F.adaptive_avg_pool1d(x[None], 2)
F.max_pool1d(x[None], 2)
F.interpolate(x[None], scale_factor=2, mode="nearest")
F.unfold(x[None, None], 2)
x.transpose(0, 1).reshape(-1).view(x.shape)
torch.stack([x, -x], 1).unbind(1)[1]
torch.cat([x, x * 2], 0)[1:, ::2]
torch.roll(x, 1, 1).tril()
torch.einsum("ij,kj->ik", x, x)
torch.addcmul(x, x, x, value=0.5)
F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])
F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True)
F.conv1d(x[None], x[:, None, :3], groups=x.shape[0], padding=1)
F.conv_transpose1d(x[None], x[:, None, :2], stride=2)
F.mse_loss(x, x.flip(0))
F.smooth_l1_loss(x, x * 1.5)
F.cosine_similarity(x, x.flip(1))
torch.nan_to_num(x / x.abs())
""".strip().splitlines()
BODY = """
def f(x: "float32[rows, cols]"):
    return {}
"""


def case_of(shape=(6, 8), fill="normal", seed=3, dtype="float32"):
    return Case(op="op", tensors={"x": TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution=fill, seed=seed))})


def input_of(case):
    return torch.from_numpy(materialize_all(case)["x"])


@pytest.mark.parametrize("formula", ONE)
def test_an_operator_of_torch_in_float32_lies_within_its_limits(tmp_path, formula):
    host, given = hosted(tmp_path, BODY.format(formula)), {"torch": torch, "F": torch.nn.functional}
    case = case_of()
    want, spans = host.answer(case, Numerics())
    assert host.unfollowed == set(), "it is followed by rules"
    (span,), (exact,) = spans.values(), want.values()
    eager = eval(formula, given, {"x": input_of(case)}).numpy().astype(np.float64)
    assert eager.shape == exact.shape
    finite = np.isfinite(exact)
    size = np.abs(exact[finite]).max(initial=0.0)
    off = np.abs(eager - exact)[finite]
    room = np.maximum(span.high - exact, exact - span.low)[finite]
    assert (off <= 2.0 * room + 2.0**-24 * np.abs(exact[finite])).all()
    assert (room <= 2e-5 * max(size, 1.0)).all() or "half" in formula or "/ x" in formula, "limits say something"


LOSING = {  # what a library has by a function of its own, and a kernel loses by cancellation
    "torch.erfc(x)": "1 - torch.erf(x)",
    "torch.special.xlog1py(x, torch.exp(x - 20))": "x * torch.log(1 + torch.exp(x - 20))",
    "torch.sinh(x)": "(torch.exp(x) - torch.exp(-x)) / 2",
    "torch.logaddexp(x, x * 0)": "torch.log(torch.exp(x) + 1)",
    "F.logsigmoid(x)": "torch.log(torch.sigmoid(x))",
    "np.logaddexp(x, np.zeros_like(x))": "np.log(np.exp(x) + np.float32(1))",
    "np.expm1(x)": "np.exp(x) - 1",
}
TELLING = [-95.0, -60.0, -25.0, -17.5, -5.0, -0.7, -1e-4, -3e-8, 0.0, 3e-8, 1e-4, 0.7, 3.0, 7.5, 17.5, 25.0, 60.0, 88.9]


@pytest.mark.parametrize("formula", LOSING)
def test_a_function_of_a_library_is_followed_as_one(tmp_path, formula):
    head = HEAD if formula[0] != "n" else "import numpy as np\n"
    host = hosted(tmp_path, BODY.format(formula), head=head)
    values = np.array(TELLING, np.float32)
    pokes = tuple((i, int(bits)) for i, bits in enumerate(values.view(np.uint32)))
    case = case_of((1, len(values)))
    case = case.but(tensors={"x": case.tensors["x"].but(pokes=pokes)})
    want, spans = host.answer(case, Numerics())
    names = {"torch": torch, "F": torch.nn.functional, "np": np}
    (span,), (exact,) = spans.values(), want.values()
    room = 2.0 * np.maximum(span.high - exact, exact - span.low) + 2.0**-24 * np.abs(exact) + 2.0**-150
    given = values[None] if "np" in formula else torch.from_numpy(values[None])
    with np.errstate(all="ignore"):
        own, naive = (np.asarray(eval(f, names, {"x": given}), np.float64) for f in (formula, LOSING[formula]))
        assert host.unfollowed == set()
        assert (np.isfinite(own) | np.isinf(span.high) | np.isinf(span.low) | (own == exact)).all()
        assert ((np.abs(own - exact) <= room) | ~np.isfinite(own)).all(), "the library's own float32 is within"
        assert (np.abs(naive - exact) > room).any(), "what loses all of it is outside"


def test_a_sum_of_exponentials_near_1_has_room_for_what_cancels(tmp_path):
    host = hosted(tmp_path, BODY.format("np.logaddexp(x, -0.6931472 + 0 * x)"), head="import numpy as np\n")
    x = case_of((1, 1)).tensors["x"].but(pokes=((0, int(np.float32(-0.6931471).view(np.uint32))),))
    want, spans = host.answer(case_of().but(tensors={"x": x}), Numerics())
    assert spans["out"].high[0, 0] - want["out"][0, 0] > 2.0**-24


def test_a_sine_of_an_unsure_large_angle_may_be_any(tmp_path):
    host = hosted(tmp_path, BODY.format("torch.sin(x * 0.7)"))
    x = case_of((1, 1)).tensors["x"].but(pokes=((0, int(np.float32(1e12).view(np.uint32))),))
    _, spans = host.answer(case_of().but(tensors={"x": x}), Numerics())
    assert (spans["out"].low[0, 0], spans["out"].high[0, 0]) == (-1.0, 1.0)


def test_a_log_of_a_sum_of_exponentials_is_infinite_for_sure_where_the_largest_is(tmp_path):
    host, inf, none = hosted(tmp_path, BODY.format("torch.logsumexp(x, 1)")), 0x7F800000, 0xFF800000
    x = case_of((4, 2)).tensors["x"].but(pokes=((0, inf), (2, none), (3, none), (4, inf), (5, none)))
    want, spans = host.answer(case_of().but(tensors={"x": x}), Numerics())
    assert list(want["out"][:3]) == [np.inf, -np.inf, np.inf]
    assert list(spans["out"].low[:3]) == list(spans["out"].high[:3]) == [np.inf, -np.inf, np.inf], "NaN is wrong there"
    assert np.isfinite(spans["out"].high[3])
    host.answer(case_of((3, 0)), Numerics())
    assert host.unfollowed == set(), "rows without elements are followed, too"


def test_a_narrow_accumulator_is_outside_unless_it_is_claimed(tmp_path):
    host, case = hosted(tmp_path, BODY.format("(x * x).sum(1)")), case_of((5, 64))
    x = input_of(case).numpy()
    narrow = (x * x).astype(np.float16).cumsum(1, dtype=np.float16)[:, -1].astype(np.float64)
    usual, claimed = (host.answer(case, Numerics(accumulate=a)) for a in ("float32", "float16"))
    for (want, spans), outside in ((usual, True), (claimed, False)):
        room = np.maximum(spans["out"].high - want["out"], want["out"] - spans["out"].low)
        assert bool((np.abs(narrow - want["out"]) > 4.0 * room).any()) is outside


def test_a_loop_that_writes_rows_is_followed(tmp_path):
    text = """
def f(x: "float32[rows, cols]"):
    out = torch.zeros(x.shape[0])
    for i in range(x.shape[0]):
        out[i] = x[i].sum()
    return out
"""
    host, case = hosted(tmp_path, text), case_of()
    want, spans = host.answer(case, Numerics())
    assert host.unfollowed == set()
    assert np.array_equal(want["out"], input_of(case).numpy().astype(np.float64).sum(1))
    assert (spans["out"].high > want["out"]).all()


def test_the_branches_of_an_unsure_condition_are_both_allowed(tmp_path):
    host = hosted(tmp_path, BODY.format("torch.where(x.sum(1) == x.flip(1).sum(1), 1.0, 2.0)"))
    _, spans = host.answer(case_of((4, 9)), Numerics())
    assert set(spans["out"].low) == {1.0}
    assert set(spans["out"].high) == {2.0}


def test_what_may_be_nan_stays_so_behind_what_hides_it(tmp_path):
    host = hosted(tmp_path, BODY.format("torch.relu((x * 1e30).pow(2).amax(1)).sqrt().exp()"))
    _, spans = host.answer(case_of(fill="ones"), Numerics())
    assert (np.isneginf(spans["out"].low) & np.isposinf(spans["out"].high)).all()


def test_an_operator_without_a_rule_is_named_and_tried(tmp_path):
    host, case = hosted(tmp_path, BODY.format("torch.special.bessel_j0(x)")), case_of()
    assert [name for name in host.unfollowed if "bessel_j0" in name] == list(host.unfollowed)
    want, spans = host.answer(case, Numerics())
    room = np.maximum(spans["out"].high - want["out"], want["out"] - spans["out"].low)
    assert (np.abs(torch.special.bessel_j0(input_of(case)).numpy() - want["out"]) <= 2.0 * room).all()
    assert (room < 1e-4).all()


def test_a_formula_that_leaves_torch_is_judged_by_what_float32_makes_of_it(tmp_path):
    text = "def f(x: 'float32[rows, cols]'): return torch.from_numpy(x.numpy().cumsum(1))\n"
    host, case = hosted(tmp_path, text), case_of()
    (reason,) = host.unfollowed
    assert reason.startswith("all of it (")
    want, spans = host.answer(case, Numerics())
    room = spans["out"].high - want["out"]
    narrow = input_of(case).numpy().cumsum(1)
    assert (np.abs(narrow - want["out"]) <= room).all()
    assert (room <= 1e-4).all()


def test_a_shape_that_the_reference_refuses_is_outside_of_its_domain(tmp_path):
    host = hosted(tmp_path, "def f(x: 'float32[rows, 4*k]'): return x.reshape(x.shape[0] * 2, -1)[:6]\n")
    host.answer(case_of((3, 8)), Numerics())
    text = "def f(x: 'float32[rows, cols]'):\n    if x.shape[1] > 10: raise ValueError('too wide')\n    return x\n"
    host = hosted(tmp_path, text)
    with pytest.raises(Refused, match=r"ValueError: too wide \(line 5\)"):
        host.answer(case_of((3, 11)), Numerics())


def test_a_reference_of_numpy_is_followed_as_contracts_are(tmp_path):
    text = 'import numpy as np\nINPUTS = {"x": "float32[rows, cols]"}\ndef f(x): return np.exp(x).sum(axis=1)\n'
    host = hosted(tmp_path, text, head="")
    assert (host.loaded.torch, host.unfollowed) == (None, set())
    want, spans = host.answer(case_of(), Numerics())
    assert (spans["out"].low < want["out"]).all()
    assert (spans["out"].high - want["out"] < 1e-5 * want["out"]).all()


def test_following_imports_no_compiler(tmp_path):
    """It takes a second and a half, and what follows is no more compiled than what is followed."""
    (tmp_path / "ref.py").write_text(HEAD + LINEAR)
    code = "import os, sys; from kernel_assay.oracles.references.host import Host; "
    code += "Host('ref.py:Model', '.', os.memfd_create('answers')); print('torch._dynamo' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout == "False\n", done.stderr


CASTS = """
F.silu(x.float()).to(x.dtype) * x
F.silu(x.float()).type_as(x) * x
F.silu(x.float()).to(x) * x
(F.silu(x.float()) * 1.5).type(x.dtype) * x
F.softmax(x, 1, dtype=torch.float32).to(x.dtype) * x
""".strip().splitlines()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("formula", CASTS)
def test_a_conversion_to_the_type_of_an_input_rounds_where_that_is_narrow(tmp_path, formula, dtype):
    host = hosted(tmp_path, BODY.format(formula))
    (want,), (span,) = (x.values() for x in host.answer(case_of(dtype=dtype), Numerics()))
    room = np.maximum(span.high - want, want - span.low) / np.abs(want)
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert unit / 8 < room.max() < 1.5 * unit, "one rounding in the middle"
    (eager,) = host.native(case_of(dtype=dtype)).values()
    assert (np.abs(eager - want) <= (1.01 * room + unit) * np.abs(want)).all()


@pytest.mark.parametrize(
    ("formula", "dtype"),
    [(CASTS[0], "float32"), ("F.silu(y := x.float()).to(y.dtype) * x", "float16"), ("F.silu(x) * x", "bfloat16")],
)
def test_a_conversion_to_a_wide_type_rounds_nothing(tmp_path, formula, dtype):
    (want,), (span,) = (
        x.values() for x in hosted(tmp_path, BODY.format(formula)).answer(case_of(dtype=dtype), Numerics())
    )
    assert (np.maximum(span.high - want, want - span.low) <= 1e-5 * np.abs(want)).all()


SCAN = """
def f(a: "float32[t]", x: "float32[t]"):
    h, out = torch.zeros(()), []
    for i in range(len(x)):
        h = a[i] * h + x[i]
        out.append(h)
    return torch.stack(out)
"""


def test_a_recurrence_may_be_computed_as_a_scan(tmp_path):
    host, worst = hosted(tmp_path, SCAN), 0.0
    for seed in range(20):
        a = TensorRecipe(shape=(33,), dtype="float32", fill=Fill(distribution="uniform", seed=seed))
        case = Case(op="op", tensors={"a": a, "x": a.but(fill=Fill(distribution="normal", seed=seed))})
        want, spans = host.answer(case, Numerics())
        given = materialize_all(case)
        slope, sums, step = given["a"], given["x"], 1
        while step < len(sums):
            later = sums[step:] + slope[step:] * sums[:-step], slope[step:] * slope[:-step]
            sums, slope = (np.concatenate([x[:step], y]) for x, y in zip((sums, slope), later, strict=True))
            step *= 2
        off = np.abs(sums - want["out"])
        worst = max(worst, float((off / (spans["out"].high - want["out"] + 2.0**-24 * np.abs(want["out"]))).max()))
    assert 0.05 < worst <= 1.0


THREE = np.float32(3)


@pytest.mark.parametrize(
    ("formula", "kernel"),
    [
        (
            "torch.quantile(x, 0.5, dim=1), x.var(0, unbiased=False)",
            lambda x: ((x - x.sum(0) / np.float32(3)) ** 2).mean(0),
        ),
        ("torch.from_numpy(x.numpy().mean(0)), x[0]", lambda x: x[:2].sum(0) / np.float32(3) + x[2] / np.float32(3)),
    ],
)
def test_what_cannot_be_followed_is_not_held_to_what_float32_happens_to_hit(tmp_path, formula, kernel):
    """All rows are alike, so that the reference in float32 is exact, and another order of its steps is not."""
    host, which = hosted(tmp_path, BODY.format(formula)), "out1" if "quantile" in formula else "out0"
    missed = 0
    for seed in range(30):
        row = np.random.default_rng(seed).normal(0.0, 100.0, 6).astype(np.float32)
        pokes = tuple((i, int(bits)) for i, bits in enumerate(np.tile(row, 3).view(np.uint32)))
        case = Case(op="op", tensors={"x": TensorRecipe(shape=(3, 6), dtype="float32", pokes=pokes)})
        want, spans = host.answer(case, Numerics())
        off = np.abs(kernel(np.tile(row, (3, 1))).astype(np.float64) - want[which])
        missed += bool((off > 0).any())
        assert (off <= spans[which].high - want[which]).all()
    assert missed, "the kernel is off somewhere"


def test_a_polynomial_exp_beside_narrow_intermediates_has_a_budget_that_ends(tmp_path):
    host = hosted(tmp_path, BODY.format("torch.softmax(x, 1)"))
    numerics = Numerics(exp="poly3", intermediates={"all": "bfloat16"})
    want, spans = host.answer(case_of(), numerics)
    assert (spans["out"].high < 1.5 * want["out"]).all()
