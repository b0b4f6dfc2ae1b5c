"""Stored cases are run again, and what has changed is said: nothing else."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from _silu import RIGHT

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.campaign import RunOptions
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.findings import State
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.campaign.search import Limits, Search
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.planning.plan import new_campaign
from kernel_assay.fuzz.planning.regenerate import case_of_run
from kernel_assay.fuzz.replay.replay import Item, Outcome, _remember, gather, moved, replay
from kernel_assay.fuzz.triage.failures import Failure
from kernel_assay.fuzz.triage.triage import as_met
from kernel_assay.kernels.boundary.devices import Place
from kernel_assay.kernels.catalog import subjects_of, user_subject

ROOT = Path(__file__).resolve().parents[2]
CASES = 128
CLEAN = next(s for s in subjects_of("silu") if s.name == "numpy_float32")
HEAD = 'import numpy as np\nOP = "silu"\n\ndef run(out, x):\n'
BODY = RIGHT.removeprefix(HEAD)
WRONG = RIGHT + "    if x.shape[1] > 4:\n        out[..., -1] = 5\n"
SHY = HEAD + '    raise NotImplementedError("not today")\n'


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A corpus with the findings of a short run of a faulty kernel, beside a clean one."""
    home = tmp_path_factory.mktemp("made")
    (home / "mine.py").write_text(WRONG)
    mine = user_subject(str(home / "mine.py"), ())
    with Store(home / "corpus") as store, Examiner([mine, CLEAN]) as examiner:
        store.prepare()
        campaign = new_campaign("r1", 5, "conjecture", [mine, CLEAN], RunOptions(timeout=5.0))
        store.start_run(campaign)
        Search(examiner, store, campaign, Limits(600.0, CASES)).run()
        assert store.findings()
    return home


@pytest.fixture
def home(made, tmp_path):
    """A copy of it whose kernel may be edited."""
    shutil.copytree(made / "corpus", tmp_path / "corpus")
    (tmp_path / "mine.py").write_text(WRONG)
    for path in (tmp_path / "corpus" / "local" / "findings").rglob("*.json"):
        path.write_text(path.read_text().replace(str(made), str(tmp_path)))
    path = tmp_path / "corpus" / "local" / "runs" / "r1" / "campaign.json"
    path.write_text(path.read_text().replace(str(made), str(tmp_path)))
    return tmp_path


@pytest.fixture
def store(home):
    with Store(home / "corpus") as opened:
        yield opened


def first(store):
    return store.findings()[0]


def outcomes(store, *targets, files=()):
    return replay(gather(store, targets, UserKernels(files)), store, timeout=5.0, memory_mb=512)


def edit(home, text):
    (home / "mine.py").write_text(text)


def command(home, *words):
    return main(["replay", "--corpus", str(home / "corpus"), *map(str, words)])


def test_what_failed_fails(home, store, capsys):
    results = outcomes(store)
    assert len(results) == len(store.findings())
    assert {r.outcome for r in results} == {Outcome.FAILS}
    assert command(home) == 1
    assert "fails: silu/mine" in capsys.readouterr().out


def test_what_was_repaired_is_fixed_and_stays_so(home, store, capsys):
    edit(home, RIGHT)
    assert {r.outcome for r in outcomes(store)} == {Outcome.FIXED}
    assert {f.state for f in store.findings()} == {State.FIXED}
    assert {r.outcome for r in outcomes(store)} == {Outcome.PASSES}
    assert command(home) == 0
    assert "passes" in capsys.readouterr().out


def test_what_breaks_again_is_a_regression(home, store):
    edit(home, RIGHT)
    outcomes(store)
    edit(home, WRONG)
    assert {r.outcome for r in outcomes(store)} == {Outcome.FAILS}
    assert {f.state for f in store.findings()} == {State.REGRESSION}
    assert command(home) == 1


