"""Thin long shapes in ordinary runs: which there are, who runs them, and what they find that nothing else does."""

from itertools import islice

import pytest

from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.campaign.batches import Runner
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import Checked
from kernel_assay.fuzz.checking.subjects import COMPILED, EMULATED, INTERPRETED, bears, most_elements
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import Target, propose
from kernel_assay.fuzz.generation.model_shapes import LONG, WIDER, elements_of, long_turn
from kernel_assay.fuzz.planning.plan import new_campaign, targets
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.large.parts import sample
from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output

OPS = sorted(load_contracts())


def longs(contract, base, most=COMPILED, seed=1):
    """The long cases of about so many elements."""
    every = LONG[base]
    found = (long_turn(contract, most, seed, every * n + every // 4 + 3) for n in range(40))
    return [long for long in found if long is not None]


@pytest.mark.parametrize("op", OPS)
def test_every_op_has_long_cases_of_every_size(op):
    contract = contract_of(op)
    for base in LONG:
        found = longs(contract, base)
        assert len(found) > (20 if base < 1 << 24 else 0)
        assert all(elements_of(contract, long.dims) <= min(COMPILED, 2 * WIDER * base) for long in found)
        stretched = {max(long.dims, key=lambda d: long.dims[d] / max(1, contract.dims[d].high)) for long in found}
        assert len(stretched) > 1 or len(contract.dims) == 1 or base == 1 << 24


def test_those_that_the_field_goes_wrong_at_are_among_them():
    shapes = {base: {tuple(long.dims.values()) for long in longs(contract_of("softmax"), base)} for base in LONG}
    assert {(1, 65537), (65537, 1)} <= shapes[1 << 16]
    assert {(3, 4097), (1, 4097)} & shapes[1 << 12]
    assert any(rows > 1 << 20 for rows, _ in shapes[1 << 20])
    assert any(rows == cols == 4097 for rows, cols in shapes[1 << 24])


@pytest.mark.parametrize("op", OPS)
def test_the_longest_can_be_judged(op):
    """By parts, which are bounded, or whole."""
    target = Target(contract_of(op), longest=COMPILED)
    at = LONG[1 << 24] // 4 + 3
    for proposal in (propose([target], 1, at + LONG[1 << 24] * n, Elites()) for n in range(4)):
        assert sum(part.case.elements for part in sample(target.contract, proposal.case)) < 1 << 25


def test_they_are_rare_and_of_the_run_alone():
    target = Target(contract_of("silu"), longest=COMPILED)
    made = [propose([target], 1, index, Elites()) for index in range(1200)]
    assert 3 <= sum(p.is_long for p in made) <= 8
    assert not any(p.is_long for p in (propose([Target(contract_of("silu"))], 1, i, Elites()) for i in range(600)))


def test_each_dim_is_long_once_early():
    contract = contract_of("gemm")
    found = [propose([Target(contract, longest=COMPILED)], 1, 32 * n + 5, Elites()) for n in (1, 2, 3)]
    assert [max(dims, key=dims.get) for dims in (contract.dims_of(p.case) for p in found)] == list(contract.dims)
    assert all(p.is_long for p in found)
    assert long_turn(contract, COMPILED, 1, 37) is None, "runs of earlier generations keep their cases"


def test_keys_of_attention_reach_through_several_tiles():
    target = Target(contract_of("attention"))
    found = [propose([target], 1, 16 * n + 6, Elites()) for n in range(8)]
    assert sum(target.contract.dims_of(p.case)["keys"] > 64 for p in found) >= 5


def test_a_users_own_op_keeps_its_ranges():
    contract = Contract(
        name="own",
        summary="",
        dims={"rows": Dim(0, 64), "cols": Dim(0, 1 << 18)},
        inputs={"x": Input(("rows", "cols"))},
        outputs={"out": Output(("rows", "cols"), like="x")},
        variants=({"x": "float32"},),
        reference=lambda x: {"out": x},
        origin="/somewhere/own.py",
    )
    found = [long for base in LONG for long in longs(contract, base)]
    assert found
    assert all(long.dims["rows"] <= 64 and long.dims["cols"] <= 1 << 18 for long in found)


def test_who_takes_long_gets_smaller_ones():
    by_name = {s.name: s for s in subjects_of("softmax")}
    numpy, triton, cuda = (by_name[n] for n in ("numpy_float32", "triton_rows", "cuda_block"))
    assert [most_elements(s) for s in (numpy, triton, cuda)] == [COMPILED, INTERPRETED, EMULATED]
    assert most_elements(cuda.but(device="cuda")) == COMPILED
    target = Target(contract_of("softmax"), longest=COMPILED)
    for index in (LONG[1 << 16] // 4 + 3 + LONG[1 << 16] * n for n in range(8)):
        case = propose([target], 1, index, Elites()).case
        rows = target.contract.dims_of(case)["rows"]
        assert bears(numpy, target.contract, case, patient=False)
        assert not bears(triton, target.contract, case, patient=True)
        assert bears(cuda, target.contract, case, patient=True) is (rows < 4096), "a block a row: 256 threads each"


LATE = """OP = "silu"
import numpy as np
def run(out, x):
    w = x.astype(np.float64)
    with np.errstate(all="ignore"):
        out[...] = np.where(w == -np.inf, 0.0, w / (1 + np.exp(-w)))
    out[65535:] = 7
"""


def test_a_bug_behind_row_65535_is_found_by_ordinary_runs(tmp_path):
    (tmp_path / "late.py").write_text(LATE)
    subject = user_subject(str(tmp_path / "late.py"), ())
    campaign = new_campaign("r1", 3, "conjecture", [subject])
    (target,) = targets(campaign)
    turns = (LONG[1 << 16] // 4 + 3 + LONG[1 << 16] * n for n in range(12))
    with Examiner([subject]) as examiner:
        runner = Runner(examiner, campaign, Elites())
        met = (examiner.check([runner.request(propose([target], 3, i, Elites()))])[0] for i in turns)
        kinds = [c.verdicts[subject.key].kind for c in islice(met, 12)]
    assert Kind.MISMATCH in kinds
    assert set(kinds) <= {Kind.MISMATCH, Kind.NONFINITE, Kind.PASS}


def test_a_long_case_that_takes_too_long_says_nothing(tmp_path):
    (tmp_path / "late.py").write_text(LATE)
    subject = user_subject(str(tmp_path / "late.py"), ())
    campaign = new_campaign("r1", 3, "conjecture", [subject])
    (target,) = targets(campaign)
    proposal = propose([target], 3, LONG[1 << 16] // 4 + 3, Elites())
    with Examiner([subject]) as examiner:
        runner = Runner(examiner, campaign, Elites())
        assert runner.request(proposal).subjects == (subject.key,)
        late = Checked(proposal.case, "", {subject.key: Verdict(kind=Kind.TIMEOUT, rule="status", message="10 s")}, {})
        said = runner._forgiven(proposal, late).verdicts[subject.key]
        assert said.kind is Kind.INCONCLUSIVE
        assert "elements" in said.message
        assert runner.request(proposal).subjects == (), "and it gets no other"
