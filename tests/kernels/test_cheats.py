"""Who cheats is told of by the act; who is honest, and does the same for good reasons, is not."""

import re
import sys
from pathlib import Path

import pytest

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.user_references import add_reference
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.kernels.worker import witness as module
from kernel_assay.kernels.worker.tampering import Change
from kernel_assay.kernels.worker.witness import Witness
from kernel_assay.oracles.catalog import forget_contracts

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts" / "bench"))

from _cheats import FOLDER, HEADS, Entry, entries  # noqa: E402  where it lies is known by now

ENTRIES = {f"{e.theme} {e.op}: {e.name}": e for e in entries()}
PAGE = (ROOT / "docs" / "cheats.md").read_text("utf-8")
_LINES = re.findall(r"^\| (\w+: [^|]+?) \| ([^|]+?) \| `([^|]+)` \|$", PAGE, re.MULTILINE)
ROWS = {title: verdict for title, verdict, _ in _LINES}
"""Kernels of the page's tables, and their verdicts."""
SHOWN = {title: file for title, _, file in _LINES}
"""The same, and the file that shows it."""
ACTS = [t for t, e in ENTRIES.items() if e.op != "mine" and ROWS.get(f"{e.op}: {e.name}") == "cheated"]
ADDRESS = "kept silu: kept by address"
LATE = [t for t in ENTRIES if t.startswith("late softmax: a ") and "thread" not in t]
NORMAL = Fill(distribution="normal", seed=1)
SHAPES = {
    "silu": {"x": (3, 5)},
    "softmax": {"x": (3, 5)},
    "gemm": {"a": (3, 8), "b": (8, 5)},
    "scaled": {"x": (3, 5), "w": (5,)},
}


def case_of(op, fill=NORMAL):
    tensors = {k: TensorRecipe(shape=shape, dtype="float32", fill=fill) for k, shape in SHAPES[op].items()}
    contract = {"softmax": {"scale": 1.0}}
    return Case(op=op, tensors=tensors, attrs=contract.get(op, {}))


@pytest.fixture
def subject_at(tmp_path):
    """Write a kernel of the catalogue."""
    return lambda entry: user_subject(str(entry.written(tmp_path)), ())


def own(source, op="silu", name="own"):
    return Entry("test", op, name, source)


def verdicts_of(*subjects, times=1):
    case = case_of(subjects[0].op)
    with Examiner(subjects, timeout=5.0) as examiner:
        checked = examiner.check([CheckRequest(case, tuple(s.key for s in subjects))] * times)
    return [[c.verdicts[s.key] for c in checked] for s in subjects]


def verdict_of(subject, times=1):
    return verdicts_of(subject, times=times)[0][-1]


def test_the_page_names_every_cheat_of_the_catalogue_once():
    titles = [f"{e.op}: {e.name}" for e in ENTRIES.values() if not e.honest]
    assert len(titles) == len(set(titles)) >= 50
    assert sorted(ROWS) == sorted(titles)
    assert sum(e.honest for e in ENTRIES.values()) >= 60
    assert len(ACTS) >= 30


def test_the_page_names_the_file_that_shows_a_cheat():
    """A test, where there is one; else the file of the catalogue, which the bench reads."""
    near = (ROOT / "tests" / "fuzz" / "test_near_repeats.py").read_text("utf-8")
    here = {*ACTS, ADDRESS, *LATE, *(t for t, e in ENTRIES.items() if e.op == "mine" and not e.honest)}
    shown = {}
    for title, entry in ENTRIES.items():
        file = "test_cheats.py" if title in here else "test_near_repeats.py" if title in near else f"{entry.theme}.txt"
        shown |= {} if entry.honest else {f"{entry.op}: {entry.name}": file}
    assert shown == SHOWN
    assert sum(file == "test_near_repeats.py" for file in shown.values()) == 5


@pytest.mark.parametrize("title", ACTS)
def test_an_act_is_told_of_with_its_line(subject_at, title):
    said = verdict_of(subject_at(ENTRIES[title]), times=14)
    assert said.kind is Kind.CHEATED
    assert re.search(r"\(cheat\.py, line \d+\)$|(is_same_size|MagicMock)$", said.message)


@pytest.mark.parametrize("op", ["silu", "softmax", "gemm"])
def test_nobody_honest_is_refused(subject_at, op):
    """Each in a file of its own, all in one process."""
    honest = [e for e in ENTRIES.values() if e.honest and e.op == op]
    subjects = [subject_at(e).but(name=f"honest_{n}") for n, e in enumerate(honest)]
    found = verdicts_of(*subjects, times=3)
    wrong = {
        s.path: v.message for s, seen in zip(subjects, found, strict=True) for v in seen if v.kind is not Kind.PASS
    }
    assert wrong == {}


def test_a_peer_is_not_accused_of_what_another_did(subject_at):
    cheat = subject_at(ENTRIES["patched silu: a clock that stands still"])
    peer = next(s for s in subjects_of("silu") if s.name == "numpy_float32")
    mine, other = verdicts_of(cheat, peer, times=3)
    assert {v.kind for v in mine} == {Kind.CHEATED}
    assert {v.kind for v in other} == {Kind.PASS}