def test_a_subject_runs_where_it_is_told(home, store, capsys, monkeypatch):
    items = gather(store, ())
    assert [i.subject.device for i in moved(items, "")] == ["cpu"] * len(items)
    assert command(home, "--device", "cuda") == 2
    assert "there is no CUDA device" in capsys.readouterr().err
    monkeypatch.setattr("kernel_assay.fuzz.checking.selection.places_of", lambda device: [Place(device)])
    monkeypatch.setattr("kernel_assay.fuzz.checking.selection._runs_on_gpu", lambda _: True)
    there = moved(items, "cuda")
    assert {i.subject.device for i in there} == {"cuda"}
    assert {i.subject.device for i in moved(there, "cpu")} == {"cpu"}


def test_what_passes_on_another_device_is_not_fixed(home, store):
    edit(home, RIGHT)
    for here in replay(gather(store, ()), None, timeout=5.0, memory_mb=512):
        assert here.outcome is Outcome.FIXED
        there = replace(here.item, subject=here.item.subject.but(device="cuda"))
        _remember(store, replace(here, item=there))
    assert State.FIXED not in {f.state for f in store.findings()}


def committed(store, **changes):
    path = store.promote(first(store))
    finding = first(store).but(**changes)
    record = json.loads(path.read_text())
    record.update(finding.but(state=record["state"]).plain())
    path.write_text(json.dumps(record))
    return path


def test_an_open_bug_fails_as_expected_until_it_starts_to_pass(home, store, capsys):
    path = committed(store, expect="fail")
    assert [r.outcome for r in outcomes(store, str(path))] == [Outcome.FAILS_AS_EXPECTED]
    assert command(home, path) == 0
    edit(home, RIGHT)
    assert [r.outcome for r in outcomes(store, str(path))] == [Outcome.STARTED_TO_PASS]
    assert command(home, path) == 0
    assert "started to pass" in capsys.readouterr().out


def test_other_input_bytes_are_drift_and_nothing_is_concluded(home, store, capsys):
    path = committed(store, input_digest="0" * 32)
    assert [r.outcome for r in outcomes(store, str(path))] == [Outcome.DRIFTED]
    assert command(home, path) == 1
    assert "recipe drifted" in capsys.readouterr().out


def test_what_declines_cannot_be_told(home, store):
    edit(home, SHY)
    assert {r.outcome for r in outcomes(store)} == {Outcome.NOT_TOLD}
    assert {f.state for f in store.findings()} != {State.FIXED}
    assert command(home) == 0


def test_another_file_can_be_tried_on_a_finding_and_changes_nothing_stored(home, store):
    edit(home, WRONG)
    other = home / "other.py"
    other.write_text(RIGHT)
    results = outcomes(store, first(store).id, files=(str(other),))
    assert [(r.item.subject.name, r.verdict.kind) for r in results] == [("other", Kind.PASS)]
    assert first(store).state is not State.FIXED


def test_findings_are_named_by_the_beginning_of_their_id(home, store):
    found = first(store)
    assert [r.item.case.id for r in outcomes(store, found.id[:7])] == [found.case.id]
    with pytest.raises(UsageError, match="ffffffff"):
        gather(store, ["ffffffff"])


def test_bare_cases_and_folders_are_run_by_the_house(home, store):
    folder = home / "cases"
    folder.mkdir()
    for number, finding in enumerate(store.findings()[:2]):
        (folder / f"{number}.json").write_text(json.dumps(finding.case.plain()))
    items = gather(store, [str(folder)])
    assert {i.subject.name for i in items} >= {"numpy_float32"}
    assert {i.case.id for i in items} == {f.case.id for f in store.findings()[:2]}
    with pytest.raises(UsageError):
        gather(store, [str(home / "no_such.json")])
    (home / "empty").mkdir()
    with pytest.raises(UsageError, match=r"no \.json file"):
        gather(store, [str(home / "empty")])


def test_a_subject_that_is_gone_is_named(home, store):
    (home / "mine.py").unlink()
    with pytest.raises(UsageError, match="does not exist; name it with --subject"):
        gather(store, [])


