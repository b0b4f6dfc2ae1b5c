"""`run --grad`: right and wrong backward passes, what is refused, and a reference against finite differences."""

import re
from pathlib import Path

import pytest
from _command import refused
from test_reference_signatures import kinds_of, must_fit

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz import api
from kernel_assay.fuzz.testing import assay, cases
from kernel_assay.oracles.catalog import forget_contracts

pytestmark = pytest.mark.usefixtures("no_references")

TABLES = Path(__file__).parents[2] / "scripts/bench/own_references"
"""What the bench of references tries with more cases, and more kinds."""
KERNELS = {
    "gradients.py:relu": ("right_other_side", "wrong_mask_at_tail"),
    "gradients.py:swiglu": ("right", "wrong_detached", "wrong_kept_changed", "wrong_begins_in_place"),
    "gradients.py:embedding": ("right", "wrong_overwrites"),
    "gradients_of_rows.py:running_sum": ("right", "wrong_strides"),
    "gradients_of_rows.py:affine": ("right_blocks", "wrong_tail", "wrong_none"),
    "gradients_of_rows.py:linear": ("right", "wrong_narrow_sum"),
}
REFERENCES = """
import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x**2


class Halved(Cubed):
    backward = staticmethod(lambda ctx, g: 1.5 * g * ctx.saved_tensors[0] ** 2)


class Detached(Cubed):
    backward = staticmethod(lambda ctx, g: 3 * g * ctx.saved_tensors[0].detach() ** 2)


class Once(Cubed):
    backward = staticmethod(once_differentiable(lambda ctx, g: 3 * g * ctx.saved_tensors[0] ** 2))


def right(x: "float32[rows, cols]"):
    return Cubed.apply(x)


def halved(x: "float32[rows, cols]", w: "float32[cols]"):
    return w, Halved.apply(x) * w


def detached(x: "float32[rows, cols]"):
    return Detached.apply(x)


def once(x: "float32[rows, cols]"):
    return Once.apply(x)


def kinked(x: "float32[rows, cols]"):
    return torch.relu(x) + x.max(dim=1, keepdim=True).values


def never(x: "float32[rows, cols]"):
    return torch.sqrt(x * 0.0)


def raises(x: "float32[rows, cols]"):
    if x.requires_grad and x.shape[0] * x.shape[1] != 35:
        raise ValueError("no training here")
    return x * 2


def two(x: "float32[rows, cols]", w: "float32[cols]" = None):
    y = x if w is None else x * w
    return y.sum(1), y.argmax(1), y[:, :1]

"""
KERNELS_OF_TWO = """
import torch


def right(x, w=None):
    y = x * (torch.ones(()) if w is None else w)
    return y.sum(1), y.argmax(1), y[:, :1]


def wrong(x, w=None):
    y = x * (torch.ones(()) if w is None else w)
    return y.sum(1), y.argmax(1), y[:, :1].detach()


def narrow(x, w=None):
    return right(x, w)[0].half(), *right(x, w)[1:]


def short(x, w=None):
    return right(x, w)[0][:-1], *right(x, w)[1:]


def alone(x, w=None):
    return right(x, w)[0]


def without(x, w=None):
    return tuple(y.detach() for y in right(x, w))


def writes(first, second, third, x, w=None):
    first.copy_(x.sum(1))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "ref.py").write_text(REFERENCES)
    (tmp_path / "mine.py").write_text(KERNELS_OF_TWO)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def searched(*words, cases=16):
    return ("run", "--grad", *words, "--cases", cases, "--seed", "1", "--quiet")


@pytest.mark.parametrize("place", KERNELS)
def test_a_wrong_backward_pass_is_found_and_a_right_one_is_not_accused(place):
    file, name = place.split(":")
    names = [f"{TABLES / file}:{name}_{one}" for one in KERNELS[place]]
    must_fit(kinds_of(f"{TABLES / place}.grad", names, cases=40))


def test_a_finding_of_a_gradient_is_replayed_and_shown(here, fuzz):
    code, out, _ = fuzz(*searched("--reference", "ref.py:two", "--subject", "mine.py:wrong"))
    assert code == 1, out
    assert (
        "two_grad is the gradient of the function two of ref.py: x float32[rows, cols], [w float32[cols]], grad_out0"
        in out
    )
    assert "grad_x[0, 0] is 0, must be 1 to within" in out
    assert "warning" not in out
    (finding,) = Store(here / "corpus").findings()
    assert finding.case.op == "two_grad"
    assert f"--reference {here}/ref.py:two.grad" in out
    forget_contracts()
    code, out, _ = fuzz("replay", finding.id)
    assert (code, "1 replayed: 1 fails" in out) == (1, True), out
    code, out, _ = fuzz("show", finding.id)
    assert (code, "grad_out2" in out) == (0, True)


def test_bfloat16_is_held_to_float32_unless_it_claims_less(here):
    """Autograd adds in bfloat16 what comes to x by two ways."""
    (here / "claims.py").write_text(f'NUMERICS = {{"intermediates": {{"all": "bfloat16"}}}}\n{KERNELS_OF_TWO}')
    (here / "narrow.py").write_text(REFERENCES.replace("float32", "bfloat16"))
    found = [kinds_of("narrow.py:two.grad", [f"{file}:right"], cases=32)["right"] for file in ("mine.py", "claims.py")]
    assert found == [{Kind.PASS, Kind.MISMATCH}, {Kind.PASS}]


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [("narrow", Kind.WRONG_DTYPE), ("short", Kind.WRONG_SHAPE), ("alone", Kind.RAISED)],
)
def test_what_is_returned_must_have_its_form(here, kernel, kind):
    found = kinds_of("ref.py:two.grad", [f"mine.py:{kernel}"], cases=4)[kernel]
    assert kind in found
    assert Kind.PASS not in found


def test_a_kernel_without_a_backward_pass_is_told_so(here, fuzz):
    code, _, err = fuzz(*searched("--reference", "ref.py:two", "--subject", "mine.py:without", cases=4))
    assert code == 2
    assert "was tested in 4 cases: nothing that it returns requires grad" in err
    writes = fuzz(*searched("--reference", "ref.py:two", "--subject", "mine.py:writes"))
    refused(writes, "mine.py:writes writes its outputs, through which no gradient goes back")


def test_what_cannot_be_differentiated_is_refused(here, fuzz):
    (here / "plain.py").write_text("import numpy as np\ndef run(x, w=None): return np.sum(x, 1)\n")
    refused(fuzz(*searched("--reference", "ref.py:two", "--subject", "plain.py")), "two_grad is a gradient", "numpy")
    refused(fuzz(*searched("softmax")), "gradients are those of a reference of your own")
    refused(fuzz(*searched("--reference", "ref.py:right", "--json", "-")), "--json tells of kernels")
    with pytest.raises(UsageError, match="gradients are those of a reference: name one"):
        cases("softmax", grad=True)


def test_elements_that_are_not_judged_are_told_of(here, fuzz):
    (here / "relu.py").write_text("import torch\ndef run(x):\n    return x.clamp(min=0) + x.amax(1, keepdim=True)\n")
    code, out, _ = fuzz(*searched("--reference", "ref.py:kinked", "--subject", "relu.py", cases=48))
    assert code == 0, out
    assert "% of the elements of kinked_grad: its gradient jumps there, or has no value" in out
    (run,) = Store(here / "corpus").runs()
    assert 0.01 < Store(here / "corpus").load_run(run).unjudged["kinked_grad"] < 0.6


def test_a_reference_is_compared_with_finite_differences(here, fuzz):
    code, out, _ = fuzz(*searched("--reference", "ref.py:kinked", cases=12))
    assert code == 0, out
    assert "12 cases, seed 1: " in out
    assert "so are second derivatives" in out
    code, out, _ = fuzz(*searched("--reference", "ref.py:once", cases=4))
    assert (code, "second derivatives: right in 0, and not to be had in the others" in out) == (0, True), out


def test_what_a_reference_rounds_on_its_way_is_not_compared(here, fuzz):
    (here / "narrow.py").write_text(
        "import torch\ndef narrow(x: 'float32[n]'):\n    return torch.sigmoid(x.double().float()).half().to(x.dtype)\n"
    )
    code, out, _ = fuzz(*searched("--reference", "narrow.py:narrow", cases=8))
    assert (code, "8 as finite differences say" in out) == (0, True), out


def test_a_recorded_call_of_the_function_is_a_case_of_its_gradient(here, fuzz):
    (here / "calls.jsonl").write_text('{"inputs": ["float32[5, 3]", "float32[3]"]}\n')
    words = ("--reference", "ref.py:two", "--subject", "mine.py:right", "--workload", "calls.jsonl")
    code, out, _ = fuzz(*searched(*words, cases=4))
    assert (code, "1 of 1 shape of two_grad judged" in out) == (0, True), out


def test_a_first_derivative_is_told_before_a_second(here):
    (here / "both.py").write_text(
        "import torch\nclass Both(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        ctx.kept = torch.tanh(x.detach())\n        ctx.few = x.shape[0] < 5\n        return ctx.kept.clone()\n"
        "    @staticmethod\n    def backward(ctx, grad):\n"
        "        return grad * (1 - ctx.kept**2) * (1 if ctx.few else 2)\n"
        "def both(x: 'float32[n]'):\n    return Both.apply(x)\n"
    )
    wrong = api.check_gradients("both.py:both", cases=32, seed=1)
    assert wrong.wrong.startswith("the gradient of out by x is wrong")


def test_a_wrong_reference_is_found_by_finite_differences(here):
    wrong = api.check_gradients("ref.py:halved", cases=8, seed=1)
    assert wrong.failed
    assert wrong.wrong.startswith("the gradient of out1 by x is wrong: in one direction finite differences give ")
    assert isinstance(wrong.case, Case)
    assert wrong.case.elements <= 12, "a small one"
    numerical, analytical = map(float, re.findall(r"-?\d+\.\d+(?:e-?\d+)?", wrong.wrong))
    assert numerical == pytest.approx(2 * analytical, rel=1e-3)
    wrong = api.check_gradients("ref.py:detached", cases=8, seed=1)
    assert wrong.wrong.startswith("a second derivative is wrong")
    assert wrong.wrong.endswith("says so by torch.autograd.function.once_differentiable")


def test_a_reference_that_is_nowhere_smooth_or_raises_is_refused(here, fuzz):
    refused(
        fuzz(*searched("--reference", "ref.py:never", cases=4)),
        "could be compared in 4 cases, as the gradient jumps near all of them, or has no value",
    )
    refused(fuzz(*searched("--reference", "ref.py:raises", cases=4)), "ValueError: no training here")


def test_a_test_holds_a_kernel_to_gradients(sandboxes, tmp_path):
    (tmp_path / "ref.py").write_text(
        "import torch\n\n\ndef f(x: 'float32[n, m]', w: 'float32[m]'):\n    return torch.tanh(x) * w\n"
    )
    (tmp_path / "k.py").write_text(
        "import torch\nright = lambda x, w: torch.tanh(x) * w\nwrong = lambda x, w: torch.tanh(x) * w.detach()\n"
    )

    @assay(reference=f"{tmp_path}/ref.py:f", grad=True)
    def right():
        return f"{tmp_path}/k.py:right"

    @assay(reference=f"{tmp_path}/ref.py:f", grad=True)
    def wrong():
        return f"{tmp_path}/k.py:wrong"

    right()
    with pytest.raises(AssertionError, match=r"grad_w\[0\] is 0, must be") as failed:
        wrong()
    assert f"--reference {tmp_path}/ref.py:f.grad" in str(failed.value)
