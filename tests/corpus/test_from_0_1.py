"""A corpus that version 0.1 wrote, from before the modules moved: it is read, replayed and resumed."""

import shutil
from pathlib import Path

import pytest

from kernel_assay.corpus.storage.file_store import Store
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
