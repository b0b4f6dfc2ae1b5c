"""`trace`: planted makers of NaN and Inf are named, N of N; honest models give no alarm; nothing is left behind."""

import contextlib
import copy
import json
import math
import os
import runpy
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import kernel_assay
from kernel_assay.corpus.errors import UsageError
from kernel_assay.kernels.recording.watch import NonFiniteError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402  after it is known to be there
from torch.nn import functional as F  # noqa: E402, N812

trace = kernel_assay.trace
ROOT = Path(__file__).resolve().parents[2]


class Layer(nn.Module):
    """Does one thing, between two layers that are right."""

    def __init__(self, does):
        super().__init__()
        self.before, self.after, self.does = nn.Linear(4, 4), nn.Linear(4, 4), does

    def forward(self, x):
        return self.after(self.does(self.before(x)))


def variance(h):
    flat = h * 0 + 1
    return (flat - flat.mean()) / flat.var()


def in_place(h):
    h = h.clone()
    return h.div_(h - h)


def two_infinities(h):
    big = (h.detach() * 0 + 200).exp()
    return h + (big - big)


MAKERS = {
    "zero by zero": (lambda h: (h * 0) / (h * 0), "aten.div", "NaN", False),
    "one by zero": (lambda h: 1 / (h * 0), "aten.reciprocal", "Inf", False),
    "log of a negative": (lambda h: torch.log(-1 - h.abs()), "aten.log", "NaN", False),
    "log of zero": (lambda h: torch.log(h * 0), "aten.log", "Inf", False),
    "infinity less infinity": (two_infinities, "aten.exp", "Inf", False),
    "root of a negative": (lambda h: torch.sqrt(-1 - h.abs()), "aten.sqrt", "NaN", False),
    "float16 product": (lambda h: (h.half() * 0 + 300) @ (h.half().T * 0 + 300) @ h.half(), "aten.mm", "Inf", False),
    "cast to float16": (lambda h: (h * 0 + 7e4).half().float(), "aten._to_copy", "Inf", False),
    "all masked": (lambda h: F.softmax(h.masked_fill(h == h, -math.inf), -1), "aten._softmax", "NaN", False),  # noqa: PLR0124
    "variance of zero": (variance, "aten.div", "NaN", False),
    "in place": (in_place, "aten.div_", "Inf", False),
    "power": (lambda h: (h * 0 + 1e20) ** 2, "aten.pow", "Inf", False),
    "hidden zero times infinity": (lambda h: h * 0 * math.inf, "aten.mul", "NaN", False),
    "acos": (lambda h: torch.acos(h * 0 + 2), "aten.acos", "NaN", False),
    "norm at zero": (lambda h: h + (h * 0).pow(2).sum().sqrt(), "aten.div", "Inf", True),
    "where over a root": (lambda h: torch.where(h > 1e9, (h * 0).sqrt(), h), "aten.div", "NaN", True),
    "power at zero": (lambda h: h + (h * 0).abs().pow(0.5), "aten.pow", "Inf", True),
}
DTYPES = {"float16 product": torch.float16}


@pytest.mark.parametrize("name", MAKERS)
def test_a_planted_maker_is_named(name, tmp_path, capsys):
    does, op, kind, backward = MAKERS[name]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), Layer(does), nn.Linear(4, 2)).to(DTYPES.get(name))
    with trace(model, folder=tmp_path) as traced:
        model(torch.randn(3, 4).to(DTYPES.get(name))).sum().backward()
    first = traced.first
    assert (first.op, first.kind.lstrip("-"), bool(first.site.node)) == (op, kind, backward), traced.report
    assert first.origin == "made"
    assert first.site.module == "Sequential.1"
    assert first.when == "call 1 of Sequential"
    assert Path(first.site.file) == Path(__file__)
    with pytest.raises(SystemExit) as again:
        runpy.run_path(f"{first.case}.py", run_name="__main__")
    assert again.value.code == 1
    assert "elements are not finite" in capsys.readouterr().out


def attention(x, mask):
    scores = x @ x.transpose(-1, -2) / 2
    return (scores + mask).softmax(-1) @ x


