"""Laws in the sandbox: each kind of law finds the kernel that breaks it and no other; clean kernels break none."""

from random import Random

import numpy as np
import pytest
from _lawless import LAWLESS

from kernel_assay.corpus.inputs.materialize import materialize
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.findings import Exhibit
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.campaign.batches import LAW_EVERY, Runner
from kernel_assay.fuzz.checking.check import Examiner, all_laws
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.subjects import fitting
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import Target, generate, propose
from kernel_assay.fuzz.planning.plan import new_campaign
from kernel_assay.fuzz.triage.shrinker import Shrinker, shrink
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.oracles.catalog import add_contract, contract_of, forget_contracts, load_contracts
from kernel_assay.oracles.judging.laws import law_of


@pytest.fixture(params=LAWLESS)
def lawless(request):
    return LAWLESS[request.param]


@pytest.fixture
def subject(lawless, tmp_path):
    (tmp_path / "mine.py").write_text(lawless.text())
    return user_subject(str(tmp_path / "mine.py"), ())


def test_what_each_kernel_breaks_is_seen_by_its_law(lawless, subject):
    with Examiner([subject]) as examiner:
        case, key = lawless.case, subject.key
        plain, held = examiner.check([CheckRequest(case, (key,), laws) for laws in ((), (lawless.law,))])
        assert plain.verdicts[key].kind is Kind.PASS, "the oracle sees nothing on this case"
        assert (held.verdicts[key].kind, held.verdicts[key].rule) == (Kind.MISMATCH, f"law:{lawless.law}")
        assert held.laws == 1
        look = examiner.look(case, key, lawless.law)
        assert look.verdict.message == held.verdicts[key].message
        law = law_of(contract_of(case.op), lawless.law)
        assert look.exhibit.partner.id == law.transform(case).id
        assert look.exhibit.failing == sum(e.fails for e in look.exhibit.elements) > 0
        assert look.exhibit.within == law.within
        assert Exhibit.model_validate_json(look.exhibit.model_dump_json()).canonical() == look.exhibit.canonical()
        assert all(e.bound > 0 for e in look.exhibit.elements) == bool(law.within)
        assert np.prod(look.exhibit.shape) <= np.prod(look.exhibit.whole or look.exhibit.shape)


PRESCALED = """import numpy as np
OP = "softmax"
LOG2E = np.float32(1.4426950408889634)
def run(x):
    top = x.max(axis=-1, keepdims=True) * LOG2E
    e = np.exp2((x.astype(np.float64) * LOG2E - top).astype(np.float32))  # as fmaf(x, LOG2E, -top)
    return e / e.sum(axis=-1, keepdims=True)
"""


def test_a_softmax_that_multiplies_before_it_subtracts_is_right(tmp_path):
    """It has other bits for x + 8, as the maximum is rounded on the way; the quotient is as good."""
    (tmp_path / "prescaled.py").write_text(PRESCALED)
    names = {}
    exec(PRESCALED, names)
    subject = user_subject(str(tmp_path / "prescaled.py"), ())
    key, others = subject.key, 0
    with Examiner([subject]) as examiner:
        for seed in range(12):
            fill = Fill(distribution="small_integers", seed=seed)
            x = TensorRecipe(shape=(3, 5), dtype="float32", fill=fill)
            case = Case(op="softmax", tensors={"x": x}, attrs={"scale": 1.0})
            checked = examiner.check([CheckRequest(case, (key,), ("shift",))])[0]
            assert (checked.verdicts[key].kind, checked.laws) == (Kind.PASS, 1)
            others += bool((names["run"](materialize(x)) != names["run"](materialize(x) + 8)).any())
    assert others > 3


def test_a_repaired_kernel_breaks_none(lawless, tmp_path):
    (tmp_path / "mine.py").write_text(lawless.text(repaired=True))
    subject = user_subject(str(tmp_path / "mine.py"), ())
    with Examiner([subject]) as examiner:
        checked = examiner.check([CheckRequest(lawless.case, (subject.key,), all_laws(lawless.case))])[0]
        assert checked.verdicts[subject.key].kind is Kind.PASS
        assert checked.laws >= 1


