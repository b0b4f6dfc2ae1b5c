"""Large cases end to end: every fault earns the verdict that it earns in a small case, and the whole is never made."""

import tracemalloc
from pathlib import Path
from random import Random

import pytest

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.findings import State
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.checking import large_check, large_policy, requests
from kernel_assay.fuzz.checking.check import Examiner, all_laws
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.subjects import fitting
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.fuzz.generation.model_shapes import seed_cases
from kernel_assay.fuzz.replay.replay import Item, Outcome, replay_one
from kernel_assay.fuzz.triage import triage
from kernel_assay.fuzz.triage.failures import Failure
from kernel_assay.fuzz.triage.shrinker import Shrinker, shrink
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.oracles.catalog import contract_of

FAULTS = {p.stem: user_subject(str(p), ()) for p in sorted((Path(__file__).parents[1] / "faults").glob("*.py"))}
UNSEEN = {"returns_cached"}
"""Faults of small cases only: of a large one no result is held until the next is there."""
SILU = {s.name: s for s in subjects_of("silu")}
PEER = SILU["numpy_float32"]
ROWS, COLS = 700, 901
WORD = f"of {ROWS * COLS} elements of out, 4096 judged by the oracle, as a sample"
RIGHT = "    w = x.astype(np.float64)\n    out[...] = (w / (1.0 + np.exp(-w))).astype(x.dtype)\n"


@pytest.fixture(autouse=True)
def lowered(monkeypatch):
    """Everything above a megabyte is large."""
    monkeypatch.setattr(large_policy, "LARGE", 1 << 20)


def silu(*shape, seed=1, **fields):
    fill = Fill(distribution="normal", seed=seed)
    return Case(op="silu", tensors={"x": TensorRecipe(shape=shape, dtype="float32", fill=fill, **fields)})


CASE = silu(ROWS, COLS)


@pytest.fixture
def kernel(tmp_path):
    """A kernel of silu that is right but for what the given lines do to it."""

    def write(name, lines="", before=""):
        path = tmp_path / f"{name}.py"
        path.write_text(f'import time\nimport numpy as np\nOP = "silu"\n\n\ndef run(out, x):\n{before}{RIGHT}{lines}')
        return user_subject(str(path), ())

    return write


def asked(case, *subjects, laws=(), **settings):
    with Examiner(subjects, **{"timeout": 5.0, **settings}) as examiner:
        return examiner.check([CheckRequest(case, tuple(s.key for s in subjects), laws)])[0]


@pytest.fixture(scope="module")
def faulty():
    with Examiner([PEER, *FAULTS.values()], timeout=0.7, memory_mb=256) as made:
        yield made


def test_which_cases_are_large():
    contract = contract_of("silu")
    assert large_policy.bytes_of(contract, CASE) == 8 * ROWS * COLS
    assert large_policy.is_large(contract, CASE)
    assert not large_policy.is_large(contract, silu(300, 436))
    assert large_policy.is_large(contract, silu(300, 437))
    product = seed_cases(contract_of("gemm"), Random(1).randint, 1 << 30)
    last = list(product)[-1]
    assert (
        large_policy.patience(contract_of("gemm"), last)
        > large_policy.bytes_of(contract_of("gemm"), last) / large_policy.BANDWIDTH
        > 1
    )


def test_one_that_no_part_is_small_enough_of_is_judged_in_full(monkeypatch):
    monkeypatch.setattr("kernel_assay.oracles.large.parts.MOST", 1)
    assert not large_policy.is_large(contract_of("silu"), CASE)


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_earns_its_verdict(faulty, name):
    fault, other = FAULTS[name], silu(3, 5)
    checked = faulty.check([CheckRequest(CASE, (PEER.key, fault.key)), CheckRequest(other, (PEER.key,))])
    assert [c.case.id for c in checked] == [CASE.id, other.id]
    assert checked[0].verdicts[PEER.key].kind is checked[1].verdicts[PEER.key].kind is Kind.PASS
    verdict = checked[0].verdicts[fault.key]
    assert verdict.kind == (Kind.PASS if name in UNSEEN else fault.planted or Kind.PASS), verdict
    assert checked[0].input_digest == ""
    assert checked[1].input_digest


def test_one_wrong_element_in_the_middle_is_found_beside_a_peer_and_only_there(kernel):
    wrong = kernel("wrong", "    out[345, 678] += 1\n")
    alone = asked(CASE, wrong).verdicts[wrong.key]
    assert (alone.kind, [s.text for s in alone.shares]) == (Kind.PASS, [WORD])
    for order in ((wrong, PEER), (PEER, wrong)):
        said = asked(CASE, *order).verdicts
        assert said[PEER.key].kind is Kind.PASS
        assert said[wrong.key].kind is Kind.MISMATCH
        assert said[wrong.key].message.startswith("out[345, 678] is ")
        assert said[wrong.key].blame == "wrong differs from the others; numpy_float32 agrees with the oracle"
        assert all(v.shares[0].peer == ROWS * COLS for v in said.values())