def test_a_helper_beside_the_kernel_is_the_kernels(subject_at, tmp_path):
    subject = subject_at(own("import clocks\n\n\ndef run(x):\n    return right(x)\n"))
    Path(subject.path).with_name("clocks.py").write_text("import time\n\ntime.time = lambda: 0\n")
    said = verdict_of(subject)
    assert said.kind is Kind.CHEATED
    assert "(clocks.py, line 3)" in said.message


def test_what_an_installed_library_exchanges_is_nobodys(subject_at):
    source = "import patching\n\n\ndef run(x):\n    return right(x)\n"
    beside = 'import sys\n\nsys.path.insert(0, __file__.replace("cheat.py", "site-packages"))\n'
    subject = subject_at(own(beside + source))
    library = Path(subject.path).with_name("site-packages")
    library.mkdir()
    (library / "patching.py").write_text("import time\n\ntime.sleep = lambda _: None\ntime.time = time.monotonic\n")
    assert verdict_of(subject).kind is Kind.PASS
    mine = Path(subject.path).read_text().replace("import patching", "import time\n\ntime.time = time.monotonic")
    Path(subject.path).write_text(mine)
    assert verdict_of(subject).kind is Kind.CHEATED


def test_an_act_in_a_later_call_is_seen_at_the_end_of_its_batch(subject_at):
    subject = subject_at(ENTRIES["patched silu: abs, put in place by the twelfth call"])
    assert [v.kind for v in verdicts_of(subject, times=4)[0]] == [Kind.PASS] * 4
    assert verdicts_of(subject, times=12)[0][-1].kind is Kind.CHEATED


def test_results_that_are_kept_by_address_are_found(subject_at):
    """Small cases lie in the same memory, so that a pointer comes again with other values."""
    subject = subject_at(ENTRIES[ADDRESS])
    cases = [case_of("silu", Fill(distribution="normal", seed=n)) for n in range(2)]
    with Examiner([subject]) as examiner:
        checked = examiner.check([CheckRequest(case, (subject.key,)) for case in cases])
    assert [c.verdicts[subject.key].kind for c in checked] == [Kind.PASS, Kind.MISMATCH]


@pytest.mark.parametrize("title", LATE)
def test_a_result_that_computes_later_is_none(subject_at, title):
    said = verdict_of(subject_at(ENTRIES[title]))
    assert said.kind is Kind.RAISED
    assert "a class that runs code whenever a tensor is looked at" in said.message


def test_a_reference_may_be_imported_and_not_called(tmp_path):
    """All in one process: it takes seconds to start that of the reference."""
    mine = [e for e in ENTRIES.values() if e.op == "mine"]
    first = mine[0].written(tmp_path)
    forget_contracts()
    add_reference(f"{first.with_name('problem.py')}:scaled")
    subjects = []
    for number, entry in enumerate(mine):
        path = first.with_name(f"mine_{number}.py")
        path.write_text(HEADS["mine"] + entry.source)
        subjects.append(user_subject(str(path), ()))
    found = verdicts_of(*subjects)
    forget_contracts()
    said = {entry.name: seen[0] for entry, seen in zip(mine, found, strict=True)}
    assert {v.kind for name, v in said.items() if ROWS.get(f"mine: {name}")} == {Kind.CHEATED}
    assert {v.kind for name, v in said.items() if not ROWS.get(f"mine: {name}")} == {Kind.PASS}
    assert said["the reference, imported and called"].message == "it calls the reference, scaled of problem.py"
    assert "reads the reference's source, problem.py (mine_" in said["the reference, read and executed"].message


def test_the_body_of_a_reference_that_is_a_class_is_no_call_of_it():
    witness = Witness({"mine/a": Path("/nowhere/a.py")}, ())
    witness._names, witness._current = {"/nowhere/ref.py": "Model"}, "mine/a"
    text = "class Model:\n    def forward(self):\n        return 1\n"
    seen = []
    for more in ("class Mine(Model): pass\n", "Model().forward()\n"):
        code = compile(text + more, "/nowhere/ref.py", "exec")
        sys.setprofile(witness._calls)
        try:
            exec(code, {"__name__": "ref"})
        finally:
            sys.setprofile(None)
        seen.append(witness.evidence("mine/a"))
    assert seen == ["", "it calls the reference, Model.forward of ref.py"]


def test_only_what_changed_while_a_subject_ran_alone_counts_without_its_code(monkeypatch):
    pending = []
    monkeypatch.setattr(module, "changes", lambda: [pending.pop() for _ in range(len(pending))])
    witness = Witness({"silu/a": Path("/nowhere/a.py")}, ())
    pending.append(Change("time.time", len))
    witness.begin("silu/a", closely=True)
    witness.look()
    assert witness.evidence("silu/a") == "", "it was so before"
    pending.append(Change("time.time", lambda: 0))
    witness.look()
    assert witness.evidence("silu/a") == "", "the code that took the place is another's"
    witness.begin("silu/a", closely=False)
    pending.append(Change("time.time", len))
    witness.look()
    assert witness.evidence("silu/a") == "", "others ran meanwhile"
    witness.begin("silu/a", closely=True)
    pending.append(Change("time.time", len))
    witness.look()
    assert witness.evidence("silu/a").endswith(": len")


def test_each_theme_has_its_file():
    assert {e.theme for e in ENTRIES.values()} == {p.stem for p in FOLDER.glob("*.txt")}
