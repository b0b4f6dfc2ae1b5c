"""What `new` writes runs at once, as the command itself says; nothing is ever overwritten."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from _command import refused

from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.oracles.catalog import forget_contracts, load_contracts

ROOT = Path(__file__).resolve().parents[2]
SHORT = ("--cases", "16", "--seed", "1", "--quiet", "--peer", "none")


@pytest.fixture
def fuzz(fuzz, tmp_path, monkeypatch):
    """A command, run in an empty folder; contracts that it added are forgotten again."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    def call(*words):
        forget_contracts()
        return fuzz(*words)

    yield call
    forget_contracts()


def advised(out):
    """The words of the command that `new` says to run, with a few cases instead of ten seconds."""
    *wrote, last = out.splitlines()
    assert all(line.startswith("wrote ") and Path(line.removeprefix("wrote ")).is_file() for line in wrote)
    assert last.startswith("run it: kassay run ")
    words = shlex.split(last)[4:]
    assert words[-2:] == ["--budget", "10s"]
    return [*words[:-2], *SHORT]


def written():
    return sorted(str(path) for path in Path().rglob("*") if path.is_file())


# every template runs


@pytest.mark.parametrize("op", list(load_contracts()))
def test_a_subject_runs_and_passes(fuzz, op):
    code, out, _ = fuzz("new", "subject", "mine", "--op", op)
    assert (code, written()) == (0, ["mine.py"])
    subject = user_subject("mine.py", ())
    assert (subject.op, subject.name, subject.planted) == (op, "mine", "")
    assert "Replace the body by your own." in subject.summary
    code, out, err = fuzz("run", *advised(out), "--json", "x.json")
    assert (code, "findings: none" in out) == (0, True), out + err
    assert f"{op}/mine" in out


