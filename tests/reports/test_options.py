"""A corpus that was named and is not there: without a word it would look as if nothing had been found."""

import sys

import pytest

from kernel_assay.reports.__main__ import main


@pytest.fixture
def reports(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["reports", *words])
        return main(), capsys.readouterr()

    return call


@pytest.mark.parametrize(("name", "said"), [("nowhere", "does not exist"), ("notes.txt", "is no folder")])
def test_a_corpus_that_was_named_must_be_there(reports, tmp_path, name, said):
    (tmp_path / "notes.txt").write_text("")
    code, told = reports("--corpus", name)
    assert (code, told.out) == (2, "")
    assert told.err == f"reports: the corpus {name} {said}; name a folder in which a run has left something\n"


def test_a_corpus_that_was_not_named_or_is_empty_is_another_matter(reports, tmp_path):
    (tmp_path / "there").mkdir()
    for words, folder in (((), "corpus"), (("--corpus", "there"), "there")):
        code, told = reports(*words)
        assert (code, told.err) == (2, f"reports: there is nothing to report in {folder}: no run and no finding\n")