CAUSAL = torch.full((3, 3), -math.inf).triu(1)
BLOCK = {"d_model": 4, "nhead": 2, "dim_feedforward": 8, "dropout": 0.0}
HONEST = {
    "a mask that is added": lambda x: attention(x, CAUSAL),
    "a mask that is filled in": lambda x: (x @ x.T).masked_fill(CAUSAL < 0, -math.inf).softmax(-1) @ x,
    "the logarithm of a mask": lambda x: attention(x, (CAUSAL == 0).float().log()),
    "log of a sum of exponentials": lambda x: torch.logsumexp(x * 1000, -1),
    "cross entropy": lambda x: F.cross_entropy(x * 1e4, torch.zeros(3, dtype=torch.long)),
    "attention of torch": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "memory that nobody wrote": lambda x: torch.full((3, 4), math.nan).new_empty((3, 4)).copy_(x),
    "a block": lambda x: nn.TransformerEncoderLayer(**BLOCK, batch_first=True)(x[None], src_mask=CAUSAL),
    "a running minimum": lambda x: torch.minimum(torch.tensor(math.inf), x),
    "under autocast": torch.autocast("cpu", torch.bfloat16)(nn.Linear(4, 4)),
    "a batch norm": nn.BatchNorm1d(4),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_model_gives_no_alarm(name):
    torch.manual_seed(0)
    x = torch.randn(3, 4, requires_grad=True)
    with trace() as traced:
        HONEST[name](x).sum().backward()
        assert math.isfinite(x.grad.sum().item())
    assert traced.story.failures == [], traced.report
    assert "nothing came through" in traced.report
    assert traced.story.trouble == ""
    assert bool(traced.story.gone) == (name == "the logarithm of a mask")
    if traced.story.gone:
        assert "-Inf by aten.log" in traced.report
        assert "made, and gone behind aten._softmax" in traced.report


def test_an_infinity_that_a_hook_gives_a_gradient_is_named():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    with trace(model) as traced:
        h = model[0](torch.randn(3, 4))
        h.register_hook(lambda g: g * math.inf)
        model[2](model[1](h)).sum().backward()
    (one,) = traced.story.failures
    assert (one.op, one.origin, one.kind.lstrip("-")) == ("aten.mul", "given", "Inf")


def test_a_maker_is_named_in_inference_mode_as_well():
    model = nn.Sequential(nn.Linear(4, 4), Layer(lambda h: (h * 0).log() - (h * 0).log()))
    with trace(model) as traced, torch.inference_mode():
        model(torch.randn(3, 4))
    assert (traced.first.op, traced.story.trouble) == ("aten.log", ""), traced.report


def test_scaling_of_a_loss_is_forgiven_its_overflow_and_nothing_else():
    def run(scale, does):
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        with trace(model) as traced:
            for _ in range(3):
                optimizer.zero_grad()
                out = model(torch.randn(3, 4)).half() * 100
                scaler.scale(does(out).float().mean()).backward()
                scaler.step(optimizer)
                scaler.update()
        return traced

    honest = run(2.0**24, lambda out: out)
    assert honest.story.failures == [], honest.report
    assert "gone behind GradScaler" in honest.report
    assert run(2.0**24, lambda out: out.log()).first.op == "aten.log"


@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_what_the_last_step_makes_is_told_although_nothing_reads_it(eps):
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.Adam(model.parameters(), eps=eps)
    with trace(model) as traced:
        (model(torch.ones(1, 2)) * 0).sum().backward()
        optimizer.step()
    told = [(one.op, one.reached) for one in traced.story.failures]
    assert told == ([] if eps else [("the step of Adam", ["the parameter Linear.weight"])]), traced.report


def test_what_the_optimizer_makes_is_its_own():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e38)
    with trace(model) as traced:
        for _ in range(3):
            optimizer.zero_grad()
            (1e3 * model(torch.ones(1, 2))).sum().backward()
            optimizer.step()
    assert traced.first.op == "the step of SGD", traced.report
    assert "Linear.weight[0, 0]" in traced.report


def test_nan_that_comes_in_with_data_is_said_to_come_in():
    with trace() as traced:
        nn.Linear(2, 1)(torch.tensor([[1.0, math.nan]])).sum()
    assert traced.first.origin == "came in", traced.report
    assert "mat1[0, 1] is NaN, 1 of 2 elements" in traced.report


