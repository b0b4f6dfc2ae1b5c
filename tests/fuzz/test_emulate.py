"""`emulate`: what it prints, writes and returns."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from _command import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assay.fuzz.cli.toolbox import emulate
from kernel_assay.kernels.backends.simt.program.findings import ProgramFinding, ProgramRun
from kernel_assay.kernels.backends.simt.toolchain import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
TEXT = """__global__ void next(int* x) {
  if (threadIdx.x < 31) x[threadIdx.x] = x[threadIdx.x + BY];
}
int main() {
  int* x;
  cudaMalloc(&x, 32 * sizeof(int));
  cudaMemset(x, 0, 32 * sizeof(int));
  next<<<1, 32>>>(x);
  return cudaFree(x);
}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.cu").write_text(TEXT)
    (tmp_path / "folder.cu").mkdir()
    os.mkfifo(tmp_path / "pipe.cu")
    (tmp_path / "binary.cu").write_bytes(bytes(range(256)))
    return tmp_path


def test_findings_as_text_and_for_programs(folder, fuzz):
    code, out, _ = fuzz("emulate", "p.cu", "-DBY=2", "--json", "p.json", "--sarif", "p.sarif", "--seed", "6")
    message = (
        "p.cu:2: out-of-bounds: thread 30 of block 0 reads x[32] (p.cu, line 2), but it has 32 elements; kernel next"
    )
    assert message in out
    assert out.endswith("again: kassay emulate p.cu -DBY=2 --seed 6\n")
    told = json.loads((folder / "p.json").read_text())
    assert [f["kind"] for f in told["findings"] if not f["harmless"]] == ["out-of-bounds"]
    result = json.loads((folder / "p.sarif").read_text())["runs"][0]["results"][0]
    place = result["locations"][0]["physicalLocation"]
    assert (result["ruleId"], result["level"], place["region"]) == ("out-of-bounds", "error", {"startLine": 2})
    assert place["artifactLocation"] == {"uri": "p.cu", "uriBaseId": "SRCROOT"}
    assert (code, result["properties"]["seed"]) == (1, 6)


def test_a_clean_program(folder, fuzz):
    code, _, said = fuzz("emulate", "p.cu", "-DBY=0", "-Ifolder.cu", "-Inone")
    assert (code, said) == (0, "warning: -Inone is no folder: no header is searched there\n")


def asked(words):
    """What a command line asks for: the program, how it is run, and the line that repeats it."""
    finding, calls = ProgramFinding(kind="race", message="-", order="shuffle", seed=31), []
    run = ProgramRun(sources=("p.cu",), runs=1, launches=1, exit_code=0, findings=(finding,))

    def ran(request, settings, _):
        calls.append((request, settings))
        return run

    printed = io.StringIO()
    with (
        mock.patch.object(emulate, "compile_program", lambda request: request),
        mock.patch.object(emulate, "run_program", ran),
        redirect_stdout(printed),
        redirect_stderr(io.StringIO()),
    ):
        emulate.command.main(list(words), prog_name="emulate", standalone_mode=False)
    (call,) = calls
    return *call, shlex.split(printed.getvalue().rpartition("again: ")[2])


WORDS = st.text("ab .-='$*é", min_size=1, max_size=5)
OPTIONS = {
    "-D": st.builds("{}={}".format, st.sampled_from("AB"), WORDS),
    "-I": WORDS.filter(lambda word: word != "--"),  # which begins the arguments
    "--std": st.sampled_from(["c++17", "c++20"]),
    "--orders": st.integers(1, 1000).map(str),
    "--seed": st.integers(0, 2**40).map(str),
    "--timeout": st.floats(0.1, 86400).map(repr) | st.sampled_from(["5s", "0.5m"]),
    "--open": st.none(),
    "--fast": st.none(),
    "--jobs": st.integers(1, 16).map(str),
}


def test_each_option_is_known_to_the_property_below():
    told = {"--sarif", "--json"}  # where findings go: no business of a repetition
    assert {max(p.opts[:2], key=len) for p in emulate.command.params if p.opts[0] != "files"} == {*OPTIONS} | told


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(["p.cu", "-q.cu", "a b.cpp"]), min_size=1, unique=True),
    st.lists(st.one_of(st.tuples(st.just(name), values) for name, values in OPTIONS.items()), max_size=6),
    st.lists(WORDS | st.sampled_from(["x.cu", "--seed", "--"]), max_size=3),
)
def test_the_line_that_repeats_a_finding_asks_for_the_same(sources, options, arguments):
    words = [f"./{source}" if source[0] == "-" else source for source in sources]
    names = {name for name, _ in options}
    options = [*options, ("--fast", None)] if "--jobs" in names else options
    options = [word for option in options for word in option if word is not None]
    request, how, again = asked([*words, *options, *(["--", *arguments] if arguments else [])])
    assert (request.sources, how.arguments) == (tuple(map(Path, sources)), tuple(arguments))
    repeated, repeated_how, once_more = asked(again[2:])
    assert (repeated, repeated_how) == (request, replace(how, seed=31, orders=1))
    assert once_more == again


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.cu",), "none.cu cannot be read"),
        (("p.txt",), "p.txt is no source of a program"),
        (("folder.cu",), "folder.cu cannot be read (Is a directory)"),
        (("pipe.cu",), "pipe.cu cannot be read (it is a pipe or a device, and no file)"),
        (("p.cu", "--fast", "--jobs", "17"), "--jobs must be a whole number of at most 16, not '17'"),
        (("binary.cu",), "binary.cu is no text: it has bytes of value 0"),
        (("p.cu", "-D=3"), "-D=3 names no macro; -DNAME and -DNAME=VALUE do"),
        (("p.cu", "-D3x"), "-D3x names no macro"),
        (("p.cu", "--json", "no/p.json"), "no is no folder"),
        (("p.cu", "-DBY=)"), "p.cu, line 2: g++ says"),
        (("p.cu", "-DBY=0", "--std", "c++1"), "c++1"),
        (("p.cu", "--jobs", "2"), "--jobs needs --fast"),
    ],
)
def test_what_cannot_be_done(folder, fuzz, words, said):
    refused(fuzz("emulate", *words), said)


def test_sigterm_ends_it_as_ctrl_c_does(tmp_path):
    (tmp_path / "p.cu").write_text('#include <unistd.h>\nint main() { write(1, "up", 2); pause(); }')
    command = [sys.executable, "-m", "kernel_assay.fuzz", "emulate", "p.cu"]
    environment = {**os.environ, "PYTHONPATH": str(Path(emulate.__file__).parents[4])}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(2) == b"up"
    process.send_signal(signal.SIGTERM)
    assert (process.communicate(timeout=30)[1].strip(), process.returncode) == (b"kassay: interrupted", 130)
