"""A case in a debugger: where it stops, what it shows there, and what is said where there is no such debugger."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from _command import refused
from _silu import RIGHT, finding_of

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.findings import Element, Exhibit, Sanitized
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.debugging import session as sessions
from kernel_assay.fuzz.debugging.evidence import Place, places_of, wrong_element
from kernel_assay.fuzz.debugging.session import session_of
from kernel_assay.fuzz.replay.replay import Item
from kernel_assay.kernels.backends.simt.toolchain import missing
from kernel_assay.kernels.catalog import subjects_of, user_subject

emulated = pytest.mark.skipif(
    bool(missing()) or not shutil.which("gdb"), reason=missing() or "gdb is not installed, in which kernels are stopped"
)
HEAD = """// ---
// op = "silu"
// entry = "silu"
// args = ["out", "x", "n"]
// dims = { n = "x.size" }
// grid = "ceil_div(n, 32)"
// block = 32
// ---
"""
BEGIN = """__global__ void silu(float* out, const float* x, int n) {
  int i = blockIdx.x * 32 + threadIdx.x;
"""
WRONG_ELEMENT = f"""{HEAD}{BEGIN}  if (i >= n) return;
  float v = x[i];
  out[i] = v / (1 + expf(-v));
  if (i == 37) out[i] = v;
}}
"""
BEYOND = f"""{HEAD}__device__ void store(float* at, float v) {{ *at = v; }}
{BEGIN}  if (i > n) return;
  float v = i < n ? x[i] : 0;
  store(out + i, v / (1 + expf(-v)));
}}
"""
RACE = f"""{HEAD}{BEGIN}  __shared__ float all[32];
  all[threadIdx.x] = i < n ? x[i] : 0;
  float v = all[31 - threadIdx.x];
  if (i < n) out[i] = v / (1 + expf(-v));
}}
"""


def silu(*shape, dtype="float32", seed=0):
    fill = Fill(distribution="ones", seed=seed)
    return Case(op="silu", tensors={"x": TensorRecipe(shape=shape, dtype=dtype, fill=fill)})


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def stored(name, text, case, **changes):
    """A finding of a kernel in this folder, as a run would file it; its id."""
    Path(name).write_text(text)
    finding = finding_of(Path(name).resolve(), case, look=True)
    with Store(Path("corpus")) as store:
        return store.save_finding(finding.but(**changes)).id


# gdb, on emulated kernels


@emulated
def test_it_stops_at_the_store_that_made_the_element_wrong(fuzz):
    found = stored("mine.cu", WRONG_ELEMENT, silu(8, 5))
    code, out, err = fuzz("debug", found[:6], "--batch", "info locals; p $_siginfo.si_signo")
    assert (code, err) == (0, "")
    assert "thread (5, 0, 0) of block (1, 0, 0)\n" in out
    assert "New value = 1\n" in out
    assert re.search(r'^Line 14 of ".*/mine.cu"', out, re.MULTILINE)
    assert "i = 37\nv = 1\n" in out


@emulated
def test_it_stops_at_an_access_out_of_bounds_in_its_innermost_frame(fuzz):
    found = stored("mine.cu", BEYOND, silu(1, 1))
    code, out, _ = fuzz("debug", found, "--batch", "p at - 1; up; p i; p threadIdx.x; p blockDim.x")
    assert code == 0
    assert re.search(r"thread \(1, 0, 0\) of block \(0, 0, 0\)\n#\d+ .* store \(.*mine\.cu:9\n", out)
    assert re.findall(r"\$\d = (\d+)$", out, re.MULTILINE) == ["1", "1", "32"]


@emulated
def test_of_a_race_it_stops_at_the_later_access_and_the_other_can_be_switched_on(fuzz):
    found = stored("mine.cu", RACE, silu(1, 3))
    with Store(Path("corpus")) as store:
        later, other = places_of(store.finding(found))
    code, out, _ = fuzz("debug", found, "--batch", "info breakpoints; p all")
    assert code == 0
    assert f"thread {later.thread} of block (0, 0, 0)\n" in out
    assert f"mine.cu:{later.line}\n" in out
    assert {later.line, other.line} <= {12, 13}
    assert re.search(
        rf"^2 +breakpoint +keep n .*\n?.*(mine.cu:{other.line}|threadIdx.x == {other.thread[0]})", out, re.MULTILINE
    )


@emulated
def test_a_seeded_bug_is_shown_as_it_is_compiled(fuzz):
    subject = next(s for s in subjects_of("silu") if s.name == "bug_cuda_no_tail")
    with Store(Path("corpus")) as store:
        found = store.save_finding(finding_of(subject, silu(1, 5), look=True)).id
    code, out, _ = fuzz("debug", found, "--batch", "list silu")
    assert code == 0
    assert "thread (0, 0, 0) of block (0, 0, 0)" in out
    assert "__global__ void" in out


@emulated
def test_a_stop_that_is_not_reached_is_one_sentence(fuzz):
    found = stored("mine.cu", WRONG_ELEMENT, silu(8, 5))
    Path("mine.cu").write_text(WRONG_ELEMENT.replace("i == 37", "i == 137"))
    code, out, err = fuzz("debug", found, "--batch", "bt")
    assert code == 2
    assert "ran to its end, and stopped nowhere" in out
    assert err.startswith("kassay: the kernel did not come to where it was to stop")


@emulated
def test_an_op_without_a_finding_stops_where_the_kernel_begins(fuzz):
    Path("mine.cu").write_text(WRONG_ELEMENT)
    code, out, err = fuzz("debug", "silu", "--subject", "mine.cu", "--batch", "p n > 0")
    assert (code, err) == (0, "")
    assert "\n$1 = true\n" in out
    assert " of block (0, 0, 0)\n" in out


@emulated
def test_ctrl_c_is_the_debuggers(tmp_path):
    Path("mine.cu").write_text(WRONG_ELEMENT.replace("float v", "for (volatile int k = 0; !k;) {}\n  float v"))
    said = talk("silu", "--subject", "mine.cu", first=b"of block (0, 0, 0)", then=b"continue\n", after=b"quit\n")
    assert b"SIGINT" in said


# pdb


def talk(*words, first, then, after):
    """Begin a session, say `then` at the first stop, interrupt it, and say `after`; all that it printed."""
    child = subprocess.Popen(
        [sys.executable, "-m", "kernel_assay.fuzz", "debug", *words],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said = read_until(child, first)
        child.stdin.write(then)
        child.stdin.flush()
        time.sleep(1.5)
        os.killpg(child.pid, signal.SIGINT)
        rest, _ = child.communicate(after, timeout=60)
        assert child.returncode == 0, said + rest
        return said + rest
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)


def read_until(child, words):
    said = b""
    while words not in said:
        more = os.read(child.stdout.fileno(), 1 << 16)
        assert more, said
        said += more
    return said


def test_a_kernel_in_python_stops_where_it_begins_with_the_inputs_of_the_case(fuzz):
    found = stored("mine.py", RIGHT + "    out[:, 1:2] = 5\n", silu(2, 3))
    code, out, err = fuzz("debug", found, "--batch", "p x.tolist(); n; p w.dtype; p __import__('os').getpid()")
    assert (code, err) == (0, "")
    head = out.splitlines()
    assert head[0].endswith("mine.py(5)run()")
    assert head[2] == "[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]"
    assert "dtype('float64')" in head
    assert str(os.getpid()) not in head


def test_a_decorated_function_and_a_method_stop_in_their_own_code(fuzz):
    pytest.importorskip("torch")
    wrapped = "import functools\nOP = 'silu'\n\n\ndef same(f):\n    return functools.wraps(f)(lambda x: f(x))\n\n\n"
    Path("a.py").write_text(f"{wrapped}@same\ndef run(x):\n    y = x * 2\n    return y\n")
    assert "a.py(11)run()" in fuzz("debug", silu(1, 1).token, "--subject", "a.py:run", "--batch", "p 1")[1]
    Path("b.py").write_text(
        "import torch\nOP = 'silu'\nclass Mine(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    )
    assert "b.py(5)forward()" in fuzz("debug", silu(1, 1).token, "--subject", "b.py:Mine", "--batch", "p 1")[1]


def test_the_line_that_raised_is_the_next_stop(fuzz):
    found = stored("mine.py", RIGHT + "    if x.shape[1] == 3:\n        out[9, 9] = 1\n", silu(2, 3))
    _, out, _ = fuzz("debug", found, "--batch", "c; p 'here'")
    assert re.findall(r"mine\.py\((\d+)\)run", out) == ["5", "9"]


def test_a_kernel_that_loops_is_interrupted_by_a_person_and_the_command_goes_on(tmp_path):
    Path("mine.py").write_text(RIGHT + "    while x.shape[1]:\n        pass\n")
    said = talk("silu", "--subject", "mine.py", first=b"(Pdb)", then=b"continue\n", after=b"p 6 * 7\nquit\n")
    assert b"\n42\n" in said.replace(b"(Pdb) ", b"\n")
    assert b"Traceback" not in said


def test_a_program_stops_at_its_first_line(fuzz):
    Path("repro.py").write_text("a = 20\nb = a + 1\nprint(b)\n")
    code, out, _ = fuzz("debug", "repro.py", "--batch", "n; p a")
    assert code == 0
    assert "20" in out.splitlines()


def test_after_other_cases_it_is_said_that_they_do_not_run(fuzz):
    found = stored("mine.py", RIGHT + "    out[:, 1:2] = 5\n", silu(2, 3), before=(silu(1, 1),))
    assert fuzz("debug", found, "--batch", "p 1")[2] == (
        "warning: it fails after other cases only, and those are not run here\n"
    )


# what is printed, and refused


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_print_starts_nothing_and_leaves_a_command_that_can_be_typed(fuzz, monkeypatch):
    found = stored("mine.cu", WRONG_ELEMENT, silu(8, 5))
    monkeypatch.setattr(sessions, "which", lambda name: f"/bin/{name}")
    code, out, err = fuzz("debug", found, "--print")
    assert (code, err) == (0, "")
    assert out.startswith(Path("kassay-debug/script.gdb").read_text())
    assert "set $element = (char*)arguments[0].address + 148\n" in out
    assert "if *(unsigned int*)$element == 0x3f800000\n" in out
    command = out.splitlines()[-1]
    assert command.startswith("KERNEL_ASSAY_DEBUG=1 DEBUGINFOD_URLS= gdb -q ")
    if shutil.which("gdb"):
        typed = command.replace("gdb -q", "gdb -batch")
        done = subprocess.run(typed, shell=True, capture_output=True, text=True, check=False)
        assert "thread (5, 0, 0) of block (1, 0, 0)" in done.stdout, done


def test_cuda_gdb_stops_that_thread_and_goes_to_it(monkeypatch, tmp_path):
    monkeypatch.setattr(sessions, "placed_here", lambda subject: subject)
    monkeypatch.setattr(sessions, "which", lambda name: name)
    Path("mine.cu").write_text(WRONG_ELEMENT)
    item = Item("", silu(8, 5), user_subject("mine.cu", ()).but(device="cuda"))
    made = session_of(item, tmp_path, [])
    assert made.command[0] == "cuda-gdb"
    assert "tbreak silu\nrun\n" in made.script.read_text()
    words = "thread (5, 1) of block 2 writes 4 bytes of global memory, out of bounds in silu (mine.cu, line 12)"
    finding = stored_like(item).but(sanitized=(Sanitized(tool="memcheck", errors=1, message=words),))
    text = session_of(Item("", item.case, item.subject, finding), tmp_path, ["bt"]).script.read_text()
    wanted = "threadIdx.x == 5 && threadIdx.y == 1 && threadIdx.z == 0 && blockIdx.x == 2 && blockIdx.y == 0"
    assert f"break mine.cu:12 if {wanted} && blockIdx.z == 0\nrun\n" in text
    assert "\ncuda block 2,0,0 thread 5,1,0\n" in text


def stored_like(item):
    Path("wrong.py").write_text(RIGHT + "    out[:, 1:2] = 5\n")
    return finding_of(Path("wrong.py").resolve(), item.case, look=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing",), ("nothing",)),
        ((silu(1, 1).token,), ("kernels run", "name one file with --subject")),
        (("silu",), ("kernels run silu: ", "name one file with --subject")),
        (("silu", "--subject", "mine.py", "--batch", " ; "), ("--batch has no commands",)),
        (("silu", "--subject", "gone.py"), ("gone.py",)),
        (("silu", "--subject", f"mine.py@{sys.executable}", "--batch", "p 1"), ("in the tool's own Python only",)),
        (("silu", "--subject", "mine.py", "--print", "--out", "mine.py"), ("mine.py cannot be used",)),
    ],
)
def test_what_cannot_be_debugged_is_refused(fuzz, words, said):
    Path("mine.py").write_text(RIGHT)
    Path("corpus").mkdir()
    refused(fuzz("debug", *words), *said)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_debugger_that_is_missing_is_named(fuzz, monkeypatch):
    Path("mine.cu").write_text(WRONG_ELEMENT)
    monkeypatch.setattr(sessions, "which", lambda name: None)
    refused(fuzz("debug", "silu", "--subject", "mine.cu"), "gdb is not installed; install it, as by apt install gdb")
    monkeypatch.setattr(sessions, "placed_here", lambda subject: subject.but(device="cuda"))
    monkeypatch.setattr(sessions, "is_on_gpu", lambda subject: True)
    refused(fuzz("debug", "silu", "--subject", "mine.cu"), "cuda-gdb is not on the PATH", "--device cpu")


def test_without_a_gpu_a_finding_of_one_is_refused(fuzz):
    found = stored("mine.py", RIGHT + "    out[:, 1:2] = 5\n", silu(2, 3))
    refused(fuzz("debug", found, "--device", "cuda"), "there is no CUDA device")


# launch blocking


def test_launch_blocking_reaches_the_kernel(fuzz, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "0")
    Path("mine.py").write_text(RIGHT + "    assert __import__('os').environ['CUDA_LAUNCH_BLOCKING'] == '1'\n")
    words = ("replay", silu(1, 2).token, "--subject", "mine.py")
    Path("corpus").mkdir()
    assert fuzz(*words)[0] == 1
    assert fuzz(*words, "--launch-blocking")[0] == 0


# the evidence


@pytest.mark.parametrize(
    ("message", "places"),
    [
        (
            "thread 32 of block (1, 2) writes x[1] (a b.cu, line 14), which thread (0, 3) read (k.cuh, line 15), and",
            [Place("a b.cu", 14, (32, 0, 0), (1, 2, 0)), Place("k.cuh", 15, (0, 3, 0), (1, 2, 0))],
        ),
        (
            "thread 0 of block 1 writes out[3] (k.cu, line 9), which thread 4 of block 0 wrote (k.cu, line 9), and",
            [Place("k.cu", 9, (0, 0, 0), (1, 0, 0)), Place("k.cu", 9, (4, 0, 0), (0, 0, 0))],
        ),
        (
            "divergent barrier: thread 3 of block 0 is here, while 31 wait at the barrier of line 7 (k.cu, line 5)",
            [Place("k.cu", 5, (3, 0, 0), (0, 0, 0))],
        ),
        ("out[0, 0] is 1, must be 0.5", []),
    ],
)
def test_threads_and_lines_are_read_from_the_message(message, places):
    Path("wrong.py").write_text(RIGHT + "    out[:, 1:2] = 5\n")
    finding = finding_of(Path("wrong.py").resolve(), silu(2, 3))
    assert list(places_of(finding.but(verdict=finding.verdict.but(message=message)))) == places
    assert places_of(None) == ()


def exhibit(dtype, bits, **more):
    wrong = [Element(index=(1, 2), got=0, wanted=0, bits=bits), Element(index=(0, 3), got=0, wanted=0, bits=bits + 1)]
    right = Element(index=(0, 0), got=0, wanted=0, fails=False)
    return Exhibit(output="out", shape=(2, 4), dtype=dtype, elements=(*wrong[:1], right, *wrong[1:]), **more)


def test_the_first_wrong_element_is_watched_for_its_bits_and_for_any_nan():
    Path("wrong.py").write_text(RIGHT + "    out[:, 1:2] = 5\n")
    finding = finding_of(Path("wrong.py").resolve(), silu(2, 3))
    element = wrong_element(finding.but(exhibit=exhibit("float32", 7)))
    assert (element.output, element.at, element.bits, element.condition("v")) == ("out", 3, 8, " if v == 0x8")
    nan = wrong_element(finding.but(exhibit=exhibit("float16", int(np.float16("nan").view("u2")))))
    assert nan.condition("v") == " if (v & 0x7fff) > 0x7c00"
    varies = finding.verdict.but(kind=Kind.NONDETERMINISTIC)
    assert wrong_element(finding.but(exhibit=exhibit("float32", 7), verdict=varies)).condition("v") == ""
    unwritten = finding.verdict.but(kind=Kind.UNWRITTEN)
    assert wrong_element(finding.but(exhibit=exhibit("float32", 7), verdict=unwritten)) is None
    assert wrong_element(finding.but(exhibit=exhibit("float32", 7, partner=silu(1, 1)))) is None
    assert wrong_element(finding.but(exhibit=None)) is None