def test_every_case_of_a_run_can_be_made_again_fresh_or_mutated(store):
    campaign = store.load_run("r1")
    met = {f.found_by: f.original.id for f in store.findings()}
    for found_by, case_id in met.items():
        run, _, index = found_by.partition(":")
        assert case_of_run(store, run, int(index))[0].id == case_id
    assert met
    elites = store.read_journal("r1", "elites")
    assert elites
    ids = {case_of_run(store, "r1", i)[0].id for i in range(0, CASES, 3)}
    assert len(ids) > 20
    for said in elites:
        case, subjects = case_of_run(store, "r1", said["index"])
        assert f"|{case.dtype}|" in said["cell"]
        assert {s.name for s in subjects} == {"mine", "numpy_float32"}
    with pytest.raises(UsageError, match=f"there is no number {CASES}"):
        case_of_run(store, "r1", campaign.next_index)
    with pytest.raises(UsageError, match="no run 'r9'"):
        case_of_run(store, "r9", 0)


def test_an_elite_of_a_run_has_the_error_it_was_admitted_for(store):
    """The strongest word on mutated cases: the same ratio comes out, so the same bytes went in."""
    elites = [e for e in store.read_journal("r1", "elites") if e["cell"].split("|")[1] == CLEAN.key]
    late = sorted(elites, key=lambda e: e["batch"])[-8:]
    assert max(e["batch"] for e in late) > 2
    with Examiner([CLEAN]) as examiner:
        for said in late:
            case = case_of_run(store, "r1", said["index"])[0]
            assert examiner.check([CheckRequest(case, (CLEAN.key,))])[0].verdicts[CLEAN.key].rho == said["rho"]


def test_a_case_of_a_run_is_replayed_by_its_number(home, store, capsys):
    found_by = first(store).found_by
    assert command(home, found_by) == 1
    out = capsys.readouterr().out
    assert "fails: silu/mine" in out
    assert "passes: silu/numpy_float32" in out


def test_junit_is_xml_with_one_case_a_replay(home, store):
    path = home / "out.xml"
    assert command(home, "--junit", path) == 1
    root = ET.parse(path).getroot()
    assert len(list(root.iter("testcase"))) == len(store.findings())
    assert len(list(root.iter("failure"))) == len(store.findings())


def test_junit_stays_xml_whatever_a_subject_says(home, store):
    edit(home, HEAD + '    raise ValueError("<&\\x00\\x1b]]>")\n')
    path = home / "out.xml"
    assert command(home, "--junit", path) == 1
    assert list(ET.parse(path).getroot().iter("failure"))


def test_json_alone_on_standard_output(home, store, capsys):
    assert command(home, "--json", "-") == 1
    rows = json.loads(capsys.readouterr().out)
    assert {r["outcome"] for r in rows} == {"fails"}
    assert all(r["kind"] in {"mismatch", "nonfinite"} and r["message"] and not r["good"] for r in rows)


def test_an_empty_corpus_is_no_failure(tmp_path, capsys):
    (tmp_path / "corpus").mkdir()
    assert command(tmp_path) == 0
    assert "nothing to replay" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (
            TensorRecipe(shape=(2,), dtype="float32"),
            "x has shape (2,), which does not fit the axes (rows, cols) of silu",
        ),
        (TensorRecipe(shape=(2, 2), dtype="float32", layout="spiral"), "layout 'spiral' is not known"),
    ],
)
def test_a_case_that_cannot_be_is_named_before_anything_runs(tmp_path, capsys, recipe, said):
    (tmp_path / "corpus").mkdir()
    case = Case(op="silu", tensors={"x": recipe})
    assert command(tmp_path, case.token) == 2
    assert capsys.readouterr().err.startswith(f"kassay: the case {case.token[:40]!r}: {said}")


def test_a_flaky_finding_is_run_often_enough(home, store):
    edit(home, 'import numpy as np\nOP = "silu"\nN = [0]\n\ndef run(out, x):\n    N[0] += 1\n' + BODY
         + "    if N[0] // 2 % 5 == 4:\n        out[...] = 5\n")  # fmt: skip
    finding = store.save_finding(first(store).but(probability=0.2, case=first(store).original, input_digest=""))
    item = gather(store, [finding.id])[0]
    often = item.__class__(item.name, finding.original, item.subject, finding.but(probability=0.2, input_digest=""))
    assert replay([often], None, timeout=5.0, memory_mb=512)[0].outcome is Outcome.FAILS
    once = item.__class__(item.name, finding.original, item.subject, finding.but(probability=1.0, input_digest=""))
    assert isinstance(replay([once], None, timeout=5.0, memory_mb=512)[0].verdict, Verdict)


