"""A corpus that version 0.1 wrote, from before the modules moved: it is read, replayed and resumed."""

import shutil
from pathlib import Path

import pytest

from kernel_assay.corpus.model.exhaustive_result import Proof
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.corpus.storage.reading import read_record
from kernel_assay.fuzz.__main__ import main

OLD = Path(__file__).with_name("from_0_1")


@pytest.fixture
def corpus(tmp_path):
    shutil.copytree(OLD, tmp_path / "corpus")
    return tmp_path / "corpus"


def test_findings_and_regressions_fail_as_they_did(corpus, capsys):
    assert main(["replay", "--corpus", str(corpus)]) == 0
    out = capsys.readouterr().out
    assert out.count("fails as expected: ") == 4
    for name in ("bug_fast_exp", "bug_tail", "bug_cuda_no_tail", "bug_cuda_whole_tail"):
        assert f"fails as expected: silu/{name}" in out


def test_kept_outputs_are_judged_again(corpus, capsys):
    assert main(["analyze", "--corpus", str(corpus)]) == 0
    assert "3 judged again, 0 changed" in capsys.readouterr().out


def test_a_finding_is_shown(corpus, capsys):
    assert main(["show", "7e777695a3733314", "--corpus", str(corpus)]) == 0
    out = capsys.readouterr().out
    assert "silu/bug_cuda_whole_tail" in out
    assert "out_of_bounds" in out


def test_a_run_that_was_killed_is_resumed(corpus, capsys):
    with Store(corpus) as store:
        (run,) = store.runs()
        judged = store.load_run(run).next_index
    assert main(["run", "--resume", "--cases", "1150", "--quiet", "--corpus", str(corpus)]) == 0
    with Store(corpus) as store:
        assert store.load_run(run).next_index > judged > 0
    assert "findings: none" in capsys.readouterr().out


OWN = OLD.with_name("from_0_1_own")
INTERRUPTED, FINISHED = "20261124-071135-s3", "20261124-073533-s2"


@pytest.fixture
def own(tmp_path):
    """A corpus of somebody's own kernels, in whose records /home/you is where they lie."""
    shutil.copytree(OWN, tmp_path / "you")
    for path in (p for p in (tmp_path / "you").rglob("*") if p.suffix in {".json", ".jsonl"}):
        path.write_text(path.read_text("utf-8").replace("/home/you", str(tmp_path / "you")), "utf-8")
    return tmp_path / "you" / "corpus"


def test_findings_about_kernels_of_ones_own_fail_as_they_did(own, capsys):
    assert main(["replay", "--corpus", str(own)]) == 1
    out = capsys.readouterr().out
    assert out.count("fails: silu/silu_wrong") == 2
    assert "fails: silu/silu_keeps" in out
    assert "stateful: after 1 other case" in out
    assert "3 replayed: 3 fails" in out


def test_failures_that_nobody_had_looked_into_become_findings(own, capsys):
    with Store(own) as store:
        pending = {
            (one["subject"]["name"], one["verdict"]["kind"]) for one in store.read_journal(INTERRUPTED, "pending")
        }
    assert ("silu_wrong", "raised") in pending
    for path in (own / "local" / "findings" / "silu").glob("*.json"):
        path.unlink()
    assert main(["run", "--resume", "--cases", "96", "--quiet", "--corpus", str(own)]) == 1
    assert f"run {INTERRUPTED}" in capsys.readouterr().out
    with Store(own) as store:
        assert pending <= {(f.subject.name, f.verdict.kind.value) for f in store.findings()}
        assert store.load_run(INTERRUPTED).finished


def test_a_finished_run_is_told_of(own, capsys):
    assert main(["report", FINISHED, "--corpus", str(own)]) == 0
    out = capsys.readouterr().out
    assert "150 cases" in out
    assert "1. silu/silu_keeps: stateful (sequence)" in out


def test_proofs_and_seeds_are_read(own):
    proof = read_record(own / "local" / "proofs" / "silu" / "numpy_float32.json", Proof)
    assert proof.holds
    assert [(swept.case.dtype, swept.case.elements) for swept in proof.checked] == [("float16", 1 << 16)]
    with Store(own) as store:
        (seed,) = store.seeds("silu")
    assert (seed.tensors["x"].shape, seed.tensors["x"].fill.scale) == ((3, 5), 2.0)