def test_a_peer_that_turns_out_wrong_is_replaced(kernel):
    wrong, other = kernel("wrong", "    out[345, 678] += 1\n"), kernel("other", "    out[123, 456] += 1\n")
    third = SILU["torch_silu"] if "torch_silu" in SILU else next(s for n, s in SILU.items() if n != PEER.name)
    said = asked(CASE, wrong, PEER, other, third).verdicts
    assert {k: v.kind is Kind.PASS for k, v in said.items()} == {
        wrong.key: False,
        PEER.key: True,
        other.key: False,
        third.key: True,
    }


def test_a_wrong_last_row_is_found_by_the_sample_alone(kernel):
    wrong = kernel("wrong", "    out[-1] = 7\n")
    verdict = asked(CASE, wrong).verdicts[wrong.key]
    assert (verdict.kind, verdict.signature.index_pattern) == (Kind.MISMATCH, "one_row")
    assert f"out[{ROWS - 1}, " in verdict.message


def test_several_that_fail_alike_are_told_so(kernel):
    pair = [kernel(name, "    out[-1] = 7\n") for name in ("one", "two")]
    said = asked(CASE, *pair).verdicts
    assert {v.blame for v in said.values()} == {"oracle split: one and two agree with one another against the oracle"}


@pytest.mark.parametrize("layout", ["offset_one", "transposed", "broadcast"])
def test_every_layout_and_special_value_passes_and_a_wrong_one_does_not(kernel, layout):
    case = silu(ROWS, COLS, layout=layout, specials=(Special(value="nan", place="one_column"),))
    wrong = kernel("wrong", "    out[np.isnan(out)] = 1\n")
    said = asked(case, wrong, PEER).verdicts
    assert (said[wrong.key].kind, said[PEER.key].kind) == (Kind.NONFINITE, Kind.PASS)


@pytest.mark.parametrize("op", ["gemm", "softmax", "silu", "attention", "qgemm", "rope"])
def test_right_subjects_pass_and_every_element_is_compared(op):
    contract, random = contract_of(op), Random(op)
    while True:
        case, _ = generate(Target(contract, memory=1 << 21), random)
        big = [c for c in seed_cases(contract, random.randint, 1 << 23) if large_policy.is_large(contract, c)]
        case = next((c for c in big if all(t.layout != "broadcast" for t in c.tensors.values())), None)
        if case is not None:
            break
    ours = [s for s in subjects_of(op) if s.backend in {"numpy", "torch"} and not s.planted]
    chosen = [s for s in ours if s.key in fitting(ours, case)][:4]
    checked = asked(case, *chosen, laws=all_laws(case), timeout=60.0)
    assert {v.kind for v in checked.verdicts.values()} <= {Kind.PASS, Kind.UNSUPPORTED}
    passed = [v for v in checked.verdicts.values() if v.kind is Kind.PASS]
    assert len(passed) >= 2
    assert checked.laws == 0
    for share in (s for v in passed for s in v.shares):
        assert 0 < share.sampled + share.full <= share.of == share.peer
        assert share.algebra == 0


def test_the_supervisor_never_makes_the_whole(kernel, monkeypatch):
    case = silu(2048, 4096)
    mine = kernel("mine")
    monkeypatch.setattr(requests, "materialize_all", lambda case: pytest.fail("the whole was made"))
    with Examiner([mine, PEER]) as examiner:
        tracemalloc.start()
        checked = examiner.check([CheckRequest(case, (mine.key, PEER.key))] * 3)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert {v.kind for c in checked for v in c.verdicts.values()} == {Kind.PASS}
    output = 4 * 2048 * 4096
    assert peak < 2 * output + (3 * output) + (64 << 20)  # two outputs, one more being received, slabs of peers


def test_other_inputs_than_the_judge_sees_are_our_own_fault(monkeypatch):
    monkeypatch.setattr(large_check, "rows_digest", lambda case: "0" * 32)
    with pytest.raises(InternalError, match="ran on other input rows than the oracle saw"):
        asked(CASE, PEER)


def test_a_case_that_the_worker_has_no_room_for_is_declined():
    said = asked(silu(4096, 4096), PEER, memory_mb=150).verdicts[PEER.key]
    assert said.kind is Kind.UNSUPPORTED
    assert "do not fit into the memory limit" in said.message