@pytest.mark.parametrize("name", ["mine", "m" * 64])
@pytest.mark.parametrize("what", [("subject", "--op", op) for op in load_contracts()] + [("op",)])
def test_what_is_written_is_in_good_style(fuzz, what, name):
    assert fuzz("new", what[0], name, *what[1:])[0] == 0
    rules = ["--isolated", "--select", "E,W,F,I,D2,D4", "--ignore", "D203,D213"]
    for words in (["check", *rules], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *words, "--line-length", "120", f"{name}.py"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_a_subject_is_one_for_silu_unless_told(fuzz):
    fuzz("new", "subject", "mine")
    assert user_subject("mine.py", ()).op == "silu"


def test_a_subject_whose_body_is_replaced_is_noticed(fuzz):
    """That it passes is no accident: the file that was written is the one that runs."""
    _, out, _ = fuzz("new", "subject", "mine")
    path = Path("mine.py")
    path.write_text(path.read_text() + "\n\ndef run(out, x):\n    out[...] = 7\n")
    assert fuzz("run", *advised(out))[0] == 1


def test_an_op_runs_and_passes(fuzz):
    code, out, _ = fuzz("new", "op", "mine")
    assert (code, written()) == (0, ["mine.py", "mine_contract.py"])
    code, out, err = fuzz("run", *advised(out))
    assert (code, "findings: none" in out) == (0, True), out + err
    assert "mine/mine" in out
    assert "$" not in Path("mine_contract.py").read_text() + Path("mine.py").read_text()


def test_an_op_says_how_to_run_it_at_its_head(fuzz):
    fuzz("new", "op", "mine")
    line = next(x for x in Path("mine_contract.py").read_text().splitlines() if "kassay run" in x)
    code, out, _ = fuzz(*shlex.split(line)[1:], *SHORT)
    assert (code, "mine/mine" in out) == (0, True)


def test_the_kernel_of_a_new_op_is_held_to_the_contract_beside_it(fuzz):
    _, out, _ = fuzz("new", "op", "mine")
    path = Path("mine.py")
    text = path.read_text().replace("np.float32(bias)", "np.float32(bias) * 2")
    path.write_text(text.replace("OP =", 'DTYPES = ("float32",)\nOP =', 1))
    assert fuzz("run", *advised(out))[0] == 1


def test_the_files_of_an_op_are_those_of_the_folder(fuzz):
    code, out, _ = fuzz("new", "op", "mine", "--folder", "a/b")
    assert (code, written()) == (0, ["a/b/mine.py", "a/b/mine_contract.py"])
    assert fuzz("run", *advised(out))[0] == 0


def test_a_cuda_kernel_is_read_and_runs_where_it_can(fuzz):
    code, out, _ = fuzz("new", "cuda", "mine")
    assert (code, written()) == (0, ["mine.cu"])
    subject = user_subject("mine.cu", ())
    assert (subject.op, subject.backend, subject.function) == ("silu", "cuda", "silu")
    answer = fuzz("run", *advised(out))
    if loader_of("cuda").unavailable():
        assert answer[0] in {0, 2}
        assert "Traceback" not in answer[2]
    else:
        assert answer[0] == 0


@pytest.mark.parametrize(("what", "file"), [("subject", "mine.py"), ("cuda", "mine.cu")])
def test_another_folder_is_made_and_named(fuzz, what, file):
    code, out, _ = fuzz("new", what, "mine", "--folder", "a/b")
    assert (code, written()) == (0, [f"a/b/{file}"])
    assert out.startswith(f"wrote a/b/{file}\n")
    assert f"--subject a/b/{file} " in out


def test_the_command_can_be_pasted_whatever_the_folder_is_called(fuzz):
    _, out, _ = fuzz("new", "subject", "mine", "--folder", "my kernels")
    code, out, _ = fuzz("run", *advised(out))
    assert (code, "silu/mine" in out) == (0, True)


# what is refused


@pytest.mark.parametrize(
    ("what", "files"),
    [
        ("subject", ["mine.py"]),
        ("cuda", ["mine.cu"]),
        ("op", ["mine.py"]),
        ("op", ["mine_contract.py"]),
    ],
)
def test_nothing_is_overwritten(fuzz, what, files):
    for file in files:
        Path(file).write_text("precious")
    refused(fuzz("new", what, "mine"), files[0], "exists already", "--folder")
    assert written() == files, "and nothing is written by halves"
    assert {Path(file).read_text() for file in files} == {"precious"}


@pytest.mark.parametrize("name", ["Mine", "1st", "_x", "my-kernel", "my kernel", "x.py", "a/b", "../x", "", "größe"])
@pytest.mark.parametrize("what", ["op", "subject", "cuda"])
def test_a_bad_name_is_refused_in_one_sentence(fuzz, what, name):
    refused(fuzz("new", what, name), repr(name), "cannot be a name", "small letters")
    assert written() == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("op", "silu"), ("'silu' exists already", "new subject")),
        (("subject", "mine", "--op", "no_such_op"), ("'no_such_op' is not known", "softmax")),
        (("cuda", "mine", "--op", "softmax"), ("silu", "softmax")),
        (("kernel", "mine"), ("'kernel'", "subject")),
        (("op",), ("NAME",)),
    ],
)
def test_what_cannot_be_started_is_refused_in_one_sentence(fuzz, words, said):
    refused(fuzz("new", *words), *said)
    assert written() == []


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_a_folder_that_cannot_be_is_refused(fuzz, folder):
    Path("file").write_text("")
    refused(fuzz("new", "subject", "mine", "--folder", folder), folder)


def test_a_name_that_is_too_long_for_a_file_is_refused(fuzz):
    refused(fuzz("new", "subject", "a" * 300))


CONTRACT = """import numpy as np
from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output

CONTRACT = Contract(
    name="twice", summary="twice x", dims={"n": Dim(0, 64)}, inputs={"x": Input(("n",))},
    outputs={"out": Output(("n",), like="x")}, variants=({"x": "float32"},), reference=lambda x: {"out": x * 2.0},
)
"""


def test_an_op_of_ones_own_has_no_model_and_that_is_said(fuzz):
    Path("twice_contract.py").write_text(CONTRACT)
    refused(fuzz("new", "subject", "mine", "--op", "twice", "--contract", "twice_contract.py"), "twice")
    assert written() == ["twice_contract.py"]


def test_no_file_takes_the_place_of_a_module_that_the_tool_needs(fuzz):
    """Refused, or else it must run as it is told."""
    code, out, _ = fuzz("new", "subject", "numpy")
    if code == 2:
        return
    words = [sys.executable, "-m", "fuzz", "run", *advised(out)]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr[-300:]