def test_what_breaks_a_law_is_shrunk(lawless, subject):
    with Examiner([subject]) as examiner:
        target = examiner.check([CheckRequest(lawless.case, (subject.key,), (lawless.law,))])[0].verdicts[subject.key]
        small = shrink(Shrinker(examiner, subject.key, target), lawless.case)
        assert small.verdict.law == lawless.law
        assert small.case.elements <= lawless.case.elements


# ---- an op whose reference is as wrong as its kernel

WRONG_TOGETHER = """
import numpy as np
from kernel_assay.oracles.spec.contract import Budget, Contract, Dim, Input, Output
from kernel_assay.oracles.spec.law_library import row_sums

def reference(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return {"out": e / e[:, :-1].sum(axis=-1, keepdims=True)}

CONTRACT = Contract(
    name="shares",
    summary="shares of a whole",
    dims={"rows": Dim(1, 8), "cols": Dim(2, 64)},
    inputs={"x": Input(("rows", "cols"), low=-4, high=4)},
    outputs={"out": Output(("rows", "cols"), like="x")},
    variants=({"x": "float32"},),
    reference=reference,
    laws=(row_sums("sum", 1.0),),
)
"""
SHARES = """
import numpy as np
OP = "shares"
def run(x):
    w = x.astype(np.float64)
    e = np.exp(w - w.max(axis=-1, keepdims=True))
    return (e / e[:, :-1].sum(axis=-1, keepdims=True)).astype(x.dtype)
"""


@pytest.fixture
def shares(tmp_path):
    """The contract of an op, and a kernel that agrees with it."""
    (tmp_path / "shares_contract.py").write_text(WRONG_TOGETHER)
    (tmp_path / "shares.py").write_text(SHARES)
    yield add_contract(tmp_path / "shares_contract.py"), user_subject(str(tmp_path / "shares.py"), ())
    forget_contracts()


def test_an_invariant_speaks_against_kernel_and_oracle_alike(shares):
    contract, subject = shares
    case = generate(Target(contract, max_elements=128), Random("shares"))[0]
    with Examiner([subject]) as examiner:
        plain, held = examiner.check([CheckRequest(case, (subject.key,), laws) for laws in ((), ("sum",))])
        assert plain.verdicts[subject.key].kind is Kind.PASS
        assert held.verdicts[subject.key].law == "sum"
        look = examiner.look(case, subject.key, "sum")
        assert look.exhibit.groups
        assert look.exhibit.partner is None
        assert look.exhibit.failing > 0


# ---- in a campaign


@pytest.mark.parametrize("ops", [["gemm"], ["gemm", "silu", "softmax", "rope"], ["gemm", "silu", "row_max"]])
def test_every_law_of_every_op_has_its_turn(ops):
    subjects = [next(s for s in subjects_of(op) if s.name == "numpy_float32" or not s.planted) for op in ops]
    with Examiner(subjects) as examiner:
        runner = Runner(examiner, new_campaign("r1", 1, "conjecture", subjects), Elites([]))
        targets = [Target(contract_of(op), max_elements=64) for op in ops]
        proposals = [propose(targets, 1, index, Elites([])) for index in range(LAW_EVERY * 10 * len(ops))]
        asked = [runner.request(p) for p in proposals]
    laws = [(q.case.op, name) for q in asked for name in q.laws]
    assert len(laws) * LAW_EVERY == len(proposals)
    assert set(laws) == {(op, law.name) for op in ops for law in contract_of(op).laws}


# ---- clean kernels


@pytest.mark.parametrize("op", [op for op, contract in sorted(load_contracts().items()) if contract.laws])
def test_clean_kernels_break_no_law(op):
    """As a campaign would, but with all laws on every case."""
    clean = [s for s in subjects_of(op) if not s.planted and s.backend in {"numpy", "torch"}]
    random = Random(f"laws {op}")
    with Examiner(clean) as examiner:
        cases = [generate(Target(contract_of(op), max_elements=2048), random)[0] for _ in range(48)]
        checked = examiner.check([CheckRequest(c, fitting(examiner.subjects.values(), c), all_laws(c)) for c in cases])
    assert {v.message for c in checked for v in c.verdicts.values() if v.failed} == set()
    assert sum(c.laws for c in checked) >= 24
