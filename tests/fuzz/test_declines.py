"""What is always declined is left out of later cases, and what is not always declined is not."""

import json
from random import Random

import pytest

from kernel_assay.corpus.model.campaign import Tried
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.campaign.search import Limits, Search
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import Checked
from kernel_assay.fuzz.generation.declines import AS_IF, Declines, Tries, traits_of
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import BATCH, Target, generate, propose
from kernel_assay.fuzz.planning.goals import reached_now
from kernel_assay.fuzz.planning.plan import new_campaign
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.oracles.catalog import contract_of, load_contracts


def outcomes(op, rule, indices, elites):
    """Learns from batch after batch; of each case whether it is declined."""
    contract = contract_of(op)
    target = Target(contract)
    for batch in indices:
        tries, said = Tries(), []
        for index in range(batch * BATCH, (batch + 1) * BATCH):
            case = propose([target], 3, index, elites).case
            declined = rule(contract.dims_of(case), case)
            said.append(declined)
            tries.add(traits_of(contract, case), ["declined"] * declined)
        elites.weigh(batch, {op: tries})
        yield said


@pytest.mark.parametrize(
    ("op", "rule", "left_out"),
    [
        ("softmax", lambda d, _c: d["cols"] % 16 != 0, "cols % 16 != 0"),
        ("softmax", lambda d, _c: d["rows"] > 64, "rows > 64"),
        ("softmax", lambda _d, c: c.dtype != "float16", "dtype float32"),
        ("softmax", lambda _d, c: c.tensors["x"].layout == "offset_one" and c.elements > 0, "x lies offset_one"),
        ("softmax", lambda _d, c: "mask" in c.tensors, "mask given"),
        ("convert", lambda _d, c: c.attrs["to"] != "float16", "to = bfloat16"),
        ("gemm_int8", lambda d, c: d["k"] % 4 != 0 or c.attrs["alpha"] != 1, "k % 4 != 0"),
    ],
)
def test_draws_follow_what_is_taken(op, rule, left_out):
    elites = Elites()
    said = list(outcomes(op, rule, range(60), elites))
    share = [sum(map(sum, part)) / len(part) / BATCH for part in (said[:4], said[-20:])]
    assert left_out in elites.refused(op, 10**6)
    assert share[1] < 1.5 / AS_IF, "but for those that are drawn as if nothing was known"
    assert share[0] > 2 * share[1]


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9])
def test_what_is_declined_by_chance_teaches_nothing(rate):
    """Not always, that is: one such trait in ten runs does no harm, for it comes back."""
    random, out = Random(f"{rate}"), []
    for seed in range(10):
        contract, declines = contract_of("softmax"), Declines({})
        for _ in range(25):
            tries = Tries()
            for _ in range(BATCH):
                case, _ = generate(Target(contract), random)
                tries.add(traits_of(contract, case), ["no"] * (random.random() < rate))
            out += [(seed, trait) for _, trait, is_out in declines.weigh({"softmax": tries}) if is_out]
    assert len(out) <= 3


def test_what_was_left_out_comes_back_when_it_is_taken():
    declines = Declines({})
    some = Tries(taken=20, took={"a"}, declined=[("no", ("b", "c"))] * 20)
    assert declines.weigh({"softmax": some}) == [("softmax", "b", True), ("softmax", "c", True)]
    assert declines.weigh({"softmax": Tries(taken=1, took={"c"})}) == [("softmax", "c", False)]
    assert declines.record()["softmax"].refused == ("b",)


def test_a_kernel_that_declines_everything_teaches_nothing():
    declines = Declines({})
    assert declines.weigh({"softmax": Tries(declined=[("no", ("b",))] * 500)}) == []


