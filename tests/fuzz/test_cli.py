"""What a person meets: one sentence for every mistake, the right exit code, and Ctrl-C that loses nothing."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from _command import refused
from _silu import RIGHT

from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.cli.output import check_files

ROOT = Path(__file__).resolve().parents[2]
BAD = RIGHT + "    out[:, 3:4] = 0\n"
RETURNS = RIGHT.replace("def run(out, x):", "def kernel(x):").replace("out[...] =", "return")


@pytest.fixture
def write(tmp_path):
    def file(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return file


@pytest.fixture
def fuzz(fuzz, tmp_path):
    """A command with a corpus, unless it is called without."""
    (tmp_path / "corpus").mkdir()

    def call(*words, corpus=tmp_path / "corpus"):
        return fuzz(*words, *(("--corpus", corpus) if corpus else ()))

    return call


SHORT = ("--cases", "64", "--seed", "1", "--quiet")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "no_such_op"), ("no_such_op", "softmax")),
        (("run", "silu", "--subject", "/no/such/file.py"), ("/no/such/file.py", "does not exist")),
        (("run", "silu", "--subject", "notes.txt"), ("notes.txt", "neither")),
        (("run", "silu", "--budget", "soon"), ("'soon'", "90s")),
        (("run", "silu", "--budget", "0"), ("'0'",)),
        (("run", "silu", "--budget", "-5s"), ("'-5s'",)),
        (("run", "silu", "--budget", "1s", "--cases", "3"), ("--budget", "--cases")),
        (("run", "silu", "--cases", "0"), ("--cases",)),
        (("run", "silu", "--cases", "many"), ("--cases", "many")),
        (("run", "silu", "--peer", "nobody"), ("'nobody'", "torch_silu")),
        (("run", "silu", "--backend", "opencl"), ("'opencl'", "numpy")),
        (("run", "silu", "--backend", "cupy"), ("'cupy'", "not available")),
        (("run", "silu", "--device", "cuda"), ("'cuda'",)),
        (("run", "silu", "--engine", "steam"), ("--engine", "steam")),
        (("run", "silu", "--timeout", "0"), ("--timeout",)),
        (("run", "--resume"), ("no interrupted run",)),
        (("run", "--no-such-option"), ("--no-such-option",)),
        (("replay", "no-such-finding"), ("no-such-finding",)),
        (("replay", "r1:5"), ("'r1'",)),
        (("run", "silu", "--dtype", "float31"), ("silu/", "not float31")),
        (("shrink", "no-such-finding"), ("no-such-finding",)),
        (("replay", ""), ("the name of what to run again is empty",)),
        (("list", "nonsense"), ("nonsense",)),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(fuzz, words, said):
    refused(fuzz(*words), *said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("OP = 'silu'\nimport no_such_module\ndef run(out, x): pass\n", ("does not import", "no_such_module")),
        ("OP = 'silu'\ndef run(out, x) pass\n", ("does not import", "line 2")),
        ("OP = 'silu'\ndef run(a, b, c): pass\n", ("takes (a, b, c)", "run(out, x) or run(x)")),
        ("OP = 'softmax2'\ndef run(out, x): pass\n", ("softmax2",)),
        ("OP = 'silu'\nrun = 3\n", ("no function 'run'",)),
        ("OP = 'silu'\nraise RuntimeError('broken')\ndef run(out, x): pass\n", ("broken",)),
        ("OP = 'silu'\nBACKEND = 'opencl'\ndef run(out, x): pass\n", ("opencl",)),
        ("OP = 'silu'\nimport os\nos.abort()\ndef run(out, x): pass\n", ("kills the process when it is loaded",)),
    ],
)
def test_a_file_that_cannot_be_a_subject_is_told_why(fuzz, write, text, said):
    path = write(text)
    refused(fuzz("run", "--subject", path, "--peer", "none", *SHORT), *said)


def test_a_file_that_leaves_the_process_when_it_is_imported_is_told_why(fuzz, write):
    path = write("import sys\nOP = 'silu'\nsys.exit('usage: mine.py FILE')\ndef run(out, x): pass\n")
    refused(fuzz("run", "--subject", path, "--peer", "none", *SHORT), "mine.py")


def test_a_file_without_an_op_asks_for_one(fuzz, write):
    refused(fuzz("run", "--subject", write("def run(out, x): pass\n")), "does not say its op")


@pytest.mark.parametrize(
    "words",
    [
        ("list", "findings"),
        ("replay",),
        ("show", "af8d"),
        ("analyze",),
        ("promote", "af8d"),
        ("expect-failure", "af8d"),
    ],
)
def test_a_corpus_that_was_named_and_is_not_there_is_refused(fuzz, tmp_path, words):
    refused(fuzz(*words, corpus=tmp_path / "nowhere"), "nowhere does not exist")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(("words", "out"), [(("list", "findings"), "finding"), (("replay",), "nothing to replay")])
def test_a_corpus_that_was_not_named_need_not_be_there(fuzz, tmp_path, monkeypatch, words, out):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, said, _ = fuzz(*words, corpus=None)
    assert (code, out in said) == (0, True)


@pytest.mark.parametrize("option", ["--cases", "--seed", "--max-elements", "--case-memory", "--memory", "--timeout"])
@pytest.mark.parametrize("value", ["many", "-1", "nan"])
def test_a_number_is_asked_for_in_the_same_words_everywhere(fuzz, option, value):
    refused(fuzz("run", "silu", option, value), f"{option} must be a", "number of at least", f"not '{value}'")


@pytest.mark.parametrize("option", ["--cases", "--seed", "--jobs", "--max-elements", "--case-memory", "--memory"])
def test_a_whole_number_has_an_end(fuzz, option):
    refused(fuzz("run", "silu", option, 10**26), f"{option} must be a whole number of at most", f"not '{10**26}'")


@pytest.mark.parametrize(
    "words",
    [
        ("run", "silu", "--timeout"),
        ("compare", "a.npy", "b.npy", "--nmse"),
        ("compare", "a.npy", "b.npy", "--cosine"),
        ("compare", "a.npy", "b.npy", "--factor"),
        ("sanitize", "abc", "--timeout"),
    ],
)
def test_a_number_is_finite(fuzz, words):
    for value in ("inf", "1e999"):
        refused(fuzz(*words, value, corpus=None), f"{words[-1]} must be a number of at most", f"not '{value}'")
    refused(fuzz(*words, "nan", corpus=None), f"{words[-1]} must be a number of at least", "not 'nan'")


@pytest.mark.parametrize("value", ["9" * 400, f"{'9' * 400}h", "8761h"])
def test_a_length_of_time_has_an_end(fuzz, value):
    refused(fuzz("run", "silu", "--budget", value), f"'{value}' is")


def test_a_corpus_below_a_file_is_refused(fuzz, tmp_path):
    (tmp_path / "file").write_text("")
    refused(fuzz("run", "silu", *SHORT, corpus=tmp_path / "file" / "corpus"), "not writable")


def test_a_good_kernel_has_no_findings_and_exit_0(fuzz, write):
    code, out, _ = fuzz("run", "--subject", write(RIGHT), "--peer", "numpy_float32", *SHORT)
    assert code == 0
    assert "silu/mine" in out
    assert "silu/numpy_float32" in out
    assert "findings: none" in out


def test_a_bad_kernel_has_findings_and_exit_1(fuzz, write, tmp_path):
    code, out, _ = fuzz("run", "--subject", write(BAD), "--peer", "numpy_float32", "--dtype", "float32", *SHORT)
    assert code == 1
    assert "silu/mine: mismatch" in out
    assert "kassay replay" in out
    finding = next((tmp_path / "corpus" / "local" / "findings" / "silu").glob("*.json"))
    code, out, _ = fuzz("replay", finding.stem)
    assert (code, "fails: silu/mine" in out) == (1, True)
    code, out, _ = fuzz("list", "findings")
    assert (code, finding.stem in out) == (0, True)
    refused(fuzz("shrink", finding.stem, "--device", "tpu"), "'tpu'")
    assert fuzz("shrink", finding.stem, "--budget", "2s", "--device", "cpu")[0] == 1


def test_what_fails_otherwise_once_it_is_shrunk_takes_the_place_of_what_it_was(fuzz, write, tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_assay.fuzz.campaign.triage_queue.SHRINK_SECONDS", 0.0)
    wrong = RIGHT + "    if x.shape[1] > 4:\n        out[:, -1] = 7\n"
    fuzz("run", "--subject", write(wrong), "--peer", "none", *SHORT)
    with Store(tmp_path / "corpus") as store:
        found = store.findings()
        before = next(f for f in found if f.case.elements > 100)
        code, _, err = fuzz("shrink", before.id, "--budget", "20s")
        (after,) = [f for f in store.findings() if before.signature.key in f.aliases]
        assert before.id not in {f.id for f in store.findings()}
        assert sum(f.count for f in store.findings()) == sum(f.count for f in found), "nothing is lost"
    assert (code, f"{after.id} takes the place of {before.id}" in err) == (1, True)
    assert after.case.tensors["x"].shape == (1, 5)


PASSED_ON = 'OP = "silu"\ndef run(*args, **named):\n    return inner(*args, **named)\ndef inner(x):\n    return x\n'


def test_a_call_that_does_not_get_to_its_function_is_no_finding(fuzz, write):
    code, out, err = fuzz("run", "--subject", write(PASSED_ON), "--peer", "none", *SHORT)
    assert (code, "findings: none" in out) == (2, True)
    assert "inner() takes 1 positional argument but 2 were given" in err


RAISES = 'OP = "silu"\ndef run(out, x):\n    raise ValueError("no:\\n  left  2\\n  right 3")\n'


def test_a_dtype_may_be_chosen_and_a_long_exception_is_shown_whole(fuzz, write, tmp_path):
    code, out, _ = fuzz("run", "--subject", write(RAISES), "--peer", "none", "--dtype", "float16", *SHORT)
    assert code == 1
    assert "   it raised ValueError: no:\n     left  2\n     right 3\n" in out
    assert "findings: 1, " in out
    with Store(tmp_path / "corpus") as store:
        (found,) = store.findings()
    assert found.signature.dtype == "float16"
    assert "    raised: it raised ValueError: no:\n      left  2\n" in fuzz("replay", found.id)[1]


DECLINES = 'OP = "silu"\ndef run(out, x):\n    raise NotImplementedError("never on a Monday")\n'


def test_a_kernel_that_takes_no_case_was_not_tested(fuzz, write):
    """That nothing was found would look like success."""
    code, out, err = fuzz("run", "--subject", write(DECLINES), *SHORT)
    assert code == 2
    assert "silu/mine declined 100 % of its cases, 64 of 64: never on a Monday (64 cases)" in out
    assert err == "kassay: nothing of silu/mine was tested in 64 cases: never on a Monday\n"
    code, _, err = fuzz("run", "--subject", write(DECLINES), "--subject", write(BAD, "bad.py"), *SHORT)
    assert (code, err) == (1, ""), "what was found is told"


def test_a_kernel_that_declines_some_cases_says_why(fuzz, write):
    some = RIGHT.replace(
        "def run(out, x):", "def run(out, x):\n    if x.shape[0] > 3: raise NotImplementedError('tall')\n"
    )
    code, out, _ = fuzz("run", "--subject", write(some), *SHORT)
    assert code == 0
    assert re.search(
        r"^(warning: )?silu/mine declined [\d.]+ % of its cases, \d+ of 64: tall \(\d+ cases\)$", out, re.MULTILINE
    )


def test_a_return_style_kernel_and_several_at_once(fuzz, write):
    paths = [
        write(RETURNS, "one.py"),
        write(RIGHT, "two.py"),
        f"{write(BAD + RETURNS.partition('def ')[0], 'three.py')}:run",
    ]
    words = [w for p in paths for w in ("--subject", p)]
    code, out, _ = fuzz("run", *words, "--peer", "none", *SHORT)
    assert code == 1
    for name in ("silu/one", "silu/two", "silu/three:run"):
        assert name in out
    assert "numpy_float32" not in out
    assert "silu/three:run: mismatch" in out


def test_the_same_file_twice_is_refused(fuzz, write):
    path = write(RIGHT)
    refused(fuzz("run", "--subject", path, "--subject", path, *SHORT), "stands twice")


def test_json_stands_alone_on_standard_output(fuzz, write, tmp_path):
    code, out, err = fuzz("run", "--subject", write(BAD), "--peer", "none", *SHORT, "--json", "-")
    said = json.loads(out)
    assert code == 1
    assert said["cases"] == 64
    assert said["findings"][0]["kind"] == "mismatch"
    assert "silu/mine" in err
    code, out, _ = fuzz("run", "--subject", write(RIGHT), "--peer", "none", *SHORT, "--json", tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text())["findings"] == []


def test_planted_bugs_that_are_found_are_no_failure(fuzz):
    faults = Path(__file__).parents[1] / "faults"
    words = ("--subject", faults / "raises.py", "--subject", faults / "other_shape.py", "--peer", "none")
    code, out, _ = fuzz("run", *words, *SHORT)
    assert (code, "2 of 2 earned their verdict" in out) == (0, True)


def test_the_same_seed_says_the_same(fuzz, write):
    path = write(BAD)
    said = [json.loads(fuzz("run", "--subject", path, "--peer", "none", *SHORT, "--json", "-")[1]) for _ in range(2)]
    assert said[0]["kinds"] == said[1]["kinds"]
    assert said[0]["run"] != said[1]["run"]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("ops", ("softmax", "gemm")),
        ("subjects", ("gemm/bug_k_tail", "seeded mismatch", "silu/torch_silu")),
        ("backends", ("numpy", "runs here", "cuda", "not available")),
        ("distributions", ("raw_bits", "transposed", "nan_payload", "tile_tail")),
        ("goals", ("empty_tensor",)),
        ("verdicts", ("out_of_bounds", "inconclusive")),
        ("findings", ("finding",)),
    ],
)
def test_list(fuzz, what, words, monkeypatch):
    monkeypatch.setattr("kernel_assay.reports.plain.terminal.WIDTH", 500)
    code, out, err = fuzz("list", what)
    assert (code, err) == (0, "")
    assert all(w in out for w in words)
    rows = json.loads(fuzz("list", what, "--json", "-")[1])
    assert isinstance(rows, list)


def test_list_finds_words_that_look_like_a_column(fuzz, write):
    fuzz("run", "--subject", write(BAD), "--peer", "none", *SHORT)
    shape = json.loads(fuzz("list", "findings", "--json", "-")[1])[0]["smallest case"].split()[2]
    assert shape.startswith("x=")
    assert shape.partition(":")[0] in fuzz("list", "findings", shape)[1]
    refused(fuzz("list", "findings", "y=3"), "'y' is no column of `list findings`", "subject", "smallest case")


def test_doctor_and_help_and_version(fuzz, capsys):
    code, out, _ = fuzz("doctor", corpus=None)
    assert code == 0
    assert all(word in out for word in ("python 3.", "numpy", "hypothesis", "backend", "torch"))
    assert re.search(rf"gguf +{re.escape(version('gguf'))} +packed blocks", out)
    for words in (["--help"], ["run", "--help"], ["-h"]):
        assert main(words) == 0
        assert "Usage" in capsys.readouterr().out


def start(*words, cwd):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "fuzz", *words],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_ends_cleanly_and_resume_goes_on(write, tmp_path, fuzz):
    words = ("run", "--subject", write(RIGHT), "--peer", "none", "--budget", "60s", "--seed", "1")
    process, begin = start(*words, cwd=tmp_path), time.monotonic()
    runs = tmp_path / "corpus" / "local" / "runs"
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline and not list(runs.glob("*/elites.jsonl")):
        time.sleep(0.05)
    took = time.monotonic() - begin
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    out, err = process.communicate(timeout=10.0)
    assert time.monotonic() - begin < max(2.0, took), "on a machine that is slow today: no longer than it took to start"
    assert process.returncode == 130, "stopped, and nothing was found"
    assert "stopping" in err
    assert "Traceback" not in err
    assert "interrupted: go on with --resume" in out
    before = json.loads(next(runs.glob("*/summary.json")).read_text())
    assert not before["finished"]
    code, _, _ = fuzz("run", "--resume", "--cases", before["cases"] + 64, "--quiet")
    after = json.loads(next(runs.glob("*/summary.json")).read_text())
    assert code == 0
    assert (after["run"], after["cases"], after["finished"]) == (before["run"], before["cases"] + 64, True)
    refused(fuzz("run", "--resume"), "no interrupted run")


def test_progress_and_messages_go_to_standard_error(write, tmp_path):
    process = start("run", "--subject", write(RIGHT), "--peer", "none", "--cases", "64", "--json", "-", cwd=tmp_path)
    out, _ = process.communicate(timeout=60.0)
    assert json.loads(out)["finished"]


def test_a_reader_that_hangs_up_is_no_error(write, tmp_path):
    process = start("list", "subjects", cwd=tmp_path)
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.wait(20.0)
    process.stderr.close()


def test_a_search_that_cannot_begin_leaves_nothing_to_resume(fuzz, tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text('OP = "silu"\nimport no_such_module\n\n\ndef run(out, x):\n    pass\n')
    assert fuzz("run", "--subject", str(bad), "--peer", "none")[0] == 2
    code, _, err = fuzz("run", "--resume")
    assert (code, "there is no interrupted run" in err) == (2, True)


def test_files_that_can_be_written_are_left_as_they_are_until_then(tmp_path):
    (tmp_path / "old.json").write_text("old")
    (tmp_path / "link.json").symlink_to("new.json")
    check_files(None, "-", tmp_path / "old.json", str(tmp_path / "link.json"), "/dev/null")
    assert (tmp_path / "old.json").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "old.json"]


@pytest.mark.parametrize("place", ["nowhere/x.json", "/proc/x.json", "."])
def test_a_summary_that_cannot_be_written_is_noticed_before_the_search(fuzz, place):
    code, _, err = fuzz("run", "silu", "--cases", "8", "--json", place)
    assert (code, f"{place} cannot be written" in err) == (2, True)
    code, _, err = fuzz("run", "--resume")
    assert (code, "there is no interrupted run" in err) == (2, True)


def test_a_run_that_is_resumed_keeps_to_its_budget(write, tmp_path, fuzz):
    words = ("run", "--subject", write(RIGHT), "--peer", "none", "--budget", "3s", "--seed", "1", "--quiet")
    process = start(*words, cwd=tmp_path)
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline and not list(tmp_path.glob("corpus/local/runs/*/campaign.json")):
        time.sleep(0.05)
    process.kill()
    process.wait()
    begin = time.monotonic()
    code, _, err = fuzz("run", "--resume", "--quiet")
    assert code == 0
    assert "resuming" in err
    assert time.monotonic() - begin < 20.0, "a minute is what it would take by default"
