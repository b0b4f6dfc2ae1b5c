"""`kassay cliffs` on kernels that run here, and what becomes of the findings; the kernels are those of the pages."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _command import refused

from kernel_assay.corpus.model.findings import State
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz import api
from kernel_assay.fuzz.__main__ import main
from kernel_assay.reports.explain import sections

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "performance-cliffs.md").read_text("utf-8")
EXAMPLE = sections("cliff")["Example"]
SECONDS = "40s"
STEEP = """import numpy as np
OP = "silu"
DTYPES = ("float32",)


def run(x):
    for _ in range({more} if x.shape[1] % 8 else 1):
        y = x / (1 + np.exp(-x))
    {end}
"""


def block(text, language):
    return re.search(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]


def without_numbers(said):
    """A sentence without what its brackets tell, in which numbers differ from run to run."""
    return re.sub(r"(?<!% )\b\d+(\.\d+)?", "N", said.partition(" (")[0])


def write(name="mine.py", more=4, end="return y"):
    Path(name).write_text(STEEP.format(more=more, end=end))


def call(*words):
    """The command in a process of its own: its exit code, output, and what it says beside."""
    command = [sys.executable, "-m", "fuzz", *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The folder of a search that has found the cliff of a kernel, and what the command said."""
    folder = tmp_path_factory.mktemp("cliffs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write()
        words = ("cliffs", "silu", "--subject", "mine.py", "--budget", SECONDS, "--json", "out.json")
        return folder, call(*words)


@pytest.fixture
def here(found, monkeypatch):
    monkeypatch.chdir(found[0])
    return found[0]


def the_finding(folder):
    with Store(folder / "corpus") as store:
        return next(f for f in store.findings() if f.verdict.kind is Kind.CLIFF)


def test_a_cliff_is_found_said_and_stored(found, here):
    code, out, err = found[1]
    assert code == 1, err
    first, *_ = out.splitlines()
    said = r"cliff: silu/mine is [\d.]+x slower when cols % 8 != 0, as at (\d+); (\d+) is fine \(rows = \d+; seen from"
    slow, fine = map(int, re.match(said, first).groups())
    assert slow % 8 > 0 == fine % 8
    finding = the_finding(here)
    assert finding.id in first
    assert re.search(rf"^again: .* replay {finding.id}$", out, re.MULTILINE)
    assert re.search(r"^silu/mine: \d+ sizes of cols at rows = \d+$", err, re.MULTILINE)
    cliff = finding.cliff
    assert (cliff.axis, cliff.slow, cliff.fine, cliff.pattern) == ("cols", slow, fine, "remainder")
    assert finding.case.tensors["x"].shape == (cliff.others["rows"], slow)
    assert cliff.neighbour.tensors["x"].shape == (cliff.others["rows"], fine)
    assert 2 < cliff.factor < 6
    assert cliff.baseline == "silu/torch_sigmoid"
    assert (finding.state, finding.signature.error_pattern) == (State.MINIMIZED, "when cols % 8 != 0")


def test_programs_are_told_all_of_it(found, here):
    (one,) = json.loads(Path("out.json").read_text())
    finding = the_finding(here)
    assert one["subject"] == "silu/mine"
    assert one["findings"][0] == finding.id
    assert one["searched"]["cols"] >= 80
    assert len(one["cliffs"][0]["seconds_slow"]) >= 62


def test_it_is_listed_and_shown_like_other_findings(found, here, fuzz):
    code, out, _ = fuzz("list", "findings", "verdict=cliff")
    assert (code, out.count("silu/mine")) == (0, 1)
    code, out, _ = fuzz("show", the_finding(here).id)
    assert code == 0
    assert "slower when cols % 8 != 0" in out
    assert "least factor" in out
    assert "kassay shrink" not in out
    (shown,) = json.loads(fuzz("show", the_finding(here).id, "--json", "-")[1])
    assert shown["cliff"]["axis"] == "cols"


def test_its_reproducer_times_both_sizes(found, here, fuzz):
    assert fuzz("show", the_finding(here).id, "--reproducer", "again.py")[0] == 0
    done = subprocess.run([sys.executable, "again.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^reproduced: cols = \d+ takes \d\.\d+ times as long as \d+$", done.stdout, re.MULTILINE)


def test_it_cannot_be_shrunk(found, here, fuzz):
    refused(fuzz("shrink", the_finding(here).id), "performance cliff")


def test_a_replay_says_whether_it_is_there(found, here):
    finding = the_finding(here)
    with Store(here / "corpus") as store:
        (again,) = api.replay([finding.id], store=store)
        assert (again.outcome, again.verdict.kind) == (api.Outcome.FAILS, Kind.CLIFF), again.verdict.message
        assert again.verdict.message.count("slower when cols % 8 != 0") == 1
        mended = here / "mended.py"
        write(mended, more=1)
        (gone,) = api.replay([finding.id], store=store, own=api.UserKernels((str(mended),)))
        assert gone.outcome is api.Outcome.FIXED, gone.verdict.message
        other = finding.but(environment=finding.environment.but(processor="another"))
        item = api.Item("x", other.case, gone.item.subject, other)
        replayer = api.Replayer(timeout=10, memory_mb=4096)
        try:
            elsewhere = replayer.replay(item)
        finally:
            replayer.close()
        assert elsewhere.outcome is api.Outcome.NOT_TOLD
        assert elsewhere.verdict.message.endswith("on another machine than it was found on")


def test_the_kernels_of_the_pages_have_the_cliffs_that_they_show(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text, name in ((PAGE, "my_silu.py"), (EXAMPLE, "twice.py")):
        Path(name).write_text(block(text, "python"))
        shown = block(text, "text").splitlines()[0]
        (one,) = api.cliffs("silu", own=api.UserKernels((name,)), limits=api.CliffLimits(seconds=40))
        said = [f"cliff: {one.subject} is {c.sentence}" for c in one.cliffs]
        assert "slower when cols % 8 != 0, as at " in shown
        assert without_numbers(shown) in map(without_numbers, said), one.notes


def test_a_wrong_output_has_no_cliff(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(more=4, end="return y + (x.shape[1] % 8 > 0) * np.float32(1)")
    own = api.UserKernels(("mine.py",))
    (one,) = api.cliffs("silu", own=own, baseline="none", limits=api.CliffLimits(seconds=15))
    assert one.cliffs == ()
    said = "a cliff does not count, as the output is wrong there (mismatch): "
    assert any(note.startswith(said) for note in one.notes)


REFUSED = {
    "an op that is not known": (("slu",), "op 'slu' is not known"),
    "nothing": ((), "name a kernel"),
    "a file that is not there": (("silu", "--subject", "no.py"), "no.py"),
    "a name that is not known": (("silu", "--subject", "builtin:no"), "no built-in implementation 'no'"),
    "an emulated kernel": (("silu", "--subject", "builtin:cuda_vector"), "emulated"),
    "all devices": (("silu", "--device", "cuda:all"), "one device"),
    "a baseline that is not known": (("silu", "--subject", "mine.py", "--baseline", "no"), "--baseline no"),
    "itself": (("silu", "--subject", "builtin:numpy_float32", "--baseline", "builtin:numpy_float32"), "itself"),
    "a factor that is none": (("silu", "--factor", "1"), "--factor"),
    "no time": (("silu", "--budget", "0s"), "length of time"),
    "a dtype": (("silu", "--subject", "mine.py", "--dtype", "float64"), "float32"),
    "a kernel that raises": (("silu", "--subject", "raises.py", "--budget", "3s"), "ValueError: never"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_done_is_one_sentence(what, tmp_path, monkeypatch, fuzz):
    monkeypatch.chdir(tmp_path)
    write()
    write("raises.py", end='raise ValueError("never")')
    words, said = REFUSED[what]
    code, out, err = fuzz("cliffs", *words)
    assert (code, out) == (2, ""), err
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err


@pytest.mark.parametrize(("seconds", "factor"), [(0, 2), (-1, 2), (math.nan, 2), (1, 1), (1, math.nan)])
def test_limits_that_make_no_sense_are_refused(seconds, factor):
    with pytest.raises(api.UsageError):
        api.CliffLimits(seconds, factor)


def test_the_help_names_it(capsys):
    assert main(["cliffs", "--help"]) == 0
    assert "builtin:NAME" in capsys.readouterr().out