def test_what_is_recorded_goes_on_as_if_there_was_no_break():
    random, contract = Random(1), contract_of("softmax")
    batches = []
    for _ in range(12):
        tries = Tries()
        for _ in range(BATCH):
            case, _ = generate(Target(contract), random)
            reasons = (
                ["rows"] if contract.dims_of(case)["rows"] > 32 else ["float16"] if case.dtype == "float16" else []
            )
            tries.add(traits_of(contract, case), reasons)
        batches.append({"softmax": tries})
    whole = Declines({})
    said = [whole.weigh(batch) for batch in batches]
    assert any(said[:6])
    assert any(said[6:]) or whole.record()
    for cut in range(12):
        first = Declines({})
        for batch in batches[:cut]:
            first.weigh(batch)
        stored = {op: Tried.model_validate_json(t.model_dump_json()) for op, t in first.record().items()}
        rest = Declines(stored)
        assert [rest.weigh(batch) for batch in batches[cut:]] == said[cut:]
        assert rest.record() == whole.record()


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_cases_without_some_traits_are_cases_of_the_op(op):
    """Whatever traits: where the smallest case without them is too large, they are not left out."""
    contract, random = contract_of(op), Random(op)
    for seed in range(20):
        traits = [t for _ in range(3) for t in traits_of(contract, generate(Target(contract), random)[0])]
        elites = Elites({"op": op, "trait": t, "out": True, "batch": 0} for t in random.sample(traits, 3))
        for index in range(9 * BATCH, 9 * BATCH + 8):
            case = propose([Target(contract)], seed, index, elites).case
            contract.check(case)
            assert all(contract.dims[d].low <= n <= contract.dims[d].high for d, n in contract.dims_of(case).items())


def searched(tmp_path, source, cases, seed=5):
    (tmp_path / "picky.py").write_text(source)
    subject = user_subject(str(tmp_path / "picky.py"), ())
    with Store(tmp_path / "corpus") as store, Examiner([subject], timeout=30.0) as examiner:
        store.prepare()
        record = new_campaign("r1", seed, "conjecture", [subject])
        store.start_run(record)
        done = Search(examiner, store, record, Limits(600.0, cases, after_seconds=0.0)).run()
        return done, store.read_journal("r1", "elites")


TAKES = """OP = "silu"
import numpy as np
def run(out, x):
    if x.shape[1] % 32 or x.dtype == np.float64:
        raise NotImplementedError(f"cols % 32 must be 0, and are {x.shape[1]}")
    with np.errstate(all="ignore"):
        w = x.astype(np.float64)
        out[...] = np.where(w == -np.inf, 0.0, w / (1 + np.exp(-w)))
"""


def test_a_run_learns_what_its_kernel_takes(tmp_path):
    done, journal = searched(tmp_path, TAKES, 2000)
    kinds = done.by_subject["silu/picky"]
    assert kinds[Kind.PASS] > 0.6 * done.cases, "three of four were declined if the draws did not follow"
    assert {line["trait"] for line in journal if "trait" in line} >= {"cols % 32 != 0", "dtype float64"}
    assert "cols % 32 != 0" in done.tried["silu"].refused
    assert json.loads(done.model_dump_json())["tried"]["silu"]["took"]


def test_goals_are_reached_only_where_the_own_kernel_was_judged(tmp_path):
    """A peer would reach all of them."""
    done, _ = searched(tmp_path, TAKES.replace("x.shape[1] % 32 or", "x.shape[1] < 99999 or"), 64)
    assert set(done.by_subject["silu/picky"]) == {Kind.UNSUPPORTED}
    assert set(done.goals.values()) == {-1}


def test_a_goal_asks_for_verdicts_of_those_that_decide():
    case, _ = generate(Target(contract_of("silu")), Random(1))
    near, far = Verdict(kind=Kind.PASS, rho=0.5), Verdict(kind=Kind.PASS, rho=0.0)
    both = {"budget_used", "side_by_side"}
    assert reached_now(both, Checked(case, "", {"mine": far, "peer": near}, {}), {"mine"}) == ["side_by_side"]
    assert reached_now(both, Checked(case, "", {"mine": near}, {}), {"mine"}) == ["budget_used"]
    declined = Verdict(kind=Kind.UNSUPPORTED)
    assert reached_now(both, Checked(case, "", {"mine": declined, "peer": near, "other": near}, {}), {"mine"}) == []
