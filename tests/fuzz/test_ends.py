"""How runs end: in time, whatever their kernels do, whoever asks for it, and whoever reads what they say."""

import json
import os
import signal
import subprocess
import sys
import time
import types

import pytest
from _command import refused
from _silu import RIGHT

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.campaign import RunOptions
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.findings import Sanitized, State
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.campaign.clock import FILE, FLIGHT, STOP_SECONDS, Clock, Ended
from kernel_assay.fuzz.campaign.hang_allowance import Hangs
from kernel_assay.fuzz.campaign.search import Limits, Search
from kernel_assay.fuzz.campaign.triage_queue import TriageQueue
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import Checked
from kernel_assay.fuzz.planning.plan import new_campaign
from kernel_assay.kernels.catalog import user_subject

SLACK = 10.0
"""Seconds that a test on a busy machine may take longer; what is measured exactly is scripts/bench/budget."""
HANGS = RIGHT.replace("    w =", "    import time; time.sleep(1e6 * (x.shape[0] % 3 != 0))\n    w =")
MANY = RIGHT + "    if x.shape[0] % 2: raise ValueError(str(x.shape))\n    out.reshape(-1)[:3] = 7\n"


def started(tmp_path, kernel, *words, **more):
    """A run of a kernel, when it searches."""
    (tmp_path / "kernel.py").write_text(kernel)
    command = [sys.executable, "-m", "fuzz", "run", "silu", "--subject", str(tmp_path / "kernel.py"), "--peer", "none"]
    words = [*command, "--corpus", str(tmp_path / "corpus"), "--budget", "300s", "--timeout", "60", *words]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, **{"stdout": subprocess.PIPE, **more})
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("corpus/local/runs/*/campaign.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


def summary(tmp_path):
    return json.loads(next(tmp_path.glob("corpus/local/runs/*/summary.json")).read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_that_waits_for_a_kernel_that_hangs_and_it_tells_what_it_found(tmp_path, number, fuzz):
    process = started(tmp_path, HANGS)
    refused(fuzz("run", "--resume", "--corpus", tmp_path / "corpus"), "still goes on", f"process {process.pid}")
    begin = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - begin < 5.0 + SLACK
    assert (process.returncode, b"Traceback" in err) == (130, False), err
    assert b"interrupted: go on with --resume" in out
    assert not summary(tmp_path)["finished"]


def test_what_was_found_before_a_run_was_stopped_decides_its_exit_code(tmp_path):
    process = started(tmp_path, MANY)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert summary(tmp_path)["findings"]


def test_a_second_signal_ends_it_at_once(tmp_path):
    process = started(tmp_path, HANGS)
    process.send_signal(signal.SIGTERM)
    assert b"again: at once" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(SLACK) == 130
    process.communicate()


def test_ctrl_c_while_the_interpreter_ends_does_not_decide_the_exit_code(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["kassay", "--version"])
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))  # the program puts others in their place
    before = signal.getsignal(signal.SIGINT)
    try:
        assert main() == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_was_found_is_told_where_no_summary_can_be_written(fuzz, tmp_path, monkeypatch):
    def full(path, text):
        raise UsageError(f"{path} cannot be used (No space left on device); make room there")

    monkeypatch.setattr("kernel_assay.fuzz.cli.run.write_atomic", full)
    (tmp_path / "kernel.py").write_text(RIGHT + "    out[:, 3:4] = 0\n")
    words = ("--peer", "none", "--cases", 64, "--seed", 1, "--quiet", "--corpus", tmp_path / "corpus")
    code, out, err = fuzz("run", "--subject", tmp_path / "kernel.py", *words)
    assert (code, "No space left on device" in err) == (2, True)
    assert "1. silu/kernel: mismatch" in out


def test_who_reads_no_more_does_not_end_a_run_nor_decide_its_exit_code(tmp_path):
    read, write = os.pipe()
    process = started(tmp_path, MANY, "--budget", "3s", stdout=write)
    os.close(read)
    os.close(write)
    process.stderr.close()
    assert process.wait(60) == 1
    assert summary(tmp_path)["findings"]
    process = started(tmp_path, RIGHT, "--cases", "32", "--budget", "", stdout=subprocess.PIPE)
    process.stdout.close()
    process.stderr.close()
    assert process.wait(60) == 0


@pytest.fixture
def searching(tmp_path):
    """A search for a kernel's failures."""

    def made(kernel, limits, **more):
        (tmp_path / "kernel.py").write_text(kernel)
        subject = user_subject(str(tmp_path / "kernel.py"), ("silu",))
        with Store(tmp_path / "corpus") as store, Examiner([subject], timeout=1.5) as examiner:
            store.prepare()
            campaign = new_campaign("r1", 1, "conjecture", [subject], RunOptions(timeout=1.5, memory_mb=512))
            store.start_run(campaign)
            search = Search(examiner, store, campaign, limits, **more)
            begin = time.monotonic()
            done = search.run()
            return done, time.monotonic() - begin, store.findings()

    return made


