"""`fuzz-kernel`: what it finds, keeps, shows again and refuses."""

import json

import numpy as np
import pytest
from _command import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assay.kernels.backends.simt.toolchain import missing
from kernel_assay.kernels.programs.drawing import Draw
from kernel_assay.kernels.programs.witness import Given
from kernel_assay.kernels.sandbox.closing import why_open

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
KERNEL = """enum { CLEAN, RACE, TAIL, HANG, TICKET };
__global__ void k(float* out, int* count, const int* at, int n, int what) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (what == RACE) count[at[i]] += 1;
  if (what == TICKET) i = atomicAdd(count, 1);
  while (what == HANG && n > 20 && atomicAdd(count, 0) == 0) ;
  if (what != TAIL || i != 6) out[i] = what == TICKET ? threadIdx.x : .5f * i;
}
"""
INPUTS = """import numpy as np
WHAT = {what}
def inputs(draw):
    n, block = draw.integer(1, 64), draw.threads(32)
    args = {{"out": draw.out(n, "float32"), "count": draw.inout(np.zeros(n, np.int32)), "at": draw.indices(n, n)}}
    return {{"args": args | {{"n": n, "what": WHAT}}, "grid": (-(-n // block), 1), "block": block}}
{more}
"""
SERIAL = """TOLERANCE = 1e-6
def serial(out, count, at, n, what):
    return {"out": .5 * np.arange(n)}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.cu").write_text(KERNEL)
    return tmp_path


@pytest.fixture
def search(folder, fuzz):
    def searched(what, *words, more=""):
        (folder / "i.py").write_text(INPUTS.format(what=what, more=more))
        return fuzz("fuzz-kernel", "k.cu", "--inputs", "i.py", "--cases", "150", *words)

    return searched


def test_a_race_is_shrunk_kept_and_shown_again_until_it_is_repaired(folder, fuzz, search):
    code, out, _ = search(1, "--json", "found.json", more=SERIAL)
    found = json.loads((folder / "found.json").read_text())
    finding = found["finding"]
    assert (code, finding["kind"], found["shrunk"], found["compared"]) == (1, "race", True, True)
    assert np.prod(finding["grid"]) * np.prod(finding["block"]) == 2
    at, n = (Given.model_validate(a).array() for a in finding["arguments"][2:4])
    assert (at.tolist(), int(n)) == ([0, 0], 2)
    again = ("fuzz-kernel", "--replay", found["file"])
    assert out.endswith(f"again: kassay {' '.join(again)}\n")
    code, out, _ = fuzz(*again)
    assert code == 1
    assert out.startswith("k: race: ")
    (folder / "k.cu").write_text(KERNEL.replace("count[at[i]] += 1", "atomicAdd(count + at[i], 1)"))
    assert fuzz(*again)[0] == 0


def test_a_right_kernel_is_not_accused(search):
    code, out, _ = search(0, more=SERIAL)
    assert (code, out.split(" in ")[:2]) == (0, ["nothing found", "150 cases"])


def test_a_file_may_have_dataclasses(folder, fuzz):
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass S:\n    n: int\n"
    text = head + INPUTS.format(what=0, more="").replace("n, block = draw.integer(1, 64)", "n, block = S(8).n")
    (folder / "i.py").write_text(text)
    code, _, err = fuzz("fuzz-kernel", "k.cu", "--inputs", "i.py", "--cases", "20")
    assert code == 0, err


def test_a_kernel_may_take_a_bool(folder, fuzz):
    (folder / "k.cu").write_text("__global__ void k(int* out, bool flag) { *out = flag ? 1 : 2; }\n")
    args = "{'out': draw.out(1, 'int32'), 'flag': draw.one_of((True, False))}"
    inputs = f"def inputs(draw):\n    return {{'grid': 1, 'block': 1, 'args': {args}}}\n"
    (folder / "i.py").write_text(inputs + "def serial(out, flag):\n    return {'out': [1 if flag else 2]}\n")
    code, out, _ = fuzz("fuzz-kernel", "k.cu", "--inputs", "i.py", "--cases", "20")
    assert code == 0, out


def test_an_output_that_is_not_as_serial_has_it(search):
    code, out, _ = search(2, more=SERIAL)
    assert code == 1
    assert out.startswith("k: wrong-result: out[6] is ")
    assert "must be 3.0 (serial)" in out
    assert "  n = 7\n" in out


def test_outputs_that_depend_on_the_order(search):
    code, out, _ = search(4)
    assert code == 0
    assert out.startswith("note: order-dependent: out[")
    code, out, _ = search(4, more="DETERMINISTIC = True")
    assert code == 1
    assert "  n = 2\n" in out


def test_a_launch_that_does_not_end(search):
    code, out, _ = search(3, "--timeout", "1")
    assert code == 1
    assert out.startswith("k: timeout: the launch, or serial(), did not end in 1 s\n")


@pytest.mark.parametrize(
    ("what", "more", "said"),
    [
        ("1 / 0", "", "i.py cannot be imported: ZeroDivisionError: division by zero (line 2)"),
        ("0.5", "", "what is a whole number for the kernel, and 0.5 here"),
        ("0", "def serial(**_): return {'out': np.zeros(99)}", "serial() gives out of shape (99,)"),
        ("0", "def inputs(draw): return {}", "inputs() must return a dict of args, grid, block, and maybe shared"),
        ("0", "def inputs(draw):\n    while True: pass", "inputs() did not end in 1 s"),
        ("0", "def inputs(draw): exit()", "inputs() raises SystemExit"),
    ],
)
def test_what_a_file_does_wrong(search, what, more, said):
    refused(search(what, "--timeout", "1", more=more), said)


def test_a_file_writes_nothing(search):
    if why_open():
        pytest.skip(why_open())
    refused(search("open('k.cu', 'a')"), "Read-only file system")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("k.cu",), "name a kernel and its inputs"),
        (("no.cu", "--inputs", "k.cu"), "no.cu cannot be read"),
        (("k.cu", "--inputs", "no.py"), "no.py is no file"),
        (("k.cu", "--inputs", "k.cu", "--budget", "1s", "--cases", "1"), "exclude one another"),
        (("k.cu", "--inputs", "k.cu", "--kernel", "no"), "k.cu has no kernel 'no' that can be launched"),
        (("--replay", "k.cu"), "k.cu cannot be read as a finding of fuzz-kernel"),
        (("k.cu", "--replay", "k.cu"), "--replay knows kernel and inputs"),
    ],
)
def test_what_cannot_be_done(folder, fuzz, words, said):
    refused(fuzz("fuzz-kernel", *words), said)


def test_of_a_template_an_instance_is_to_be_named(folder, fuzz):
    text = "template <class T, int N> __global__ void red(T* x) { *x = N; }\n"
    asked = "k.cu has red as a template: name an instance, --kernel"
    for more, names in (("", "'red<float, 1>'"), (f"template __global__ void red<int, {4}>(int*);", "'red<int, 4>'")):
        (folder / "k.cu").write_text(text + more)
        refused(fuzz("fuzz-kernel", "k.cu", "--inputs", "k.cu"), f"{asked} {names}")


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_what_is_drawn_is_in_its_range(data):
    draw = Draw(data.draw)
    n = draw.integer(1, 20)
    rows, cols = draw.graph(n, degree=2)
    assert (rows[0], rows[-1], len(rows)) == (0, len(cols), n + 1)
    assert set(np.diff(rows)) <= {0, 1, 2}
    assert set(cols) <= set(range(n))
    assert len(set(draw.distinct(n, n + 3))) == n
    assert 1 <= draw.threads(48) <= 48