def test_a_parameter_that_is_not_finite_is_named_with_its_own_index():
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight[0, 1] = math.nan
    with trace(model) as traced:
        model(torch.ones(1, 2))
    assert "Linear.weight[0, 1] is NaN, 1 of 4 elements" in traced.report


def test_steps_by_hand_in_place_are_followed():
    w = torch.ones(3, requires_grad=True)
    with trace() as traced:
        for _ in range(3):
            (w.pow(2).sum() * 1e30).backward()
            with torch.no_grad():
                w -= 1e20 * w.grad
            w.grad = None
    (first,) = traced.story.failures
    assert (first.op, first.kind) == ("aten.mul", "Inf"), traced.report


def test_a_traced_run_computes_the_same_bits():
    def run(within):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.BatchNorm1d(8))
        optimizer = torch.optim.Adam(model.parameters())
        with within:
            for _ in range(5):
                optimizer.zero_grad()
                model(torch.randn(6, 4)).square().mean().backward()
                optimizer.step()
        return torch.cat([one.detach().flatten() for one in model.parameters()])

    assert torch.equal(run(trace()), run(contextlib.nullcontext()))


def test_who_passed_it_on_and_where_it_came_out():
    model = nn.Sequential(Layer(torch.log), nn.Tanh())
    with trace(model) as traced:
        x = torch.randn(9, 4)
        result = model(x).sum()
        result.backward()
        result.item()
    (first,) = traced.story.failures
    assert [place.partition(",")[0] for place in first.through[:2]] == [
        "aten.addmm in Sequential.0.after",
        "aten.tanh in Sequential.1",
    ]
    assert first.reached[:2] == ["the output of Sequential", "a number that the program read"]
    assert any(place.startswith("the gradient of Sequential.0.") for place in first.reached)


class Nested(nn.Module):
    def forward(self, x):
        return {"a": [x, (x * 2, torch.log(-x.abs()))], "b": None}


@pytest.mark.parametrize("without", [False, True])
def test_outputs_may_be_nested_and_a_module_called_several_times(without):
    model = nn.ModuleList([Nested()])
    with trace(model) as traced, torch.set_grad_enabled(not without):
        for _ in range(3):
            model[0](torch.ones(2))
    assert (traced.first.count, traced.first.reached) == (3, ["the output of Nested"])


def test_what_is_compiled_is_seen_operator_by_operator():
    compiled = torch.compile(Layer(torch.log))
    with trace() as traced:
        compiled(torch.randn(5, 4))
    assert traced.first.op == "aten.log", traced.report


@pytest.mark.parametrize("fails", [False, True])
def test_every_hook_is_gone_in_the_end(fails):
    from torch.nn.modules import module
    from torch.optim import optimizer  # noqa: F401
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    def hooks():
        optimizers = sys.modules["torch.optim.optimizer"]
        return [
            len(one)
            for one in (
                module._global_forward_pre_hooks,
                module._global_forward_hooks,
                module._global_forward_hooks_always_called,
                optimizers._global_optimizer_pre_hooks,
                optimizers._global_optimizer_post_hooks,
                _get_current_dispatch_mode_stack(),
            )
        ]

    before = hooks()

    def raises(x):
        raise KeyError(x.shape)

    with ended(fails), trace() as traced:
        assert hooks() != before
        Layer(raises if fails else torch.relu)(torch.ones(1, 4))
    assert hooks() == before
    assert traced.story.operators > 0


def ended(fails):
    return pytest.raises(KeyError) if fails else contextlib.nullcontext()


def test_it_can_stop_at_the_first():
    with pytest.raises(NonFiniteError, match=r"aten\.log made NaN in Layer, forward pass, call 1"), trace(stop=True):
        Layer(torch.log)(torch.randn(5, 4))


def test_subnormal_and_largest_numbers_are_counted_apart():
    with trace() as traced:
        torch.full((4,), 1e-30) * torch.full((4,), 1e-10)
        torch.full((3,), 3.4028234663852886e38) * torch.ones(3)
    assert traced.story.failures == []
    assert "subnormal, no failure: 4 of 7 elements" in traced.report
    assert "largest of the dtype, no failure: 3 of 7 elements" in traced.report


