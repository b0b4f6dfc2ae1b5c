"""What people decide about findings: what is kept for good, what may fail for a while, and that neither hides news."""

import json
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from _command import refused
from _silu import finding_of, right

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.findings import State
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store, load_record
from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.triage.lifecycle import expect_failure, expect_pass, promote

RIGHT = right("float32")
WRONG = RIGHT + "    out[:, 7:8] = 5\n"
WORSE = WRONG + "    out[:, 3:4] = np.nan\n"
RAISES = RIGHT + "    if x.shape[1] > 7:\n        raise RuntimeError('no')\n"
TODAY = datetime.now(UTC).date()
TOMORROW, YESTERDAY = (TODAY + timedelta(days=1)).isoformat(), (TODAY - timedelta(days=1)).isoformat()
SHORT = ("--subject", "mine.py", "--peer", "none", "--cases", "32", "--seed", "1", "--quiet")
CASE = Case(
    op="silu", tensors={"x": TensorRecipe(shape=(1, 8), dtype="float32", fill=Fill(distribution="ones", seed=3))}
)


def today():
    """Asked for anew, as all tests together may run into the next day."""
    return datetime.now(UTC).date().isoformat()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with a faulty kernel."""
    monkeypatch.chdir(tmp_path)
    kernel(WRONG)


def kernel(text):
    Path("mine.py").write_text(text)


@pytest.fixture
def store():
    with Store(Path("corpus")) as made:
        yield made


@pytest.fixture(scope="module")
def filed(tmp_path_factory):
    """A finding as a run would file it, of a kernel in another folder."""
    path = tmp_path_factory.mktemp("made") / "mine.py"
    path.write_text(WRONG)
    return finding_of(path, CASE)


@pytest.fixture
def found(filed, store):
    """The same, stored, of the kernel in this folder."""
    return store.save_finding(filed.but(subject=filed.subject.but(path=str(Path("mine.py").resolve()))))


def committed(store):
    return [finding for _, finding in store.regressions()]


def standings(summary="x.json"):
    """What a run's summary says: kind -> (standing, whether it is news)."""
    return {f["kind"]: (f["standing"], f["news"]) for f in json.loads(Path(summary).read_text())["findings"]}


# promote


def test_what_is_promoted_is_kept_without_the_local_memory(fuzz, store, found):
    code, out, err = fuzz("promote", found.id[:8])
    assert (code, err) == (0, "")
    path = Path(out.removeprefix("promoted: ").strip())
    assert path.is_relative_to("corpus/regressions/silu")
    assert load_record(path).id == found.id
    shutil.rmtree("corpus/local")
    code, out, _ = fuzz("replay")
    assert (code, "fails: silu/mine" in out) == (1, True)
    kernel(RIGHT)
    code, out, _ = fuzz("replay")
    assert (code, "does not fail any more: silu/mine" in out) == (0, True)


def test_an_open_bug_stays_open_and_says_that_it_was_promoted(store, found):
    promote(store, found)
    for kept in (*committed(store), store.finding(found.id)):
        assert (kept.state, kept.history[-1].what, kept.history[-1].state) == (State.OPEN, "promoted", State.OPEN)
        assert kept.history[:-1] == found.history
    assert store.finding(found.id).count == found.count


def test_a_fixed_one_guards_from_then_on(fuzz, store, found):
    kernel(RIGHT)
    assert fuzz("replay")[0] == 0
    fuzz("promote", found.id)
    assert [f.state for f in committed(store)] == [State.REGRESSION]
    code, out, _ = fuzz("replay")
    assert (code, "passes: silu/mine" in out) == (0, True)
    kernel(WRONG)
    assert fuzz("replay")[0] == 1


def test_promoted_twice_is_one_file(fuzz, store, found):
    first = fuzz("promote", found.id)[1]
    assert fuzz("promote", found.id)[1] == first
    assert len(committed(store)) == 1
    assert [e.what for e in committed(store)[0].history].count("promoted") == 2


def test_several_are_promoted_at_once(fuzz, store, found):
    other = store.save_finding(found.but(signature=found.signature.but(error_pattern="other")))
    code, out, _ = fuzz("promote", found.id, other.id)
    assert (code, out.count("promoted: ")) == (0, 2)
    assert {f.id for f in committed(store)} == {found.id, other.id}


