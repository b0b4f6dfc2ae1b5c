"""The gradient of a reference: what it takes, its limits, and where nothing is said of it."""

import numpy as np
import pytest
import torch
from _references import hosted

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.gradients import Gradient
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.reference_place import ReferencePlace, Target, option_for
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.oracles.references.host import Refused
from kernel_assay.oracles.references.torch import ties

FORMULAS = """
torch.relu(x)
F.gelu(x) + F.silu(x) * torch.tanh(x)
F.elu(x) + F.softplus(x) + F.leaky_relu(x, 0.2)
torch.softmax(x, dim=0)
torch.log_softmax(x, dim=1)
torch.logsumexp(x, dim=1)
F.layer_norm(x, x.shape[1:])
F.group_norm(x[None], 2)
F.rms_norm(x, x.shape[1:])
F.batch_norm(x, None, None, training=True)
F.normalize(x)
x.var(dim=1)
x.norm(dim=1)
x.max(dim=1).values
x.amax(1) + x.max()
x.topk(3, dim=1).values
x.sort(dim=1, descending=True).values.cumsum(1)
x[[0, 2, 2]]
F.embedding(torch.tensor([0, 2, 2]), x)
x.gather(1, torch.zeros(x.shape[0], 2, dtype=torch.int64))
F.cross_entropy(x, torch.arange(x.shape[0]) % 5)
F.huber_loss(x, x * 2)
x @ x.T
F.linear(x, x, x[:, 0])
torch.einsum("ij,kj->ik", x, x)
x.clamp(-1, 1).prod(1)
torch.where(x > 0.5, x, x * 0.5)
torch.maximum(x, x.flip(0)).masked_fill(x < 0, 0.0)
F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])
F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], is_causal=True)
F.conv1d(x[None], x[:, None, :3], groups=x.shape[0], padding=1)
F.conv2d(x[None, None], x[None, None, :3, :3], x[0, :1])
F.max_pool2d(x[None, None], 2)
F.avg_pool1d(x[None], 3, stride=1, padding=1)
F.adaptive_avg_pool1d(x[None], 2)
F.interpolate(x[None], scale_factor=2, mode="nearest")
torch.cat([x, x.flip(1)], 0).reshape(-1, 4).sum(1)
x.index_add(0, torch.arange(x.shape[0]) // 2, x)
""".strip().splitlines()
BODY = """
def f(x: "float32[rows, cols]"):
    return {}
"""


def gradient(folder, formula, body=BODY):
    return hosted(folder, body.format(formula), "f.grad")


def case_of(host, fill="normal", dtype="float32", **shapes):
    """A case of an op of which x is 6 x 8, and cotangents have the shape that follows, or one that is given."""
    dims = {"rows": 6, "cols": 8}
    tensors = {}
    for seed, t in enumerate(host.described.tensors):
        shape = shapes.get(t.name) or tuple(
            dims.get(a) or host.described.example.get(a) or eval(a, dims) for a in t.axes
        )
        name = fill if t.name == "x" else "positive"
        tensors[t.name] = TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution=name, seed=seed))
    return Case(op="op", tensors=tensors)


def judged(host, case):
    """The exact gradient of x, and room on both sides of it."""
    want, spans = host.answer(case, Numerics())
    exact = want["grad_x"]
    with np.errstate(invalid="ignore"):
        return exact, np.maximum(spans["grad_x"].high - exact, exact - spans["grad_x"].low)


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_gradient_that_torch_makes_in_float32_lies_within_its_limits(tmp_path, formula):
    host = gradient(tmp_path, formula)
    case = case_of(host)
    exact, room = judged(host, case)
    assert host.unfollowed == set(), "it is followed by rules"
    given = {name: torch.from_numpy(a) for name, a in materialize_all(case).items()}
    x = given["x"].requires_grad_()
    with torch.enable_grad():
        out = eval(formula, {"torch": torch, "F": torch.nn.functional}, {"x": x})
    begun = host.derived.gradient.fitted("grad_out", given["grad_out"], tuple(out.shape))
    (eager,) = torch.autograd.grad(out, x, begun)
    off = np.abs(eager.numpy().astype(np.float64) - exact)
    assert (off <= 2.0 * room + 2.0**-24 * np.abs(exact)).all()
    assert np.median(room) <= 2e-5 * max(np.abs(exact).max(), 1.0), "limits say something"
    assert np.isfinite(room).mean() > 0.9, "and so of nearly all"