def copies(does=lambda h: h):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), Wrapped(does), nn.Linear(64, 8)).eval()
    return model, copy.deepcopy(model).bfloat16()


class Wrapped(nn.Module):
    def __init__(self, does):
        super().__init__()
        self.does = does

    def forward(self, x):
        return self.does(x)


def test_two_copies_of_a_model_agree_as_their_dtype_explains():
    model, other = copies()
    found = trace.compare(model, other, torch.randn(16, 64))
    assert found.first is None, str(found)
    assert str(found) == "all 5 calls of modules are as near as bfloat16 explains"


def test_the_first_layer_that_leaves_the_budget_is_named():
    model, other = copies(lambda h: h if h.dtype == torch.float32 else (h.float() * 0.8).bfloat16())
    found = trace.compare(model, other, torch.randn(16, 64))
    assert (found.first.module, found.first.kind) == ("2", "Wrapped")
    assert str(found).startswith("2 (Wrapped) is the first that leaves the budget: off by 0.2")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: trace(3), "trace takes modules of torch, not int"),
        (lambda: trace.compare(3, nn.ReLU()), "trace.compare takes two modules of torch, not int"),
        (lambda: trace.compare(nn.Linear(2, 2).eval(), nn.Linear(2, 2).eval()), "it has no narrow weights"),
        (lambda: trace.compare(nn.Linear(2, 2), nn.Linear(2, 2).half()), "must be in eval mode"),
        (lambda: trace.compare(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))), "only one has the module '0'"),
    ],
)
def test_a_mistake_is_one_sentence(call, words):
    with pytest.raises(UsageError) as refused:
        call()
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


PROGRAM = """\
    import os, signal, sys, threading
    import torch
    print(sys.argv[1:], flush=True)
    def work():
        torch.log(torch.zeros(3)).sum()
    if "thread" in sys.argv:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    elif "child" in sys.argv:
        if not os.fork():
            work()
            os._exit(0)
        os.wait()
    else:
        work()
    if "killed" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(3)
"""


def traced_program(folder, text, *arguments, options=()):
    (folder / "train.py").write_text(textwrap.dedent(text))
    command = [sys.executable, "-m", "kernel_assay.fuzz", "trace", *options, "--", sys.executable, "train.py"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([*command, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("how", ["killed", "thread", "child"])
def test_a_program_runs_as_it_is_and_is_told_of(tmp_path, how):
    done = traced_program(tmp_path, PROGRAM, how, options=["--json", "seen.json"])
    assert done.stdout == f"['{how}']\n"
    assert done.returncode == (128 + signal.SIGKILL if how == "killed" else 3), done.stderr
    assert (
        "1. aten.log made -Inf outside of modules, before any call of a module: out[0] is -Inf, 3 of 3" in done.stderr
    )
    assert "train.py line 5: torch.log(torch.zeros(3)).sum()" in done.stderr
    stories = json.loads((tmp_path / "seen.json").read_text())
    assert [one["op"] for story in stories for one in story["events"]] == ["aten.log"]
    kept = tmp_path / "kassay-trace"
    assert sorted(one.name for one in kept.iterdir()) == ["1.out.pt", "1.pt", "1.py"]
    if how == "killed":
        again = subprocess.run([sys.executable, kept / "1.py"], capture_output=True, text=True, check=False)
        assert (again.returncode, "elements are not finite" in again.stdout) == (1, True), again.stderr


def test_nothing_is_left_by_a_program_that_is_right(tmp_path):
    done = traced_program(tmp_path, "import torch\ntorch.ones(3).exp()\n")
    assert (
        done.returncode,
        "nothing came through that is not finite; operators 1, outputs checked 1" in done.stderr,
    ) == (0, True)
    assert [one.name for one in tmp_path.iterdir()] == ["train.py"]


def test_a_program_without_torch_is_one_sentence(tmp_path):
    done = traced_program(tmp_path, "print(1)\n")
    assert (done.returncode, done.stderr) == (2, "kassay: nothing was seen: torch was never called\n")
