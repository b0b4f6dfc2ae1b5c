"""Compared with a base: what fails there, too, is known; what the base does right, or fails otherwise, is news."""

import json
import shutil
from pathlib import Path

import pytest
from _silu import RIGHT, finding_of

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.findings import State
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.checking.check import all_laws
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.replay.baseline import beside_base, known_on_base, subject_on
from kernel_assay.fuzz.replay.replay import Outcome, gather, replay
from kernel_assay.kernels.catalog import subjects_of, user_subject

ROOT = Path(__file__).resolve().parents[2]
WRONG = RIGHT + "    out[..., -1:] = 5\n"
WRONG_OTHERWISE = RIGHT + "    if x.size:\n        raise RuntimeError('no')\n"
CASE = Case(op="silu", tensors={"x": TensorRecipe(shape=(2, 3), dtype="float32", fill=Fill(distribution="ones"))})
BOX = {"timeout": 5.0, "memory_mb": 512}
SHORT = ("--cases", "32", "--seed", "1", "--quiet", "--peer", "none")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The working tree, with the faulty kernel; the base lies beside it."""
    work = tmp_path / "work tree"
    (work / "my").mkdir(parents=True)
    (work / "my" / "mine.py").write_text(WRONG)
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def base(here):
    made = here.parent / "base"
    made.mkdir()
    return made


def put(base, text, path="my/mine.py"):
    (base / path).parent.mkdir(parents=True, exist_ok=True)
    (base / path).write_text(text)


@pytest.fixture
def finding(here):
    return finding_of("my/mine.py", CASE)


def known(finding, base):
    return bool(known_on_base([finding], base, **BOX))


# the base's corpus


@pytest.fixture
def no_runs(monkeypatch):
    monkeypatch.setattr(
        "kernel_assay.fuzz.replay.baseline.Examiner", lambda *a, **k: pytest.fail("the base's kernel was run")
    )


@pytest.mark.parametrize("where", ["findings", "regressions"])
def test_what_the_bases_corpus_has_is_known_where_its_kernel_cannot_be_run(base, finding, no_runs, where):
    with Store(base / "corpus") as store:
        if where == "findings":
            store.save_finding(finding)
        else:
            store.promote(finding.but(expect="fail", reason="a reason"))
    assert known_on_base([finding], base, **BOX) == {finding.id}


def test_a_signature_met_before_shrinking_is_known_too(base, finding, no_runs):
    twin = finding.but(signature=finding.signature.but(index_pattern="one_row"), aliases=(finding.signature.key,))
    with Store(base / "corpus") as store:
        store.save_finding(twin)
    assert known(finding, base)


def test_what_the_bases_kernel_does_right_is_known_by_no_record(base, finding):
    """Another bug of the same signature is there, and excuses nothing."""
    put(base, RIGHT)
    with Store(base / "corpus") as store:
        store.save_finding(finding)
    assert not known(finding, base)


def test_another_signature_is_not(base, finding):
    with Store(base / "corpus") as store:
        store.save_finding(finding.but(signature=finding.signature.but(error_pattern="nan"), aliases=()))
    assert not known(finding, base)


@pytest.mark.parametrize("state", [State.FIXED, State.REGRESSION])
def test_what_was_fixed_on_the_base_is_not_known_there(base, finding, state):
    put(base, RIGHT)
    with Store(base / "corpus") as store:
        if state is State.FIXED:
            store.save_finding(finding.but(state=state))
        else:
            store.promote(finding.but(state=state))
    assert not known(finding, base)


# the base's kernel


def test_a_base_that_fails_in_the_same_way_knows(base, finding):
    put(base, WRONG)
    assert known(finding, base)


def test_a_base_that_fails_a_little_differently_knows(base, finding):
    """Another pattern, the same kind and dtype: as shrinking takes two failures for one."""
    put(base, RIGHT + "    out[...] = np.nan\n" * 0 + "    out[...] = 7\n")
    assert known(finding, base)


@pytest.mark.parametrize(
    "text",
    [RIGHT, WRONG_OTHERWISE, WRONG.replace("run", "go"), WRONG.replace("(out, x)", "(out, x, y)"),
     "import no_such_module\n" + WRONG, RIGHT + "    out[...] = np.nan\n"],
    ids=["right", "raises", "other name", "other arguments", "no import", "nan"],
)  # fmt: skip
def test_a_base_that_is_right_or_fails_in_another_way_does_not(base, finding, text):
    put(base, text)
    assert not known(finding, base)


@pytest.mark.parametrize(
    "text", ["def run(out, x) pass\n", 'DTYPES = ("float33",)\n' + WRONG, 'PLANTED = "no"\n' + WRONG]
)
def test_a_base_whose_file_makes_no_sense_does_not(base, finding, text):
    put(base, text)
    assert not known(finding, base)


def test_a_base_without_the_file_does_not(base, finding):
    assert not known(finding, base)
    put(base, WRONG, "mine.py")
    assert not known(finding, base)


def test_a_base_that_is_no_folder_is_refused(here, finding):
    (here / "file").write_text("")
    for name in ("nowhere", "file"):
        with pytest.raises(UsageError, match=f"the base {name} is no folder"):
            known_on_base([finding], Path(name), **BOX)
    with pytest.raises(UsageError, match="no folder"):
        known_on_base([], Path("nowhere"), **BOX)


def test_several_findings_are_told_apart(base, here, finding):
    (here / "my" / "new.py").write_text(WRONG)
    put(base, WRONG)
    other = finding_of("my/new.py", CASE)
    assert known_on_base([finding, other], base, **BOX) == {finding.id}


def test_a_function_of_a_file_is_the_same_function_there(here, base):
    both = WRONG + RIGHT.partition('"silu"\n')[2].replace("run", "other")
    put(here, both)
    put(base, both.replace("out[..., -1:] = 5", "pass") + "    out[..., -1:] = 5\n")
    assert not known(finding_of("my/mine.py:run", CASE), base)
    put(base, both)
    assert known(finding_of("my/mine.py:run", CASE), base)


def test_a_broken_law_is_asked_for(here, base):
    """Right by itself; wrong in memory that does not begin at a multiple of 256, as the law `moved` tries it."""
    text = RIGHT + "    if x.__array_interface__['data'][0] % 256:\n        out[...] *= 2\n"
    put(here, text)
    broken = finding_of("my/mine.py", CASE, law="moved")
    assert broken.verdict.law == "moved"
    put(base, RIGHT)
    assert not known(broken, base)
    put(base, text)
    assert known(broken, base)


# where the subject lies


def test_a_house_subject_is_looked_up_by_its_place_in_the_project(base):
    subject = next(s for s in subjects_of("silu") if s.name == "bug_tail")
    assert not Path(subject.path).is_absolute()
    assert subject_on(subject, base) is None
    put(base, (ROOT / subject.path).read_text(), subject.path)
    there = subject_on(subject, base)
    assert (there.key, Path(there.path)) == (subject.key, base / subject.path)
    one = TensorRecipe(shape=(1, 1), dtype="float32", fill=Fill(distribution="ones"))
    assert known(finding_of(subject, Case(op="silu", tensors={"x": one})), base)


def test_a_subject_from_outside_of_the_working_folder_is_not_there(tmp_path, base):
    put(tmp_path / "elsewhere", WRONG)
    put(base, WRONG)
    outside = user_subject(str(tmp_path / "elsewhere" / "my" / "mine.py"), ())
    assert subject_on(outside, base) is None


def test_a_base_may_be_named_relative_to_the_working_folder(base, finding):
    put(base, WRONG)
    assert known(finding, Path("../base"))


def test_the_subject_there_has_the_name_of_the_one_here(here, base):
    put(base, WRONG)
    here_one = user_subject("my/mine.py:run", ())
    assert here_one.name == "mine:run"
    assert subject_on(here_one, base).key == here_one.key


# the commands


def test_run_does_not_count_what_the_base_has(fuzz, base):
    put(base, WRONG)
    words = ("run", "--subject", "my/mine.py", *SHORT, "--base", base)
    code, out, _ = fuzz(*words, "--json", "x.json")
    assert code == 0
    assert "known on the base" in out
    told = json.loads(Path("x.json").read_text())["findings"]
    assert told
    assert {(f["standing"], f["news"]) for f in told} == {("known on the base", False)}
    put(base, RIGHT)
    code, out, _ = fuzz(*words)
    assert code == 1
    assert "known on the base" not in out


def test_replay_does_not_count_what_the_base_has(fuzz, here, base, finding):
    with Store(here / "corpus") as store:
        store.save_finding(finding)
    put(base, RIGHT)
    assert fuzz("replay", "--base", base)[0] == 1
    put(base, WRONG)
    code, out, _ = fuzz("replay", "--base", base)
    assert code == 0
    assert Outcome.KNOWN_ON_BASE.value in out
    put(here, RIGHT)
    code, out, _ = fuzz("replay", "--base", base)
    assert (code, Outcome.FIXED.value in out) == (0, True)


@pytest.mark.parametrize("command", [("run", "--subject", "my/mine.py", *SHORT), ("replay",)])
def test_no_folder_is_one_sentence(fuzz, command):
    code, out, err = fuzz(*command, "--base", "nowhere")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "nowhere is no folder" in err


def test_no_folder_is_noticed_before_the_search(fuzz, here):
    fuzz("run", "--subject", "my/mine.py", *SHORT, "--base", "nowhere")
    with Store(here / "corpus") as store:
        assert store.runs() == []


def test_a_regression_that_is_committed_fails_if_the_base_is_right(fuzz, here, base, finding):
    with Store(here / "corpus") as store:
        store.promote(finding.but(state=State.FIXED))
    shutil.copytree(here / "corpus", base / "corpus")
    put(base, RIGHT)
    assert fuzz("replay")[0] == 1
    assert fuzz("replay", "--base", base)[0] == 1


def test_a_failure_that_became_another_one_is_not_known(here, base, finding):
    """It was wrong, and is on the base; now it raises."""
    with Store(here / "corpus") as store:
        store.save_finding(finding)
        put(base, WRONG)
        put(here, WRONG_OTHERWISE)
        results = replay(gather(store, []), store, **BOX)
    assert [r.outcome for r in beside_base(results, base, **BOX)] == [Outcome.FAILS]


def test_a_bare_case_is_compared_as_well(here, base, finding):
    put(base, WRONG)
    with Store(here / "corpus") as store:
        items = gather(store, [finding.case.token], UserKernels(["my/mine.py"]))
        results = replay(items, None, **BOX)
    assert [r.outcome for r in results] == [Outcome.FAILS]
    assert [r.outcome for r in beside_base(results, base, **BOX)] == [Outcome.KNOWN_ON_BASE]


def test_laws_of_bare_cases_do_not_disturb(base, finding):
    put(base, WRONG)
    assert all_laws(finding.case)
    assert known(finding, base)