def test_a_cotangent_has_the_axes_of_its_output(tmp_path):
    text = """
def f(x: "float32[rows, 4*k]", w: "float32[k]", i: "int64[n] < rows"):
    return x.repeat_interleave(3, 0), x.reshape(-1)[2:], i * 2, (x[i][:, : w.shape[0]] * w).argmax(1), w.sum()
"""
    host = hosted(tmp_path, text, "f.grad")
    tensors = {t.name: t.axes for t in host.described.tensors}
    assert {name for name in tensors if name.startswith("grad")} == {"grad_out0", "grad_out1", "grad_out4"}
    assert tensors["grad_out0"] == ["rows*3", "k*4"]
    assert tensors["grad_out1"] == ["grad_out1_0"], "no product of dimensions"
    assert tensors["grad_out4"] == []
    assert host.derived.gradient.repeated == {"grad_out1": (0,)}
    assert host.outputs == {"grad_x": "float32", "grad_w": "float32"}
    assert host.contract.inputs["grad_out1"].specials is False


def test_a_cotangent_is_repeated_where_no_formula_gives_its_extent():
    gradient = Gradient(("out",), {"out": "g"}, {"g": (1,)}, {})
    g = torch.arange(6.0).reshape(2, 3)
    assert gradient.fitted("g", g, (2, 3)) is g
    assert gradient.fitted("g", g, (2, 5)).tolist() == [[0, 1, 2, 0, 1], [3, 4, 5, 3, 4]]
    assert gradient.fitted("g", g, (2, 1)).tolist() == [[0], [3]]
    assert gradient.fitted("g", g, (4, 3)).shape == (2, 3), "other axes stay as they are"
    assert Gradient.read(gradient.message()) == gradient


def test_an_input_to_which_nothing_comes_has_no_gradient(tmp_path):
    host = gradient(tmp_path, "x * w.detach()", 'def f(x: "float32[n]", w: "float32[n]", c: "float32[n]"): return {}\n')
    assert [*host.outputs] == ["grad_x"]


@pytest.mark.parametrize(
    ("text", "head", "words"),
    [
        ('import numpy as np\ndef f(x: "float32[n]"): return np.exp(x)\n', "", "the reference must be torch"),
        ('def f(x: "float32[n]"): x.mul_(2)\n', None, "it changes its input 'x'"),
        ('def f(i: "int64[n] < n"): return i * 2\n', None, "no output depends on an input"),
        ('def f(x: "float32[n]"): return x.argmax(0)\n', None, "no output depends on an input"),
    ],
)
def test_what_has_no_gradient_is_refused_in_a_sentence(tmp_path, text, head, words):
    with pytest.raises(UsageError, match=words):
        hosted(tmp_path, text, "f.grad", **({} if head is None else {"head": head}))


@pytest.mark.parametrize(
    ("formula", "fill", "free"),
    [
        ("torch.relu(x)", "zeros", "all"),
        ("x.abs()", "zeros", "all"),
        ("x.clamp(-1.0, 2.0)", "ones", "none"),
        ("x.clamp(-1.0, 1.0)", "ones", "all"),
        ("torch.where(x >= 1.0, x * 3, x)", "ones", "all"),
        ("x * 3 if x[0, 0] > 0.999 else x", "ones", "none"),
        ("x * 3 if x[0, 0] > 1 - 1e-9 else x", "ones", "all"),
        ("x * 3 if (x * x).sum() >= 48 else x", "ones", "all"),
        ("x.sqrt()", "zeros", "all"),
        ("x.norm(dim=1)", "zeros", "all"),
        ("x.max(dim=1).values", "ones", "all"),
        ("x.amax(1)", "ones", "all"),
        ("x.topk(2, dim=1).values", "ones", "all"),
        ("x.sort(dim=1).values[:, :2]", "ones", "all"),
        ("F.max_pool2d(x[None, None], 2)", "ones", "all"),
        ("torch.relu(x)", "ones", "none"),
        ("torch.exp(x * 80)", "ones", "none"),
        ("torch.sin(x * 1000)", "normal", "none"),
        ("1 / (x - 0.9999)", "ones", "none"),
        ("x.max(dim=1).values", "normal", "none"),
        ("F.max_pool2d(x[None, None], 2)", "normal", "none"),
    ],
)
def test_an_element_is_left_out_where_the_gradient_jumps_and_nowhere_else(tmp_path, formula, fill, free):
    host = gradient(tmp_path, formula)
    _, spans = host.answer(case_of(host, fill), Numerics())
    left_out = np.isneginf(spans["grad_x"].low) & np.isposinf(spans["grad_x"].high)
    assert left_out.mean() == {"all": 1.0, "none": 0.0}[free]
    assert host.unjudged == (48 if free == "all" else 0)