def test_what_never_showed_again_cannot_guard_anything(fuzz, store, found):
    path = Path(f"corpus/local/findings/silu/{found.id}.json")
    path.write_text(path.read_text().replace('"probability": 1.0', '"probability": 0.0'))
    refused(fuzz("promote", found.id), found.id, "never failed again")
    assert committed(store) == []
    assert [e.what for e in store.finding(found.id).history] == ["found by r1:0"]


@pytest.mark.parametrize("words", [("promote", "nobody"), ("promote",), ("promote", "corpus")])
def test_what_cannot_be_promoted_is_refused(fuzz, found, words):
    refused(fuzz(*words))


@pytest.mark.parametrize("command", ["promote", "expect-failure"])
def test_an_id_that_is_two_is_refused(fuzz, store, found, command):
    others = (found.but(signature=found.signature.but(error_pattern=f"p{n}")) for n in range(40))
    twin = next(f for f in others if f.id[0] == found.id[0])
    store.save_finding(twin)
    refused(fuzz(command, found.id[0], *(("--reason", "x") if command != "promote" else ())), found.id, twin.id)


def test_promoting_again_does_not_undo_what_others_committed(fuzz, store, found):
    """A colleague said that it may fail, and committed that; here it is met, and promoted."""
    promote(store, found)
    path, theirs = store.regressions()[0]
    path.write_text(json.dumps(theirs.but(expect="fail", reason="issue 7", expires=TOMORROW).plain()))
    fuzz("promote", found.id)
    kept = committed(store)[0]
    assert (kept.expect, kept.reason, kept.expires) == ("fail", "issue 7", TOMORROW)


# an expected failure


def test_a_reason_and_a_date_are_stored_everywhere(fuzz, store, found):
    promote(store, found)
    code, out, err = fuzz("expect-failure", found.id[:8], "--reason", "issue 7", "--until", TOMORROW)
    assert (code, err) == (0, "")
    assert out == f"{found.id}: expected to fail until {TOMORROW}: issue 7\n"
    for kept in (*committed(store), store.finding(found.id)):
        assert (kept.expect, kept.reason, kept.expires) == ("fail", "issue 7", TOMORROW)
        assert kept.history[-1].what == f"expected to fail until {TOMORROW}: issue 7"


def test_without_a_date_it_is_for_good(fuzz, store, found):
    code, out, _ = fuzz("expect-failure", found.id, "--reason", "issue 7")
    assert (code, out) == (0, f"{found.id}: expected to fail: issue 7\n")
    assert store.finding(found.id).expected(date(9999, 12, 31))


def test_the_last_day_is_included(store, found):
    kept = expect_failure(store, found, "issue 7", today())
    day = date.fromisoformat(kept.expires)
    assert kept.expected()
    assert kept.expected(day)
    assert not kept.expected(day + timedelta(days=1))
    assert kept.expired(day + timedelta(days=1))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--reason"),
        (("--reason", ""), "--reason"),
        (("--reason", "  \n"), "--reason"),
        (("--until", TOMORROW), "--reason"),
        (("--reason", "x", "--until", "soon"), "'soon' is no date; write it as "),
        (("--reason", "x", "--until", "31.12.2099"), "'31.12.2099' is no date"),
        (("--reason", "x", "--until", "2099-02-30"), "'2099-02-30' is no date"),
        (("--reason", "x", "--until", YESTERDAY), f"{YESTERDAY} is over"),
    ],
    ids=["none", "empty", "blank", "a date", "no date", "another form", "no such day", "over"],
)
def test_an_expectation_that_says_nothing_is_refused(fuzz, store, found, words, said):
    refused(fuzz("expect-failure", found.id, *words), said)
    assert store.finding(found.id) == found


def test_a_finding_nobody_knows_is_refused(fuzz, found):
    refused(fuzz("expect-failure", "nobody", "--reason", "x"), "'nobody'")


def test_replay_fails_as_expected_until_the_day_is_over(fuzz, store, found):
    kept = expect_failure(store, found, "issue 7", today())
    code, out, _ = fuzz("replay")
    assert (code, "fails as expected: silu/mine" in out) == (0, True)
    store.amend(kept.but(expires=YESTERDAY))
    code, out, _ = fuzz("replay")
    assert (code, "fails, and is no longer expected to: silu/mine" in out) == (1, True)