def test_time_outs_share_an_allowance_and_the_report_says_who_was_left_out(searching):
    done, took, found = searching(HANGS, Limits(6.0, after_seconds=6.0))
    assert took < 12.0 + SLACK
    assert {f.verdict.kind for f in found} == {Kind.TIMEOUT}
    kinds = done.by_subject["silu/kernel"]
    assert kinds["timeout"] <= 4
    assert any("not run" in reason for reason in done.statistics["silu/kernel"].skipped)
    assert done.judged == sum(kinds.values()) - kinds["unsupported"]


def test_what_there_is_no_time_to_look_into_is_filed_as_it_was_met(searching, monkeypatch):
    """A thousand failures, each of another kind, when the time for looking into them is over."""
    look = TriageQueue.all

    def flood(queue):
        (first,) = list(queue.pending.values())[:1]
        for number in range(1000):
            signature = first.verdict.signature.but(error_pattern=f"pattern{number}")
            queue.pending[signature.key] = type(first)(
                first.case, first.subject, first.verdict.but(signature=signature, rule=f"rule{number}"), first.found_by
            )
        look(queue)

    monkeypatch.setattr(TriageQueue, "some", lambda *_: None)
    monkeypatch.setattr(TriageQueue, "all", flood)
    done, took, found = searching(MANY, Limits(1.0, after_seconds=8.0))
    assert took < 9.0 + SLACK
    filed = len(found)
    assert filed > 20
    assert done.finished == (filed > 1000), "what is left is taken up when the run is resumed"


def test_an_alarm_waits_for_a_compiler_and_rings_again():
    """An exception in its callbacks is lost, and what it compiles is broken ever after."""
    clock, done = Clock(0.0, 1.0), []

    def compiling():
        time.sleep(0.6)
        done.append("compiled")

    module = {"__name__": "numba.core", "time": time}
    theirs = types.FunctionType(compiling.__code__, module, closure=compiling.__closure__)

    def work():
        theirs()
        time.sleep(2)
        done.append("not cut")

    with clock.ticking(), pytest.raises(Ended), clock.until(0.1):
        work()
    assert done == ["compiled"]


def test_compute_sanitizer_is_asked_when_no_failure_waits_any_more(searching, monkeypatch):
    """It takes seconds, in which a second bug would have been shrunk."""
    waited, asked = [], []
    said = Sanitized(tool="racecheck", errors=1, message="a hazard")

    def watched(finding, _):
        waited.append(len(queues[-1].pending.keys() - queues[-1]._late))
        asked.append(finding.id)
        return finding if finding.sanitized else finding.but(sanitized=(said,))

    queues, begin = [], TriageQueue.__post_init__
    monkeypatch.setattr(TriageQueue, "__post_init__", lambda queue: (begin(queue), queues.append(queue))[0])
    monkeypatch.setattr("kernel_assay.fuzz.campaign.triage_queue.watched", watched)
    _, _, found = searching(MANY, Limits(6.0, after_seconds=8.0))
    assert len([f for f in found if f.state is State.MINIMIZED]) > 1
    kept = {f.id for f in found if f.sanitized == (said,)}
    assert kept
    assert kept <= set(asked)
    assert set(waited) == {0}, "what waits for the end of the search does not count"


def test_an_alarm_ends_what_does_not_ask_and_not_what_may_not_be_cut():
    clock, done = Clock(0.0, 1.0), []
    with clock.ticking(), pytest.raises(Ended), clock.until(0.1):
        _half_a_second(clock, done)
    assert done == ["whole"]
    assert clock.broken
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0


def _half_a_second(clock, done):
    with clock.undisturbed():
        time.sleep(0.5)
        done.append("whole")
    done.append("more")


def test_a_clock_that_is_stopped_leaves_little_to_the_end():
    clock = Clock(1000.0)
    assert (clock.over, clock.hurried, clock.grace) == (False, False, 100.0)
    clock.check()
    clock.stop()
    assert clock.over
    assert clock.at(FILE) - time.monotonic() <= STOP_SECONDS
    with clock.until(0.0), pytest.raises(Ended) as ended:
        clock.check()
    assert not ended.value.in_time, "what is in flight is made again by who resumes"
    assert FLIGHT < FILE


def hung(rows):
    recipe = TensorRecipe(shape=(rows, 32), dtype="float32", fill=Fill(distribution="normal"))
    case = Case(op="silu", tensors={"x": recipe})
    return Checked(case, "", {"silu/k": Verdict(kind=Kind.TIMEOUT)}, {})


def test_who_hangs_is_left_out_of_such_cases_and_then_of_all():
    hangs, other = Hangs(25.0, 10.0), ("silu/k", "silu/other")
    assert (hangs.counts(3), Hangs(1e9, 10.0).counts(3), Hangs(1.0, 10.0).counts(3)) == (2, 1, 3)
    for _ in range(3):
        assert hangs.without(hung(4).case, other) == other
        hangs.meet(hung(4))
    assert hangs.spent
    assert hangs.without(hung(4).case, other) == ("silu/other",)
    assert hangs.without(hung(0).case, other) == other, "another kind of cases"
    hangs.meet(hung(0))
    one = hung(1).case.but(tensors={"x": hung(1).case.tensors["x"].but(shape=(1, 1))})
    assert hangs.without(one, other) == ("silu/other",), "it hangs everywhere"
