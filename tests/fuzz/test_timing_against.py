"""`kassay time --against`: earlier versions, what is said of them, exit codes, and what is kept."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from _command import refused

import kernel_assay
from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.timing import Change
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.timing import plan
from kernel_assay.fuzz.timing.against import beside, failed, results_of, share_of
from kernel_assay.fuzz.timing.compare import FALSE_ALARM
from kernel_assay.fuzz.timing.revisions import checked_out, head
from kernel_assay.kernels.catalog import user_subject

KERNEL = """import time
import numpy as np
from helper import exp

OP = "softmax"
DTYPES = ("float32",)


def run(x):
    begin = time.perf_counter()
    e = exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf))
    out = e / e.sum(axis=-1, keepdims=True)
    took = time.perf_counter() - begin
    while time.perf_counter() - begin < {factor} * took:
        pass
    return out
"""
HEED = """import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # what is started in the background is deaf to it
from kernel_assay.fuzz.__main__ import main
raise SystemExit(main())
"""
WORDS = ("--shapes", "shapes.json", "--warm-l2", "--no-roofline", "--quiet", "--baseline", "builtin:numpy_float32")


def git(*words):
    subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A kernel in two revisions, of which the second one is 30 % slower; its helper exists since the first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shapes.json").write_text('[{"rows": 16, "cols": 128}]')
    (tmp_path / "pack").mkdir()
    git("init", "-q")
    (tmp_path / "pack" / "helper.py").write_text("from numpy import exp\n")
    (tmp_path / "pack" / "mine.py").write_text(KERNEL.format(factor=1.0))
    git("add", "pack")
    git("commit", "-qm", "one")
    (tmp_path / "pack" / "mine.py").write_text(KERNEL.format(factor=1.3))
    git("commit", "-qam", "two")
    return tmp_path


def timed(fuzz, *words, limit="25s"):
    return fuzz("time", "softmax", "--subject", "pack/mine.py", *WORDS, "--limit", limit, *words)


def test_a_slower_kernel_is_found_by_revision(fuzz, repository):
    code, out, err = timed(fuzz, "--against", "HEAD~1", "--json", "x.json", "--junit", "x.xml", "--html", "x.html")
    assert code == 1, out + err
    assert "SLOWER" in out
    (one,) = json.loads(Path("x.json").read_text())["compared"]
    assert (one["subject"], one["before"]) == ("softmax/mine", "softmax/mine@HEAD~1")
    assert 1.15 < one["comparison"]["low"] < one["comparison"]["ratio"] < one["comparison"]["high"] < 1.5
    assert ET.parse("x.xml").getroot().get("failures") == "1"
    assert "Compared with an earlier version" in Path("x.html").read_text("utf-8")
    with Store(Path("corpus")) as store:
        (name,) = store.timings()
        kept = store.timing(name)
    assert kept.compared[0].comparison.change is Change.SLOWER
    assert kept.revision == head(repository)
    assert len(set(kept.timed[0].launches)) >= 20
    again = timed(fuzz, "--against", "x.json", limit="2s")
    assert again[0] == 0, again
    assert "UNSURE" in again[1]
    assert any(why in again[1] for why in ("measured apart", "was noisy", "are too few")), again[1]
    code, out, _ = fuzz("time", "--history", "softmax")
    assert code == 0
    assert "softmax/mine on softmax float32 x=16x128:normal" in out
    assert "2 runs so far" in out
    assert "HEAD~1" not in out


def test_a_kernel_is_the_same_as_its_copy_and_never_told_apart(fuzz, repository):
    Path("pack/copy.py").write_text(Path("pack/mine.py").read_text())
    code, out, err = timed(fuzz, "--against", "pack/copy.py", "--junit", "x.xml")
    assert code == 0, out + err
    assert "softmax/mine" in out
    assert "SLOWER" not in out
    assert "FASTER" not in out


def test_what_cannot_be_compared_is_one_sentence(fuzz, repository, tmp_path_factory, monkeypatch):
    for against, words in {
        "HEAD~9": ("HEAD~9", "no revision"),
        "--help": ("--help", "no revision"),
        "none.json": ("none.json", "does not exist"),
    }.items():
        refused(timed(fuzz, f"--against={against}"), *words)
    Path("pack/new.py").write_text(KERNEL.format(factor=1))
    refused(
        fuzz("time", "softmax", "--subject", "pack/new.py", *WORDS, "--against", "HEAD"),
        "new.py",
        "does not exist in HEAD",
    )
    Path("other.json").write_text("{}")
    refused(timed(fuzz, "--against", "other.json"), "other.json", "not a valid")
    refused(fuzz("time", "softmax", *WORDS, "--against", "pack/mine.py", "--baseline", "torch"), "one kernel")
    refused(fuzz("time", "--history"), "no times", "time something first")
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    refused(timed(fuzz, "--png", "x.png"), "kernel-assay[png]")
    outside = tmp_path_factory.mktemp("outside")
    monkeypatch.chdir(outside)
    Path("alone.py").write_text(KERNEL.format(factor=1))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(outside.parent))
    refused(fuzz("time", "softmax", "--subject", "alone.py", "--against", "HEAD"), "alone.py", "no git repository")


def test_an_earlier_version_that_fails_is_told_and_nothing_is_said_of_its_speed(fuzz, repository):
    Path("pack/broken.py").write_text(KERNEL.format(factor=1).replace("return out", "return out * 0"))
    code, out, err = timed(fuzz, "--against", "pack/broken.py", limit="3s")
    assert code == 1, out + err
    assert "UNSURE" in out
    assert "softmax/mine@broken has no times that count" in out


def test_a_revision_brings_its_neighbours_and_leaves_nothing(repository):
    here = repository / "pack" / "mine.py"
    with checked_out(here, "HEAD~1") as then:
        assert "1.0 * took" in then.read_text()
        assert (then.parent / "helper.py").exists()
        assert user_subject(str(then), ("softmax",)).op == "softmax"
        kept = then
    assert not kept.exists()
    with pytest.raises(UsageError, match="no revision"), checked_out(here, "HEAD:pack"):
        pass
    assert head(repository)
    assert head(Path("/")) == ""


def test_ctrl_c_ends_it_soon_and_leaves_no_checkout(repository):
    words = ["time", "softmax", "--subject", "pack/mine.py", *WORDS, "--limit", "300s", "--against", "HEAD~1"]
    before = set(Path(os.environ.get("TMPDIR", "/tmp")).glob("kernel-assay-run-rev-*"))
    process = subprocess.Popen(
        [sys.executable, "-c", HEED, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(kernel_assay.__file__).parents[1])},
    )
    time.sleep(2.5)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert process.returncode == 130
    assert "Traceback" not in err
    assert set(Path(os.environ.get("TMPDIR", "/tmp")).glob("kernel-assay-run-rev-*")) <= before


@pytest.fixture
def run(fuzz, repository):
    """A run of two implementations, quickly."""
    with Store(Path("corpus")) as store:
        settings = plan.TimeSettings(
            target="softmax",
            own=plan.UserKernels(("pack/mine.py",)),
            baselines=("builtin:numpy_float32",),
            shapes=("shapes.json",),
            limits=plan.TimingLimits(seconds=0.5, warm=True),
            roofline=False,
        )
        return plan.time_kernels(settings, store=store)


def test_runs_of_other_machines_caches_or_cases_tell_nothing(run):
    mine = [s for s in run.subjects if s.is_own]
    times = run.timed[0].but(seconds=(1e-3,) * 15 + (1.1e-3,) * 15)
    now = run.but(timed=(times,))
    slow = times.but(seconds=tuple(t * 2 for t in times.seconds))
    assert beside(now.but(timed=(slow,)), now, mine).compared[0].comparison.change is Change.SLOWER
    other = now.but(environment=now.environment.but(processor="another"))
    for kept, word in (
        (other, "another machine"),
        (now.but(warm=not now.warm), "warm"),
        (run.but(timed=(times.but(problem="no"),)), "no times"),
    ):
        (one,) = beside(now, kept, mine).compared
        assert one.comparison.change is Change.UNSURE
        assert word in one.comparison.reason
    with pytest.raises(UsageError, match="in common"):
        beside(now, now.but(timed=()), mine)


def test_what_fails_is_for_the_caller_to_say(run):
    mine = [s for s in run.subjects if s.is_own]
    times = run.timed[0].but(seconds=(1e-3,) * 15 + (1.1e-3,) * 15)
    slow = beside(
        run.but(timed=(times.but(seconds=tuple(2 * t for t in times.seconds)),)), run.but(timed=(times,)), mine
    )
    doubtful = beside(run.but(timed=(times,)), run.but(timed=(times,)), mine)
    assert doubtful.compared[0].comparison.change is Change.UNSURE
    assert [failed(slow, on) for on in ("slower", "unsure", "never")] == [True, True, False]
    assert [failed(doubtful, on) for on in ("slower", "unsure", "never")] == [False, True, False]
    assert [bool(results_of(slow, on)[0].failure) for on in ("slower", "unsure", "never")] == [True, True, False]
    assert results_of(doubtful, "slower")[0].skipped.startswith("unsure")
    assert results_of(doubtful, "unsure")[0].failure
    assert share_of(10, 2) == FALSE_ALARM / 20
    assert share_of(0, 0) == FALSE_ALARM
