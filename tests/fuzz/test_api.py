"""The library: what the command line does, called from Python."""

import re
import threading
import time
from pathlib import Path

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.coverage_counts import Coverage
from kernel_assay.fuzz import api
from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.cli.commands import PLACES, Commands
from kernel_assay.fuzz.settings import seconds_of
from kernel_assay.kernels.sandbox.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
RIGHT = """
import numpy as np
OP = "silu"


def run(out, x):
    w = x.astype(np.float64)
    with np.errstate(over="ignore"):
        out[...] = w / (1 + np.exp(-w))
"""
WRONG = RIGHT + "    out.reshape(-1)[2:3] = 7\n"


class Memory:
    """A store that keeps everything in this process: what a run needs of one, and nothing more."""

    name = "memory"

    def __init__(self):
        self.records, self.found, self.journals, self.kept, self.held = {}, {}, {}, {}, set()

    def prepare(self):
        pass

    def runs(self):
        return sorted(self.records)

    def latest_unfinished(self):
        return next((c for c in self.records.values() if not c.finished), None)

    def hold(self, run):
        self.held.add(run)

    def start_run(self, campaign):
        self.checkpoint(campaign)

    def checkpoint(self, campaign):
        self.records[campaign.run] = campaign
        return 0

    def covered(self, record):
        return Coverage.read(self.read_journal(record.run, "coverage"), record.next_index)

    def journal(self, run, kind, record):
        self.journals.setdefault((run, kind), []).append(record)
        return 0

    def compact(self, run, kind, record):
        self.journals[run, kind] = [record]
        return 0

    def end_journal(self, run, kind):
        self.journals.pop((run, kind), None)

    def read_journal(self, run, kind):
        return self.journals.get((run, kind), [])

    def findings(self, op=None):
        return [f for f in self.found.values() if op in {None, f.case.op}]

    def regressions(self):
        return []

    def save_finding(self, finding):
        self.found[finding.id] = finding
        return finding

    amend = save_finding

    def has(self, finding):
        return finding.id in self.found

    def drop(self, finding):
        del self.found[finding.id]

    def kept_size(self, name):
        return 0

    def keep(self, name, kept):
        self.kept[name] = list(kept)


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A file with a kernel, in a folder of its own, which is the current one."""
    monkeypatch.chdir(tmp_path)

    def written(text, name="mine.py"):
        (tmp_path / name).write_text(text)
        return name

    return written


def settings(*subjects, **more):
    usual = {"subjects": subjects, "peers": ("none",), "cases": 64, "seed": 1, "after_seconds": 5.0}
    return api.RunSettings(**{**usual, **more})


def test_any_store_will_do_and_the_events_tell_a_run_in_its_order(kernel):
    store, heard = Memory(), []
    result = api.run(settings(kernel(WRONG)), store=store, on_event=heard.append)
    assert result.failed
    assert {f.subject.key for f in result.findings} == {"silu/mine"}
    assert {f.id for f in result.findings} == set(store.found)
    assert store.records[result.campaign.run].finished
    kinds = [type(event) for event in heard]
    assert (kinds[0], kinds[-1]) == (api.RunStarted, api.RunEnded)
    assert kinds.index(api.BatchJudged) < len(kinds) - 1
    assert kinds.index(api.FailureMet) < kinds.index(api.FindingFiled)
    filed = {event.finding.id for event in heard if isinstance(event, api.FindingFiled)}
    assert {f.id for f in result.findings} <= filed
    last = [event for event in heard if isinstance(event, api.BatchJudged)][-1]
    assert (last.cases, last.cases_left, last.judged) == (64, 0, result.campaign.judged)
    assert last.by_subject["silu/mine"]["mismatch"] > 0


def test_a_right_kernel_is_no_news_and_nothing_is_printed(kernel, capfd):
    with api.Store("corpus") as store:
        result = api.run(settings(kernel(RIGHT), cases=32), store=store)
    assert not result.failed
    assert (result.findings, result.pending, result.untested) == ((), (), "")
    result.verify()
    assert capfd.readouterr() == ("", "")


def test_what_a_listener_raises_ends_the_run_with_care_and_reaches_the_caller(kernel):
    store = Memory()

    def listen(event):
        if isinstance(event, api.BatchJudged):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        api.run(settings(kernel(WRONG), cases=100_000), store=store, on_event=listen)
    (campaign,) = store.records.values()
    assert not campaign.finished
    result = api.run(settings(cases=64), store=store, resume=True)
    assert result.campaign.run == campaign.run
    assert result.failed


def test_another_thread_stops_a_run_which_goes_on_when_it_is_resumed(kernel):
    stop, began = api.Stop(), threading.Event()
    store = Memory()

    def listen(event):
        if isinstance(event, api.BatchJudged):
            began.set()

    ender = threading.Thread(target=lambda: (began.wait(60), stop.ask()))
    ender.start()
    begin = time.monotonic()
    cut = api.run(settings(kernel(RIGHT), cases=1_000_000), store=store, on_event=listen, stop=stop)
    ender.join()
    assert time.monotonic() - begin < 60
    assert not cut.campaign.finished
    more = api.run(settings(cases=cut.campaign.cases + 32), store=store, resume=True)
    assert (more.campaign.finished, more.campaign.cases) == (True, cut.campaign.cases + 32)


@pytest.mark.parametrize("changed", [False, True])
def test_a_run_that_goes_on_loads_all_beforehand_only_if_a_file_has_changed(kernel, monkeypatch, changed):
    store, own, probes = Memory(), kernel(RIGHT), []
    cut = api.run(settings(own, cases=64), store=store)
    store.checkpoint(cut.campaign.but(finished=False))
    probe = Sandbox.probe
    monkeypatch.setattr(Sandbox, "probe", lambda *words: probes.append(words) or probe(*words))
    if changed:
        Path(own).write_text(WRONG)
    more = api.run(settings(cases=96), store=store, resume=True)
    assert (bool(probes), more.failed) == (changed, changed)
    assert more.campaign.cases == 96


def test_who_is_killed_in_the_first_second_does_not_begin_anew(kernel):
    store, recorded = Memory(), []
    store.checkpoint = lambda campaign: recorded.append(campaign) or 0
    api.run(settings(kernel(RIGHT), cases=96), store=store)
    assert [c.cases for c in recorded if c.cases and not c.finished][:1] == [32], "the first batch, at once"


def test_a_run_in_another_thread_than_the_main_one(kernel):
    results = []
    own = kernel(WRONG)
    worker = threading.Thread(target=lambda: results.append(api.run(settings(own), store=Memory())))
    worker.start()
    worker.join(120)
    assert results[0].failed


def test_what_was_stopped_before_it_began_leaves_nothing(kernel):
    stop, store = api.Stop(), Memory()
    stop.ask()
    with pytest.raises(api.CancelledError):
        api.run(settings(kernel(RIGHT)), store=store, stop=stop)
    assert (store.records, store.found) == ({}, {})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"seconds": 1.0, "cases": 2}, "seconds and cases exclude one another"),
        ({"seconds": 0.0}, "seconds must be above 0"),
        ({"seconds": float("nan")}, "seconds must be above 0"),
        ({"cases": 0}, "cases must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"engine": "magic"}, "engine 'magic' is not known"),
        ({"jobs": 0}, "jobs must be at least 1"),
        ({"jobs": 10**9}, "jobs must be at most 4096"),
        ({"seed": 10**26}, "seed must be at most 9223372036854775807"),
    ],
)
def test_settings_that_make_no_sense_are_refused(words, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        api.RunSettings(**words)


@pytest.mark.parametrize("words", [{"timeout": 0.0}, {"memory_mb": 1}, {"timeout": float("nan")}])
def test_a_sandbox_in_which_nothing_could_run_is_refused(words):
    with pytest.raises(UsageError, match="must be at least"):
        api.SandboxLimits(**words)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ops": ("sofmax",), "subjects": ()}, "sofmax"),
        ({"device": "tpu"}, "device 'tpu'"),
        ({"dtypes": ("float17",)}, "float17"),
        ({"base": Path("nowhere")}, "nowhere is no folder"),
    ],
)
def test_what_cannot_be_searched_is_one_sentence(kernel, more, said):
    with pytest.raises(UsageError, match=said):
        api.run(settings(kernel(RIGHT), **more), store=Memory())


def test_a_finding_is_replayed_shrunk_and_seen_to_be_fixed(kernel):
    with api.Store("corpus") as store:
        api.run(settings(kernel(WRONG)), store=store)
        (first,) = api.replay(store=store)[:1]
        assert first.outcome is api.Outcome.FAILS
        (shrunk,) = api.shrink(first.item.finding.id, store=store, seconds=5.0)
        assert shrunk.finding.case.elements <= first.item.case.elements
        kernel(RIGHT)
        assert {r.outcome for r in api.replay(store=store)} == {api.Outcome.FIXED}
        assert api.shrink(shrunk.finding.id, store=store, seconds=1.0) == []


def test_every_number_of_a_narrow_type_is_proved(kernel):
    with api.Store("corpus") as store:
        proof = api.prove("silu", kernel(RIGHT), dtypes=("float16",), store=store)
        assert proof.holds
        assert store.proof_path(proof).exists()
    assert not api.prove("silu", kernel(WRONG, "wrong.py"), dtypes=("float16",)).holds


def test_the_help_names_every_command_in_its_own_words(capsys):
    for name, place in PLACES.items():
        command = Commands().get_command(None, name)
        assert command is not None
        assert command.help.split()[0] == place.summary.split()[0], name
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert [name for name in PLACES if f"  {name} " not in out] == []


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("1.5s", 1.5), ("5m", 300.0), (" 8 h ", 28800.0)])
def test_lengths_of_time(text, seconds):
    assert seconds_of(text) == seconds