def test_what_never_showed_again_is_not_fixed_when_it_does_not_show(home, store):
    """Nor is a seeded bug lost with it, whose other failures are meant."""
    finding = first(store)
    subject = finding.subject.but(planted="mismatch")
    never, planted = finding.but(probability=0.0), finding.but(probability=0.0, subject=subject)

    def said(finding):
        [result] = replay([Item("it", finding.case, finding.subject, finding)], store, timeout=5.0, memory_mb=512)
        return result.outcome, result.good

    assert [said(f) for f in (never, planted)] == [(Outcome.FAILS, False), (Outcome.FAILS_AS_EXPECTED, True)]
    edit(home, RIGHT)
    assert [said(f) for f in (never, planted)] == [(Outcome.NOT_TOLD, True)] * 2
    assert {f.state for f in store.findings()}.isdisjoint({State.FIXED})
    assert said(planted.but(probability=0.5)) == (Outcome.STARTED_TO_PASS, False)
    edit(home, RIGHT + "    out[...] = np.nan\n")
    assert [said(f) for f in (never, planted)] == [(Outcome.FAILS, False), (Outcome.FAILS_AS_EXPECTED, True)]
    assert said(planted.but(probability=0.5)) == (Outcome.FAILS, False)


def test_what_nobody_saw_fail_alone_is_not_fixed_when_it_passes_alone(tmp_path):
    """It fails from its ninth call on, and there was no time to see that: its file is as it was."""
    path = tmp_path / "late.py"
    path.write_text(f"{RIGHT}    CALLS.append(1)\n    if len(CALLS) > 8:\n        out[...] = 9\nCALLS = []\n")
    late = user_subject(str(path), ())
    case = Case(op="silu", tensors={"x": TensorRecipe(shape=(2, 3), dtype="float32")})
    with Examiner([late]) as examiner:
        verdict = examiner.check([CheckRequest(case, (late.key,))] * 20)[-1].verdicts[late.key]
    finding = as_met(Failure(case, late, verdict)).finding
    assert (verdict.failed, finding.state) == (True, State.NEW)
    with Store(tmp_path / "corpus") as store:
        store.prepare()
        (result,) = replay([Item("it", case, late, finding)], store, timeout=5.0, memory_mb=512)
        assert (result.verdict.kind, result.outcome) == (Kind.PASS, Outcome.NOT_TOLD)
        path.write_text(RIGHT)
        mended = user_subject(str(path), ())
        (result,) = replay([Item("it", case, mended, finding)], store, timeout=5.0, memory_mb=512)
        assert result.outcome is Outcome.FIXED


def test_two_files_of_one_name_are_two_subjects(home, store):
    other = home / "elsewhere"
    other.mkdir()
    (other / "mine.py").write_text(RIGHT)
    finding = first(store)
    twin = finding.but(
        subject=finding.subject.but(path=str(other / "mine.py")), signature=finding.signature.but(index_pattern="other")
    )
    store.save_finding(twin)
    results = {r.item.subject.path: r.verdict.kind for r in outcomes(store, finding.id, twin.id)}
    assert results == {str(home / "mine.py"): Kind.MISMATCH, str(other / "mine.py"): Kind.PASS}


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--strict",), 1)])
def test_what_may_still_be_there_counts_with_strict(home, store, capsys, words, code):
    path = committed(store, probability=0.0)
    edit(home, RIGHT)
    assert command(home, path, *words) == code
    said = capsys.readouterr()
    assert "cannot be told: silu/mine" in said.out
    assert ("1 may still be there: exit code 1 with --strict" in said.err) is (code == 0)


def test_what_is_repaired_or_declined_is_no_matter_of_strict(home, store):
    edit(home, SHY)
    assert command(home, "--strict") == 0
    edit(home, RIGHT)
    assert command(home, "--strict") == 0