def test_replay_says_that_it_started_to_pass(fuzz, store, found):
    expect_failure(store, found, "issue 7", "")
    kernel(RIGHT)
    code, out, _ = fuzz("replay")
    assert code == 0
    assert "started to pass: silu/mine" in out
    assert "1 replayed: 1 started to pass" in out
    assert store.finding(found.id).state is State.FIXED
    assert "passes: silu/mine" in fuzz("replay")[1]


def test_a_committed_one_starts_to_pass_until_somebody_says_that_it_shall(fuzz, store, found):
    promote(store, found)
    expect_failure(store, store.finding(found.id), "issue 7", "")
    kernel(RIGHT)
    for _ in range(2):
        assert "started to pass: silu/mine" in fuzz("replay")[1]
    fuzz("expect-failure", found.id, "--clear")
    fuzz("promote", found.id)
    code, out, _ = fuzz("replay")
    assert (code, "passes: silu/mine" in out) == (0, True)
    kernel(WRONG)
    assert fuzz("replay")[0] == 1


def test_another_failure_is_not_the_expected_one(fuzz, store, found):
    """It was wrong, and may be; now it raises."""
    expect_failure(store, found, "issue 7", "")
    kernel(RAISES)
    code, out, _ = fuzz("replay")
    assert "raised: it raised RuntimeError: no" in out
    assert code == 1


def test_in_ci_it_is_skipped_and_not_failed(fuzz, store, found):
    expect_failure(store, found, "issue 7", "")
    assert fuzz("replay", "--junit", "x.xml")[0] == 0
    root = ET.parse("x.xml").getroot()
    assert [len(list(root.iter(tag))) for tag in ("testcase", "skipped", "failure")] == [1, 1, 0]


def test_it_can_be_taken_back(fuzz, store, found):
    promote(store, found)
    expect_failure(store, store.finding(found.id), "issue 7", TOMORROW)
    assert fuzz("replay")[0] == 0
    code, out, _ = fuzz("expect-failure", found.id, "--clear")
    assert (code, out) == (0, f"{found.id}: its failure is news again\n")
    for kept in (*committed(store), store.finding(found.id)):
        assert (kept.expect, kept.reason, kept.expires) == ("pass", "", "")
        assert kept.history[-1].what == "expected to pass"
    assert fuzz("replay")[0] == 1


def test_a_later_meeting_does_not_take_it_back(store, found):
    expect_failure(store, found, "issue 7", TOMORROW)
    met = store.save_finding(found.but(count=3))
    assert (met.expect, met.reason, met.expires) == ("fail", "issue 7", TOMORROW)
    assert met.count == found.count + 3


def test_what_is_only_committed_can_be_expected_too(fuzz, store, found):
    promote(store, found)
    shutil.rmtree("corpus/local")
    assert fuzz("expect-failure", found.id, "--reason", "issue 7")[0] == 0
    assert fuzz("replay")[0] == 0
    assert store.findings() == []
    expect_pass(store, store.finding(found.id))
    assert fuzz("replay")[0] == 1


def test_the_list_says_what_is_expected(fuzz, store, found):
    kept = expect_failure(store, found, "issue 7", today())
    assert "new, expected" in fuzz("list", "findings")[1]
    store.amend(kept.but(expires=YESTERDAY))
    assert "new, expectation expired" in fuzz("list", "findings")[1]
    expect_pass(store, kept)
    assert "expect" not in fuzz("list", "findings")[1]


def test_a_date_that_was_edited_by_hand_is_refused(fuzz, store, found):
    promote(store, found)
    path, _ = store.regressions()[0]
    raw = json.loads(path.read_text())
    path.write_text(json.dumps({**raw, "expect": "fail", "expires": "next week"}))
    refused(fuzz("replay", path), str(path), "expires")


def test_a_reason_is_a_sentence_for_people(store, found):
    with pytest.raises(UsageError, match="needs a reason"):
        expect_failure(store, found, "\t", "")
    kept = expect_failure(store, found, "größer als 1 \N{BUG}", "")
    assert store.finding(found.id).reason == kept.reason == "größer als 1 \N{BUG}"


