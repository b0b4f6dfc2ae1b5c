"""Shares that are exp(x - log sum exp x): right if that is claimed, told of if it is not, and no excuse for a bug."""

import re

import numpy as np
import pytest
from _references import hosted

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.checking.user_references import add_reference
from kernel_assay.fuzz.triage.failures import Failure
from kernel_assay.fuzz.triage.triage import investigate

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("no_references")

REFERENCES = """
import torch
import torch.nn.functional as F

def loss(x: "float32[rows, classes]", y: "int64[rows] < classes"):
    return F.cross_entropy(x, y)

def logs(x: "float32[rows, classes]"):
    return torch.log_softmax(x, 1)
"""
KERNELS = """
import torch

class Loss(torch.autograd.Function):
    last = None

    @staticmethod
    def forward(ctx, x, y):
        lse = torch.logsumexp(x, 1, keepdim=True)
        ctx.save_for_backward(x, lse, y)
        return (lse - x.gather(1, y[:, None])).mean()

    @classmethod
    def shares(cls, x, lse):
        return torch.exp(x - lse)

    @classmethod
    def backward(cls, ctx, g):
        x, lse, y = ctx.saved_tensors
        shares = cls.shares(x, lse)
        shares[torch.arange(len(y)), y] -= 1
        return g * shares / len(y), None

class Short(Loss):
    @classmethod
    def shares(cls, x, lse):
        return torch.exp(x - torch.logsumexp(x[:, :-1], 1, keepdim=True))

def loss(x, y):
    return Loss.apply(x, y)

def loss_short(x, y):
    return Short.apply(x, y)

def logs(x):
    return x - torch.logsumexp(x, 1, keepdim=True)

def logs_short(x):
    return x - torch.logsumexp(x[:, :-1], 1, keepdim=True)
"""
CLAIM = 'NUMERICS = {"intermediates": {"log": "float32"}}\n'
HINT = "consistent with float32 for the logarithm of a share, x - log sum exp x: declare NUMERICS = {'intermediates': {"


def large(op, contract):
    """Logits of a thousand, as far apart as usual."""
    fills = {"x": Fill(distribution="normal", seed=1, params={"shift": 1000}), "grad_out": Fill(distribution="ones")}
    shapes = {"x": (6, 9), "y": (6,), "grad_out": (6, 9) if op == "logs" else ()}
    index = Fill(distribution="uniform", seed=2, params={"below": 9})
    tensors = {
        n: TensorRecipe(shape=shapes[n], dtype="int64" if n == "y" else "float32", fill=fills.get(n, index))
        for n in contract.inputs
    }
    return Case(op=contract.name, tensors=tensors)


@pytest.mark.parametrize(("op", "grad"), [("loss", True), ("logs", False), ("logs", True)])
def test_the_claim_excuses_what_it_says_and_nothing_else(tmp_path, op, grad):
    (tmp_path / "ref.py").write_text(REFERENCES)
    (tmp_path / "plain.py").write_text(KERNELS)
    (tmp_path / "claimed.py").write_text(CLAIM + KERNELS)
    contract = add_reference(f"{tmp_path / 'ref.py'}:{op}", grad=grad)
    places = [f"{tmp_path / file}.py:{name}" for file in ("plain", "claimed") for name in (op, f"{op}_short")]
    if (op, grad) == ("logs", True):  # its backward pass is torch's own, of another formula
        places = places[:1] + places[2:3]
    subjects = UserKernels(tuple(places)).subjects((contract.name,))
    case = large(op, contract)
    with Examiner(subjects) as examiner:
        checked = examiner.check([CheckRequest(case, tuple(s.key for s in subjects))])[0].verdicts
        claims = {
            s.key: investigate(examiner, Failure(case, s, checked[s.key], "test"), seconds=5.0).finding.claim
            for s in subjects
            if checked[s.key].failed
        }
    said = {key.partition("/")[2]: (v.kind, claims.get(key, "")[: len(HINT)]) for key, v in checked.items()}
    told = {f"plain:{op}": (Kind.MISMATCH, HINT), f"claimed:{op}": (Kind.PASS, "")}
    short = {f"{file}:{op}_short": (Kind.MISMATCH, "") for file in ("plain", "claimed")}
    assert said == (told | short if len(subjects) == 4 else told)


@pytest.mark.parametrize("formula", ["torch.softmax(x, 1)", "torch.log_softmax(x, 1)"])
def test_the_claim_follows_the_other_formula(tmp_path, formula):
    host = hosted(tmp_path, f'def f(x: "float32[rows, cols]"):\n    return {formula}\n')
    assert set(host.contract.intermediates) == {"log"}
    x = TensorRecipe(shape=(5, 7), dtype="float32", fill=Fill(distribution="normal", seed=3, params={"shift": 1000}))
    case = Case(op="op", tensors={"x": x})
    widths = []
    for numerics in (Numerics(), Numerics(intermediates={"log": "float32"})):
        want, spans = host.answer(case, numerics)
        low, high = spans["out"][1:]
        assert ((low <= want["out"]) & (want["out"] <= high)).all()
        widths.append(np.max(high - low) / np.max(np.abs(want["out"])))
    assert host.unfollowed == set()
    assert 10.0 * widths[0] < widths[1] < 16.0 * 1000.0 * 2.0**-24, "some roundings of 1000"


def test_a_row_with_an_infinity_may_be_anything_then(tmp_path):
    host = hosted(tmp_path, 'def f(x: "float32[rows, cols]"):\n    return torch.log_softmax(x, 1)\n')
    inf, one = (int(np.float32(value).view(np.uint32)) for value in (np.inf, 1.0))
    x = TensorRecipe(shape=(2, 3), dtype="float32", pokes=((0, inf), (4, one)))
    _, spans = host.answer(Case(op="op", tensors={"x": x}), Numerics(intermediates={"log": "float32"}))
    free = np.isneginf(spans["out"][1]) & np.isposinf(spans["out"][2])
    assert free.tolist() == [[True] * 3, [False] * 3]


def test_a_reference_without_shares_has_no_such_claim(tmp_path):
    host = hosted(tmp_path, 'def f(x: "float32[rows, cols]"):\n    return torch.exp(x - x.amax(1, keepdim=True))\n')
    assert host.contract.intermediates == {}
    assert re.match(r"\{'main': \{'amax': \[\]", str(host.message()["operators"]))