def test_a_large_case_gets_more_time(kernel, monkeypatch):
    monkeypatch.setattr(large_policy, "BANDWIDTH", 1 << 21)
    assert 2.0 < large_policy.patience(contract_of("silu"), CASE) < 2.5
    slow, hangs = kernel("slow", before="    time.sleep(0.2)\n"), FAULTS["hangs"]
    assert asked(CASE, slow, timeout=0.3).verdicts[slow.key].kind is Kind.PASS
    assert asked(silu(3, 5), slow, timeout=0.3).verdicts[slow.key].kind is Kind.TIMEOUT
    assert "no result within 2.7" in asked(CASE, hangs, timeout=0.3).verdicts[hangs.key].message


def test_a_close_look_shows_elements_where_they_are_and_keeps_no_outputs(kernel):
    wrong = kernel("wrong", "    out[-1] = 7\n")
    with Examiner([wrong, PEER]) as examiner:
        look = examiner.look(CASE, wrong.key)
        shown = look.exhibit
        assert (look.kept, shown.picture, shown.shape) == (None, None, (ROWS, COLS))
        assert shown.failing == 64
        assert {e.index[0] for e in shown.elements} == {ROWS - 1}
        assert {e.index[1] for e in shown.elements} >= {0}
        passing = examiner.look(CASE, PEER.key)
        assert (passing.verdict.kind, passing.exhibit.elements) == (Kind.PASS, ())


def test_what_only_a_peer_has_shown_is_seen_again(kernel, monkeypatch):
    """Beside another peer, at the place alone, and by a replay of what was filed."""
    monkeypatch.setattr(triage, "LARGE_SECONDS", 1.0)
    wrong = kernel("wrong", "    out[345, 678] += 1\n")
    with Examiner([wrong, PEER]) as examiner:
        verdict = examiner.check([CheckRequest(CASE, (wrong.key, PEER.key))])[0].verdicts[wrong.key]
        alone = examiner.check([CheckRequest(CASE, (wrong.key,))])[0]
        assert (list(alone.verdicts), alone.verdicts[wrong.key].kind) == ([wrong.key], Kind.MISMATCH)
        failure = Failure(CASE, wrong, verdict, "r:0")
        found = triage.investigate(examiner, failure, seconds=1.0).finding
    assert (found.probability, found.verdict.kind) == (1.0, Kind.MISMATCH)
    assert [e.index for e in found.exhibit.elements] == [(345, 678)]
    with Examiner([wrong]) as examiner:
        look = examiner.look_at(CASE, wrong.key, verdict)
        assert (look.verdict.kind, [e.index for e in look.exhibit.elements]) == (Kind.MISMATCH, [(345, 678)])
        again = replay_one(examiner, Item("again", found.case, wrong, found))
        assert again.outcome is Outcome.FAILS
        assert again.verdict.message.startswith("out[345, 678] is ")


def test_a_failure_shrinks_to_an_ordinary_case(kernel):
    wide = kernel("wide", "    if x.shape[1] > 200:\n        out[:, -1] = 7\n")
    with Examiner([wide]) as examiner:
        verdict = examiner.check([CheckRequest(CASE, (wide.key,))])[0].verdicts[wide.key]
        small = shrink(Shrinker(examiner, wide.key, verdict), CASE)
    assert small.case.tensors["x"].shape == (1, 201)
    assert (small.verdict.kind, small.verdict.shares) == (Kind.MISMATCH, ())
    assert small.input_digest


def test_a_search_finds_shrinks_and_shows_a_bug_of_large_shapes(tmp_path, monkeypatch, kernel, fuzz):
    monkeypatch.chdir(tmp_path)
    wide = kernel("wide", "    if x.shape[1] > 4096:\n        out[:, -1] = 7\n")
    options = ["--peer", "none", "--cases", 192, "--seed", 3, "--quiet", "--case-memory", 4]
    code, out, err = fuzz("run", "silu", "--subject", wide.path, *options)
    assert code == 1, err
    with Store(tmp_path / "corpus") as store:
        found = store.findings()
    assert {f.verdict.kind for f in found} <= {Kind.MISMATCH, Kind.NONFINITE}
    assert any(f.state is State.MINIMIZED and f.case.tensors["x"].shape == (1, 4097) for f in found), out


@pytest.fixture
def kept(kernel, tmp_path, monkeypatch):
    """A large case that fails, as a token, and the kernel."""
    monkeypatch.chdir(tmp_path)
    return CASE.token, kernel("wrong", "    out[-1] = 7\n").path


def test_one_that_is_not_small_is_shown_and_replayed(kept, fuzz, tmp_path):
    token, path = kept
    code, out, _ = fuzz("show", token, "--subject", path)
    assert code == 0
    assert f"judged    {WORD}" in out
    assert f"[{ROWS - 1}, 0]" in out
    code, out, _ = fuzz("replay", token, "--subject", path)
    assert code == 1
    assert "out[699, " in out


def test_what_passes_says_how_much_was_judged(kept, fuzz, kernel):
    code, out, _ = fuzz("show", kept[0], "--subject", kernel("right").path)
    assert code == 0
    assert WORD in out