@pytest.mark.parametrize(
    ("formula", "fill"),
    [
        ("torch.maximum(x, 2 - x)", "ones"),
        ("torch.relu(x - x.mean(1, keepdim=True))", "constant_rows"),
        ("torch.relu(x.sum(1) - x.flip(1).cumsum(1)[:, -1].detach())", "positive"),
    ],
)
def test_a_branch_that_rounding_may_turn_counts_as_either(tmp_path, formula, fill):
    """What is compared is computed, and 0 but for rounding, whose size no small step of the inputs tells."""
    host = gradient(tmp_path, formula)
    case = case_of(host, fill)
    want, spans = host.answer(case, Numerics())
    inputs = materialize_all(case)
    low, high, others = spans["grad_x"].low, spans["grad_x"].high, []
    for seed in range(4):
        moved = inputs["x"] * (1 + 1e-12 * np.random.default_rng(seed).uniform(-1, 1, (6, 8)))
        others.append(host.derived.called({"rows": 6, "cols": 8}, {**inputs, "x": moved}, {})["grad_x"].numpy())
    assert not any(np.allclose(one, want["grad_x"]) for one in others), "it is a kink"
    for one in others:
        assert ((low <= one + 1e-9) & (one - 1e-9 <= high)).all()


def test_inputs_that_are_no_numbers_are_declined(tmp_path):
    host = gradient(tmp_path, "torch.relu(x)")
    with pytest.raises(Refused, match="x is not finite"):
        host.answer(case_of(host, "masked_rows"), Numerics())


def test_a_gradient_that_cannot_be_followed_is_judged_by_what_float32_makes_of_it(tmp_path):
    body = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy().cumsum(1))
    @staticmethod
    def backward(ctx, g):
        return g.flip(1).cumsum(1).flip(1)
def f(x: "float32[rows, cols]"):
    return {}
"""
    host = gradient(tmp_path, "Own.apply(x)", body)
    (reason,) = host.unfollowed
    assert reason.startswith("all of it (")
    exact, room = judged(host, case_of(host))
    assert (room > 0).all()
    assert (room <= 1e-4 * np.abs(exact).max()).all()


def test_a_backward_pass_may_begin_with_the_output_as_it_is_stored(tmp_path):
    host = gradient(tmp_path, "torch.softmax(x, dim=1)")
    case = case_of(host, dtype="bfloat16")
    exact, room = judged(host, case)
    given = {name: torch.from_numpy(a.astype(np.float32)) for name, a in materialize_all(case).items()}
    y, g = torch.softmax(given["x"], dim=1).bfloat16().float(), given["grad_out"]
    off = np.abs((y * (g - (g * y).sum(1, keepdim=True))).numpy() - exact)
    assert (off <= room).all()
    assert (off > 2.0**-16 * np.abs(exact)).any(), "which float32 would not explain"


def test_a_place_may_end_in_grad():
    for text in ("a.py:fn.grad", "a.py:fn.grad(float32[4, 8], 0.5)", "mod:fn.grad", "a.py:.grad"):
        target = Target.read(text)
        assert (target.grad, str(target)) == (True, text)
        assert "grad" not in target.name
    assert Target.read("a.py:fn") == ("a.py", "fn", "", False)
    place = ReferencePlace.read("/a.py:fn.grad#0123456789abcdef")
    assert option_for(str(place)) == " --reference /a.py:fn.grad"


def test_positions_at_which_another_number_may_be_as_large_are_unsure():
    low = np.array([[1.0, 2.0, 3.0], [1.0, 3.0, 3.0], [1.0, 2.9, 3.0]])
    high = low.copy()
    high[2, 1] = 3.1
    assert ties.unsure(low, high, 1, np.array([2, 1, 2])).tolist() == [False, True, True]
    assert ties.unsure(low[:1], high[:1], 1, np.array([2])) is None
    marked = ties.lines((2, 3), 1, np.array([[0], [1]]), np.array([[True], [False]]))
    assert marked.tolist() == [[True] * 3, [False] * 3]


def test_elements_that_share_the_largest_of_a_window_are_marked():
    x = np.array([[1.0, 5.0, 5.0], [0.0, 5.0, 9.0], [7.0, 0.0, 9.0]])
    made = (2, 2)
    marked = ties.shared(x, x, made, ([2, 2], [1, 1], [0, 0], [1, 1]))
    assert marked.tolist() == [[False, True, False], [False, True, True], [False, False, True]]
    padded = ties.shared(x, x, (2, 2), ([3, 3], [2, 2], [1, 1], [1, 1]))
    assert padded.tolist() == [[False, True, False], [False, True, True], [False, False, True]]