# later runs


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A folder in which a run found the bug."""
    home = tmp_path_factory.mktemp("ran")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        kernel(WRONG)
        assert main(["run", *SHORT]) == 1
    return home


@pytest.fixture
def known(ran, store):
    """Its findings, all of which may fail; here they are those of the kernel in this folder."""
    shutil.copytree(ran / "corpus", "corpus")
    for path in Path("corpus/local/findings").rglob("*.json"):
        path.write_text(path.read_text().replace(str(ran), str(Path.cwd())))
    found = store.findings()
    assert {f.verdict.kind for f in found} <= {Kind.MISMATCH, Kind.NONFINITE}
    return [expect_failure(store, f, "issue 7", today()) for f in found]


def test_a_later_run_counts_what_is_expected_and_does_not_fail(fuzz, store, known):
    before = {f.id: f.count for f in known}
    code, out, _ = fuzz("run", *SHORT, "--json", "x.json")
    assert code == 0
    assert "expected to fail" in out
    assert set(standings().values()) == {("expected to fail", False)}
    after = {f.id: f.count for f in store.findings()}
    assert set(after) == set(before)
    assert all(after[i] > before[i] for i in before)
    assert json.loads(Path("x.json").read_text())["failing"] == sum(after[i] - before[i] for i in before)
    assert all((f.expect, f.reason) == ("fail", "issue 7") for f in store.findings())


def test_a_day_later_they_count_again(fuzz, store, known):
    for f in known:
        store.amend(f.but(expires=YESTERDAY))
    code, _, _ = fuzz("run", *SHORT, "--json", "x.json")
    assert code == 1
    assert set(standings().values()) == {("expectation expired", True)}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (WORSE, "nonfinite"),
        pytest.param(
            WRONG + "    out[1:, :1] = -3\n",
            "mismatch",
            marks=pytest.mark.xfail(
                strict=True,
                reason="both shrink to one wrong element at the end, so they are one finding until the old bug is"
                " repaired, of which replay then tells",
            ),
        ),
        (WRONG + "    if x.shape[0] == 2:\n        raise RuntimeError('no')\n", "raised"),
    ],
    ids=["of another kind", "of the same kind", "instead of it"],
)
def test_a_new_bug_beside_an_expected_one_is_found(fuzz, store, known, text, kind):
    kernel(text)
    assert fuzz("run", *SHORT, "--cases", "96", "--json", "x.json")[0] == 1
    told = json.loads(Path("x.json").read_text())["findings"]
    news = [f for f in told if f["news"]]
    assert {f["standing"] for f in news} == {"new"}
    assert kind in {f["kind"] for f in news}
    assert not {f["finding"] for f in news} & {f.id for f in known}
    assert all(f["standing"] == "expected to fail" for f in told if not f["news"])


def test_taken_back_they_are_news_in_the_next_run(fuzz, store, known):
    for f in known:
        fuzz("expect-failure", f.id, "--clear")
    assert fuzz("run", *SHORT, "--json", "x.json")[0] == 1
    assert all(news for _, news in standings().values())


def test_a_fresh_clone_knows_what_was_committed(fuzz, store, known):
    for f in known:
        promote(store, f)
    shutil.rmtree("corpus/local")
    code, _, _ = fuzz("run", *SHORT, "--json", "x.json")
    assert code == 0
    assert set(standings().values()) == {("expected to fail", False)}


def test_what_others_committed_counts_although_it_was_met_here_before(fuzz, store, known):
    """A pull brings the expectation; the local finding is older."""
    for f in known:
        promote(store, f)
        path = Path(f"corpus/local/findings/silu/{f.id}.json")
        path.write_text(json.dumps(f.but(expect="pass", reason="", expires="").plain()))
    assert fuzz("replay")[0] == 0
    assert fuzz("run", *SHORT)[0] == 0


def test_siblings_of_which_nothing_was_said_are_named(fuzz, store, found):
    twin = found.but(signature=found.signature.but(dtype="float16"))
    store.save_finding(twin)
    assert f"siblings, most often the same bug: {twin.id}" in fuzz("expect-failure", found.id, "--reason", "issue 7")[2]
    assert f"siblings, most often the same bug: {twin.id}" in fuzz("promote", found.id)[2]
    assert fuzz("promote", twin.id)[2] == ""
