"""Kernels and references of the same names in several folders, and one corpus: nobody's findings are another's."""

import pytest

from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.oracles.catalog import forget_contracts
from kernel_assay.reports.bugs import grouped

pytestmark = pytest.mark.usefixtures("no_references")
REFERENCE = 'import numpy as np\n\n\ndef total(x: "float32[rows, cols] -4..4"):\n    return x.sum(1)\n'
WRONG = {"p": "x[:, :-1].sum(1)", "q": "x[:, 1:].sum(1)"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    for folder, formula in WRONG.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ref.py").write_text(REFERENCE)
        (tmp_path / folder / "mine.py").write_text(f"import numpy\n\n\ndef run(x):\n    return {formula}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def searched(here, fuzz):
    def go(reference, kernel):
        forget_contracts()
        words = ("--reference", f"{reference}/ref.py:total", "--subject", f"{kernel}/mine.py")
        return fuzz("run", *words, "--cases", "32", "--seed", "1", "--quiet")[0]

    return go


def states(here):
    return {(f.case.op, f.subject.path.split("/")[-2]): f.state for f in Store(here / "corpus").findings()}


@pytest.mark.parametrize("reference", ["p", "q"])
def test_a_kernel_of_another_folder_has_findings_of_its_own(here, fuzz, searched, reference):
    ops = {"p": ("total", "total"), "q": ("total", "total_2")}[reference]
    kernels = list(zip(ops, WRONG, strict=True))
    assert (searched("p", "p"), searched(reference, "q"), searched(reference, "q")) == (1, 1, 1)
    found = Store(here / "corpus").findings()
    assert {(f.case.op, f.subject.path.split("/")[-2]) for f in found} == {*kernels}
    assert len({f.id for f in found}) == len(found)
    assert len(grouped(found, lambda _: True)) == 2
    (here / "q" / "mine.py").write_text("import numpy\n\n\ndef run(x):\n    return x.sum(1)\n")
    forget_contracts()
    assert fuzz("replay")[0] == 1, "all of it, in one go"
    after = states(here)
    assert after[kernels[1]] == "fixed"
    assert after[kernels[0]] != "fixed", "that file is as wrong as before"


def test_a_kernel_that_has_moved_keeps_its_findings(here, searched):
    assert searched("p", "p") == 1
    before = {f.id for f in Store(here / "corpus").findings()}
    (here / "p").rename(here / "moved")
    assert searched("moved", "moved") == 1
    assert {f.id for f in Store(here / "corpus").findings()} == before
