"""What NVIDIA's tools say of a case: on demand, of a new finding by itself, and where a person reads it afterwards."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from _command import refused, snapshot
from _nvidia import BEYOND, MEASURED, WORDS, Bench
from _silu import RIGHT, WRONG, finding_of, right

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.findings import Sanitized, State
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.triage import sanitize
from kernel_assay.fuzz.triage.failures import Failure
from kernel_assay.fuzz.triage.triage import investigate
from kernel_assay.kernels.backends.torch import GpuTorchLoader
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.kernels.nvidia import sanitizer
from kernel_assay.reports.book import Book
from kernel_assay.reports.forms import formats
from kernel_assay.reports.plain.finding_text import closeup
from kernel_assay.reports.plain.run_text import finding_text

CASE = Case(op="silu", tensors={"x": TensorRecipe(shape=(2, 5), dtype="float16", fill=Fill(distribution="ones"))})
SAYS = {"runs": False}
STUMBLED = "========= Internal Sanitizer Error: no memory\n========= ERROR SUMMARY: 0 errors\n"


@pytest.fixture(autouse=True)
def bench(tmp_path, monkeypatch):
    """A folder with kernels, stand-ins for the tools, and what looks like a GPU."""
    monkeypatch.chdir(tmp_path)
    Path("right.py").write_text(RIGHT)
    Path("wrong.py").write_text(WRONG)
    Path("case.json").write_text(json.dumps(CASE.plain()))
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sanitizer, "device_count", lambda: 1)
    monkeypatch.setattr(GpuTorchLoader, "unavailable", lambda self: "")
    sanitizer.version.cache_clear()
    yield Bench(folder)
    sanitizer.version.cache_clear()


@pytest.fixture(scope="module")
def filed(tmp_path_factory):
    """A finding as a run would file it."""
    path = tmp_path_factory.mktemp("made") / "wrong.py"
    path.write_text(right("float16") + "    out[:, 3:4] = 5\n")
    return finding_of(path, CASE, look=True)


@pytest.fixture
def found(filed):
    """The same, stored, of a kernel in this folder that torch would run."""
    subject = filed.subject.but(path=str(Path("wrong.py").resolve()), backend="torch")
    with Store(Path("corpus")) as store:
        return store.save_finding(filed.but(subject=subject))


def stored(found):
    with Store(Path("corpus")) as store:
        return store.finding(found.id)


def cpu(name="right.py"):
    return user_subject(name, ())


# sanitize: the function


def test_a_subject_runs_under_each_tool_and_nothing_is_wrong(bench):
    bench.sanitizer()
    said = sanitize.sanitize(CASE, cpu())
    assert bench.asked == ["memcheck", "racecheck", "initcheck", "synccheck"]
    assert [(s.tool, s.errors, s.message, s.trouble, s.silent) for s in said] == [
        (tool, 0, "", "", True) for tool in bench.asked
    ]
    assert {s.version for s in said} == {"2025.3.1.0"}


def test_what_a_tool_reports_is_told(bench):
    bench.sanitizer(initcheck={"log": BEYOND})
    (said,) = sanitize.sanitize(CASE, cpu(), ("initcheck",))
    assert (said.tool, said.errors, said.message, said.silent) == ("initcheck", 1, WORDS, False)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"code": 255, "said": "unrecognised option '--bogus'"}, "unrecognised option '--bogus'"),
        ({"code": 1, "said": "Traceback (most recent call last):\n  File\nOSError: full"}, "OSError: full"),
        ({"code": 0, "said": ""}, "it ended and said nothing"),
        ({"log": "========= Error: Device not supported\n"}, "Error: Device not supported"),
        ({"log": ""}, "it ended and said nothing"),
        (
            {"log": "========= Internal Sanitizer Error: no memory\n========= ERROR SUMMARY: 0 errors\n"},
            "Internal Sanitizer Error: no memory",
        ),
    ],
)
def test_no_answer_is_not_taken_for_silence(bench, how, words):
    bench.sanitizer(memcheck={"runs": False, **how})
    (said,) = sanitize.sanitize(CASE, cpu(), ("memcheck",))
    assert (said.errors, said.silent, said.trouble) == (0, False, words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("raise ValueError('no luck')", "the subject did not run through (raised): ValueError: no luck"),
        ("raise NotImplementedError('rows')", "the subject did not run through (unsupported): rows"),
    ],
)
def test_a_subject_that_did_not_run_is_not_clean(bench, line, words):
    bench.sanitizer()
    Path("stops.py").write_text(f"{RIGHT}    {line}\n")
    (said,) = sanitize.sanitize(CASE, cpu("stops.py"), ("memcheck",))
    assert said.trouble == words


def test_a_tool_that_hangs_is_ended(bench):
    bench.sanitizer(memcheck={"sleeps": 600, "runs": False})
    begin = time.monotonic()
    (said,) = sanitize.sanitize(CASE, cpu(), ("memcheck",), 2.0)
    assert (said.trouble, time.monotonic() - begin < 30) == ("it gave no answer within 2 s", True)


def test_what_a_tool_said_before_it_hung_counts(bench):
    bench.sanitizer(memcheck={"sleeps": 600, "runs": False, "log": BEYOND})
    assert sanitize.sanitize(CASE, cpu(), ("memcheck",), 2.0)[0].message == WORDS


def test_an_unknown_tool_is_refused():
    with pytest.raises(UsageError, match="no tool 'leakcheck'; there are memcheck, racecheck, initcheck, synccheck"):
        sanitize.sanitize(CASE, cpu(), ("leakcheck",))


# sanitize: the command


def test_errors_are_printed_and_kept_with_the_finding(fuzz, bench, found, monkeypatch):
    monkeypatch.setattr("kernel_assay.reports.plain.terminal.WIDTH", 500)
    bench.sanitizer(memcheck={**SAYS, "log": BEYOND}, racecheck=SAYS, initcheck=SAYS, synccheck=SAYS)
    code, out, err = fuzz("sanitize", found.id)
    assert (code, err) == (1, "")
    assert f"silu/wrong  memcheck        1  {WORDS}\n" in out
    assert "silu/wrong  racecheck       0  silent\n" in out
    kept = stored(found)
    assert [(s.tool, s.errors) for s in kept.sanitized] == [(tool, int(tool == "memcheck")) for tool in bench.asked]
    assert (kept.count, kept.state, kept.history) == (found.count, found.state, found.history)
    shown = fuzz("show", found.id)[1]
    assert "what compute-sanitizer 2025.3.1.0 says of it\n" in shown
    assert f"  memcheck: {WORDS} (1 error)\n  racecheck, initcheck, synccheck: silent\n" in shown


def test_a_clean_case_of_a_kernel_of_ones_own(fuzz, bench):
    bench.sanitizer(memcheck=SAYS, synccheck=SAYS)
    Path("mine.py").write_text('BACKEND = "torch"\n' + RIGHT)
    code, out, err = fuzz(
        "sanitize", CASE.token, "--subject", "mine.py", "--tool", "memcheck", "--tool", "synccheck", "--json", "x.json"
    )
    assert (code, err, bench.asked) == (0, "", ["memcheck", "synccheck"])
    assert out.count("silent") == 2
    first, _ = json.loads(Path("x.json").read_text())
    assert (first["subject"], first["case_id"], first["tool"], first["errors"]) == (
        "silu/mine", CASE.id, "memcheck", 0
    )  # fmt: skip
    assert not Path("corpus/local").exists()


def test_a_tool_asked_again_replaces_what_it_said_and_leaves_the_others(fuzz, bench, found):
    bench.sanitizer(memcheck={**SAYS, "log": BEYOND}, racecheck=SAYS)
    fuzz("sanitize", found.id, "--tool", "memcheck", "--tool", "racecheck")
    bench.sanitizer(memcheck=SAYS)
    assert fuzz("sanitize", found.id, "--tool", "memcheck")[0] == 0
    assert [(s.tool, s.errors) for s in stored(found).sanitized] == [("memcheck", 0), ("racecheck", 0)]


def test_no_answer_is_an_error_of_usage_and_is_not_kept(fuzz, bench, found):
    bench.sanitizer(memcheck={"code": 255, "said": "Device not supported"})
    before = snapshot()
    code, out, err = fuzz("sanitize", found.id, "--tool", "memcheck")
    assert code == 2
    assert "no answer: Device not supported" in out
    assert err == "kassay: there is no answer for silu/wrong: memcheck: Device not supported\n"
    assert snapshot() == before


@pytest.mark.parametrize(
    ("command", "program"),
    [(["sanitize"], "compute-sanitizer"), (["profile"], "ncu"), (["profile", "--tool", "nsys"], "nsys")],
)
def test_without_the_program_or_a_gpu_it_is_said(fuzz, monkeypatch, found, bench, command, program):
    real = shutil.which
    monkeypatch.setattr(sanitizer, "which", lambda name: None if name == program else real(name))
    refused(fuzz(*command, found.id), f"{program} is not on the PATH")
    monkeypatch.setattr(sanitizer, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(sanitizer, "device_count", lambda: 0)
    refused(fuzz(*command, found.id), "there is no CUDA device")
    assert bench.asked == []


@pytest.mark.parametrize("command", ["sanitize", "profile"])
def test_a_kernel_that_no_gpu_runs_is_refused(fuzz, bench, command):
    bench.sanitizer()
    bench.ncu()
    refused(fuzz(command, CASE.token, "--subject", "right.py"), "silu/right runs on numpy", "nothing to do with a GPU")
    assert bench.asked == []


def test_a_backend_that_is_not_installed_is_named(monkeypatch, filed):
    monkeypatch.setattr(GpuTorchLoader, "unavailable", lambda self: "torch is not installed")
    with pytest.raises(UsageError, match="silu/wrong cannot run on a GPU here, because torch is not installed"):
        sanitize.placed_on_gpu(filed.subject.but(backend="torch"))


# a new finding


@pytest.fixture
def gpu(monkeypatch):
    """Subjects of the CPU count as placed on a GPU."""
    monkeypatch.setattr(sanitize, "is_on_gpu", lambda subject: True)


def investigated(**fields):
    subject = cpu("wrong.py").but(**fields)
    with Examiner([subject], timeout=5.0) as examiner:
        verdict = examiner.check([CheckRequest(CASE, (subject.key,))])[0].verdicts[subject.key]
        found = investigate(examiner, Failure(CASE, subject, verdict, "r1:0"), seconds=1.0).finding
    return sanitize.watched(found)


@pytest.mark.usefixtures("gpu")
def test_a_new_finding_is_explained_before_it_is_stored(bench):
    bench.sanitizer(racecheck={"log": BEYOND})
    found = investigated()
    assert [(s.tool, s.errors) for s in found.sanitized] == [("memcheck", 0), ("racecheck", 1)]
    assert found.state is State.MINIMIZED
    assert bench.asked == ["memcheck", "racecheck"], "what explains it is enough"


@pytest.mark.usefixtures("gpu")
def test_a_planted_bug_is_not(bench):
    bench.sanitizer()
    assert (investigated(planted="mismatch").sanitized, bench.asked) == ((), [])


def test_a_finding_of_the_cpu_is_not(bench):
    bench.sanitizer()
    assert (investigated().sanitized, bench.asked) == ((), [])


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        (True, {"state": State.FLAKY, "probability": 0.2}),
        (False, {"state": State.FLAKY, "probability": 0.0}),
        (False, {"state": State.CONFIRMED}),
        (False, {"claim": "consistent with a fast exp"}),
        (False, {"before": (CASE,)}),
        (False, {"sanitized": (Sanitized(tool="memcheck"),)}),
    ],
)
def test_what_is_asked_about(bench, filed, asked, fields):
    """Nobody tells more of a race that shows now and then."""
    bench.sanitizer()
    finding = filed.but(**{"state": State.MINIMIZED, **fields})
    assert (sanitize.watched(finding) is not finding) == asked == bool(bench.asked)


@pytest.mark.usefixtures("gpu")
def test_without_the_tool_nothing_is_asked(bench, monkeypatch):
    monkeypatch.setattr(sanitizer, "which", lambda name: None)
    assert investigated().sanitized == ()


@pytest.mark.usefixtures("gpu")
def test_a_tool_that_hangs_costs_a_search_no_more_than_its_time(bench, monkeypatch, filed):
    monkeypatch.setattr(sanitize, "AUTOMATIC_SECONDS", 2.0)
    bench.sanitizer(memcheck={"sleeps": 600})
    begin = time.monotonic()
    (said,) = sanitize.watched(filed.but(state=State.MINIMIZED)).sanitized
    assert said.trouble == "it gave no answer within 2 s"
    assert (bench.asked, time.monotonic() - begin < 30) == (["memcheck"], True)


@pytest.mark.parametrize(("backend", "device", "on_it"), [("cuda", "cuda", True), ("cuda", "cpu", False)])
def test_who_runs_on_a_gpu(backend, device, on_it):
    assert sanitize.is_on_gpu(cpu().but(backend=backend, device=device)) == on_it
    assert sanitize.is_on_gpu(cpu().but(backend="cupy"))


# where it is read


SAID = (
    Sanitized(tool="memcheck", version="2025.3.1.0", errors=1234, message="thread 0 <b>writes</b>"),
    Sanitized(tool="racecheck", version="2025.3.1.0"),
    Sanitized(tool="initcheck", trouble="it gave no answer within 20 s"),
)
LINES = (
    "memcheck: thread 0 <b>writes</b> (1,234 errors)",
    "initcheck: no answer, for it gave no answer within 20 s",
    "racecheck: silent",
)


def test_a_finding_keeps_what_was_said_through_the_store(filed):
    with Store(Path("corpus")) as store:
        first = store.save_finding(filed.but(sanitized=SAID))
        again = store.save_finding(filed.but(count=1))
        assert first.sanitized == again.sanitized == store.finding(filed.id).sanitized == SAID


def test_what_was_said_of_a_larger_case_goes_with_it(filed):
    smaller = CASE.but(tensors={"x": CASE.tensors["x"].but(shape=(1, 5))})
    with Store(Path("corpus")) as store:
        store.save_finding(filed.but(sanitized=SAID))
        assert store.save_finding(filed.but(case=smaller)).sanitized == ()


def test_every_form_tells_it(filed):
    book = Book((filed.but(sanitized=SAID),))
    texts = {form: formats()[form].render(book) for form in ("text", "markdown", "html", "json")}
    for line in LINES:
        escaped = line.replace("<", "&lt;").replace(">", "&gt;")
        assert f"   sanitizer {line}\n" in texts["text"]
        assert f"- compute-sanitizer {escaped}\n" in texts["markdown"]
        assert f"compute-sanitizer {escaped}<" in texts["html"]
    (told,) = json.loads(texts["json"])["findings"]
    assert tuple(Sanitized.model_validate(s) for s in told["sanitized"]) == SAID
    assert "\n".join(f"  {line}" for line in LINES) in closeup(book, book.findings[0])


def test_without_it_no_form_speaks_of_it(filed):
    book = Book((filed,))
    texts = [formats()[form].render(book) for form in ("text", "markdown", "html")]
    assert not any("sanitizer" in text for text in (*texts, closeup(book, filed), finding_text(filed)))


def test_a_replay_still_tells_it(fuzz, filed):
    with Store(Path("corpus")) as store:
        store.save_finding(filed.but(subject=cpu("wrong.py"), sanitized=SAID))
    assert fuzz("replay", filed.id)[0] == 1
    assert stored(filed).sanitized == SAID


# profile


def test_each_kernel_is_a_row(fuzz, bench, found):
    bench.ncu(log=MEASURED)
    code, out, err = fuzz("profile", found.id)
    assert (code, err) == (0, "")
    head, row = (line.split() for line in out.splitlines())
    assert head == ["subject", "kernel", "us", "DRAM", "%", "SM", "%", "registers", "occupancy", "%"]
    assert row == ["silu/wrong", "wrong", "2.85", "12.5", "0.09", "16", "65.1"]
    assert fuzz("profile", found.id, "--json", "x.json")[0] == 0
    (told,) = json.loads(Path("x.json").read_text())
    assert (told["kernel"], told["microseconds"], told["registers"]) == ("wrong", pytest.approx(2.848), 16.0)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"log": "==ERROR== ERR_NVGPUCTRPERM - no permission\n", "code": 1}, "ERR_NVGPUCTRPERM - no permission"),
        ({"log": "==WARNING== No kernels were profiled.\n"}, "No kernels were profiled."),
        ({"out": '{"status": "raised", "message": "ValueError: x"}'}, "did not run through (raised): ValueError: x"),
        ({"out": "", "code": 3}, "it ended and said nothing"),
    ],
)
def test_where_nothing_was_measured_it_is_said_why(fuzz, bench, found, how, words):
    bench.ncu(**how)
    refused(fuzz("profile", found.id), "ncu measured nothing of silu/wrong: ", words)


def test_a_profiler_that_hangs_is_ended(fuzz, bench, found):
    bench.ncu(sleeps=600)
    refused(fuzz("profile", found.id, "--timeout", "2"), "ncu gave no answer within 2 s")


def test_nsys_records_and_its_tables_are_shown(fuzz, bench, found):
    bench.nsys()
    code, out, err = fuzz("profile", found.id, "--tool", "nsys", "--json", "x.json")
    assert (code, err) == (0, "recorded in kassay-profile\n")
    assert "** CUDA GPU Kernel Summary" in out
    (told,) = json.loads(Path("x.json").read_text())
    assert Path(told["report"]).read_text() == "a report"
    assert "--trace cuda,nvtx --sample none --force-overwrite true --stats true" in " ".join(bench.asked)


@pytest.mark.parametrize(
    ("how", "words"), [({"runs": False, "code": 1}, "it ended and said nothing"), ({"runs": False}, "said nothing")]
)
def test_where_nsys_saw_nothing_it_is_said(fuzz, bench, found, how, words):
    bench.nsys(**how)
    refused(fuzz("profile", found.id, "--tool", "nsys"), "nsys measured nothing of silu/wrong: ", words)


TORCH = "import torch\nOP = 'silu'\n\n\ndef run(x):\n    return torch.mul(x, torch.sigmoid(x))\n"


def test_torch_profiles_operators_on_the_cpu_and_leaves_a_trace(fuzz):
    pytest.importorskip("torch")
    Path("mine.py").write_text(TORCH)
    code, out, err = fuzz("profile", CASE.token, "--subject", "mine.py", "--tool", "torch", "--json", "x.json")
    assert (code, err) == (0, "recorded in kassay-profile\n")
    assert out.splitlines()[0].split() == ["subject", "operator", "calls", "CPU", "us", "GPU", "us"]
    told = {one["operator"]: one for one in json.loads(Path("x.json").read_text())}
    assert told["aten::sigmoid"]["calls"] == told["aten::mul"]["calls"] == 1
    assert told["aten::sigmoid"]["cpu_microseconds"] > 0
    (trace,) = Path("kassay-profile").iterdir()
    assert "aten::sigmoid" in {e.get("name") for e in json.loads(trace.read_text())["traceEvents"]}


def test_an_op_is_profiled_by_its_name_at_a_shape_of_models(fuzz):
    pytest.importorskip("torch")
    Path("mine.py").write_text(f"{TORCH}    \n")
    assert fuzz("profile", "silu", "--subject", "mine.py", "--tool", "torch", "--json", "x.json")[0] == 0
    names = {one["operator"] for one in json.loads(Path("x.json").read_text())}
    assert {"aten::mul", "aten::sigmoid"} <= names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (RIGHT, "it calls no operator of torch"),
        (f"{RIGHT}    raise ValueError('no')\n", "did not run through (raised): ValueError: no"),
    ],
)
def test_what_torch_cannot_profile_is_said(fuzz, text, words):
    pytest.importorskip("torch")
    Path("mine.py").write_text(text)
    said = fuzz("profile", CASE.token, "--subject", "mine.py", "--tool", "torch")
    refused(said, "torch.profiler measured nothing of silu/mine: ", words)
