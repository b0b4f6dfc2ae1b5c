"""No case that is made from another one leaves the ranges of its contract: moves, neighbours, laws, other dtypes."""

from random import Random
from types import SimpleNamespace

import pytest

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Signature, Verdict
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import Checked, CheckRequest
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.fuzz.triage import failure_conditions
from kernel_assay.fuzz.triage.shrinker import Shrinker, shrink
from kernel_assay.fuzz.triage.variants import recast
from kernel_assay.oracles.catalog import add_contract, contract_of, forget_contracts, load_contracts
from kernel_assay.oracles.spec.domain import outside, stays

ODD = """
from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output
CONTRACT = Contract(
    name="odd", summary="odd ranges",
    dims={"a": Dim(3, 41, multiple=4), "b": Dim(6, 50, multiple=6), "n": Dim(2, 9)},
    inputs={"x": Input(("a", "b"), low=0.5, high=3.0), "i": Input(("n",), below="a"),
            "y": Input(("b", "n"), layouts=("transposed", "row_gaps"), distributions=("ones", "positive"))},
    outputs={"out": Output(("a", "n"), like="x")},
    variants=tuple({"x": t, "i": "int32", "y": t} for t in ("float32", "float16", "bfloat16")),
    attrs={"mode": ("p", "q"), "scale": (1.0, 0.5)},
    reference=lambda x, i, y, mode, scale: {"out": scale * (x @ y)},
)
"""
OPS = sorted(load_contracts())


@pytest.fixture(autouse=True)
def odd(tmp_path):
    (tmp_path / "odd.py").write_text(ODD)
    yield add_contract(tmp_path / "odd.py")
    forget_contracts()


class Anyone:
    """An examiner whose subject fails on most cases, whatever they are; it notes what it is asked."""

    def __init__(self, seed):
        self.asked, self.random = [], Random(seed)
        self.sandbox = SimpleNamespace(timeout=10.0, renew=lambda *_: None)

    def is_large(self, case):
        return False

    def check(self, requests):
        return [self.told(q) for q in requests]

    def told(self, request):
        self.asked.append(request.case)
        fails = self.random.random() < 0.7
        verdict = failure(request.case) if fails else Verdict(kind=Kind.PASS)
        return Checked(request.case, "", {"mine": verdict}, {})


def failure(case):
    signature = Signature(op=case.op, subject="mine", kind=Kind.MISMATCH, rule="rho", dtype=case.dtype)
    return Verdict(kind=Kind.MISMATCH, rule="rho", signature=signature)


def drawn(op, seed, **more):
    return generate(Target(contract_of(op), max_elements=1 << 10), Random(seed), **more)[0]


@pytest.mark.parametrize("op", [*OPS, "odd"])
def test_whatever_is_asked_is_within_the_contract(op):
    contract = contract_of(op)
    for seed in range(3):
        case = drawn(op, seed)
        granted = outside(contract, case)
        assert not {word for word in granted if "distribution" not in word}, "exact probes have values of their own"
        anyone = Anyone(seed)
        shrinker = Shrinker(anyone, "mine", failure(case))
        small = shrink(shrinker, case)
        failure_conditions.learn_gates(shrinker, small.case, case)
        assert len(anyone.asked) > 20
        assert [c.label for c in anyone.asked if not stays(contract, c, granted.copy)] == []
        assert all(stays(contract, c, granted.copy) for c in recast(case))


@pytest.mark.parametrize("seed", range(40))
def test_what_is_drawn_and_mutated_is_within_the_contract(seed):
    random = Random(seed)
    steer = {n: random.randrange(1 << 12) for n in random.sample(range(12), 5)}
    for case in (drawn("odd", seed), drawn("odd", seed, steer=steer)):
        assert outside(contract_of("odd"), case) == frozenset()


def test_a_law_asks_for_nothing_outside(tmp_path):
    (tmp_path / "narrow.py").write_text(
        "from kernel_assay.oracles.spec.law_library import alone\n"
        + ODD.replace('name="odd"', 'name="narrow"').replace(
            "    reference", "    laws=(alone('last', {'i': 0, 'y': 1}, out=1),),\n    reference"
        )
    )
    contract = add_contract(tmp_path / "narrow.py")
    case = drawn("narrow", 1)
    asked = CheckRequest(case, ("mine",), ("last",))
    stand_in = SimpleNamespace(contracts={"narrow": contract})
    assert contract.laws[0].transform(case) is not None
    assert list(Examiner._other_cases(stand_in, asked)) == []


def test_what_lies_outside_is_named():
    contract, case = contract_of("odd"), drawn("odd", 3)
    x, i = case.tensors["x"], case.tensors["i"]

    def said(**tensors):
        return outside(contract, case.but(tensors={**case.tensors, **tensors}))

    assert said(x=x.but(shape=(5, x.shape[1]))) >= {"a is no multiple of 4"}
    assert said(x=x.but(pokes=((0, 0),))) == {"x has elements out of its range"}
    assert said(x=x.but(fill=x.fill.but(scale=2.0))) == {"x is moved out of its range"}
    assert said(i=i.but(pokes=((0, 1 << 20),))) == {"i has elements out of its range"}
    assert said(y=case.tensors["y"].but(layout="contiguous")) == {"y has another layout"}
    assert outside(contract, case.but(attrs={**case.attrs, "mode": "r"})) == {"mode has another value"}
    assert outside(contract, Case(op="odd", tensors={})) != frozenset()
