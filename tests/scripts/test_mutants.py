"""The benchmark of mutants: what it changes, what it leaves, and what it says of each."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from test_nightly import module_of

from kernel_assay.corpus.model.subject import Subject

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
KERNEL = '''"""Twice x, if 1 < 2."""

OP = "silu"
BACKEND = "numpy"
NUMERICS = {"accumulate": "float32",
    "ftz": 1 < 2}


def run(out, x):
    out[...] = x + 2  # but 3 < 4
'''
CUDA = """/*
Twice x.
---
op = "silu"
block = 256
---
*/
#include <cuda_fp16.h>
#define N 8

__global__ void silu(float* out, const float* x, int n) {
  const int i = N;
  if (i < n) out[i] = x[i];
  __syncthreads();  // barrier 2
}
"""


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    return module_of(BENCH / "mutants", monkeypatch)


def changed(script, text, suffix):
    return sorted((name, text[begin:end], instead) for name, begin, end, instead in script.places(text, suffix))


def test_only_code_is_changed(script):
    assert changed(script, KERNEL, ".py") == [("constant", "2", "3"), ("sign", " + ", " - ")]
    assert changed(script, CUDA, ".cu") == [
        ("barrier", "__syncthreads();", ";"),
        ("bound", " < ", " <= "),
        ("statement", "  if (i < n) ", "  "),
    ]


@pytest.fixture
def subject(script, tmp_path):
    path = tmp_path / "right.py"
    path.write_text(KERNEL)
    return Subject(op="silu", name="right", backend="numpy", path=str(path))


def test_each_is_made_once_in_an_order_of_the_seed(script, subject, tmp_path):
    made = [list(script.mutants([subject], tmp_path, seed)) for seed in range(8)]
    assert {frozenset(m.sources[1] for m in mutants) for mutants in made} == {
        frozenset(KERNEL.replace("x + 2", new) for new in ("x - 2", "x + 3"))
    }
    assert len({mutants[0].change for mutants in made}) == 2
    assert made[0] == list(script.mutants([subject], tmp_path, 0))
    assert len({m.path for m in made[0]}) == 2


def test_each_kind_of_change_can_be_made_of_the_kernels_of_the_house(script, tmp_path):
    clean = [s for s in script.select([], planted=False) if s.backend in {"cuda", "triton", "numpy"}]
    found = Counter(m.change for m in script.mutants(clean, tmp_path, 1))
    assert min(found[change] for change in script.CHANGES) > 20


@pytest.mark.parametrize(("before", "after", "fate"), [
    ("np.exp(-", "np.exp(", "killed"),
    ("np.float32(1)", "np.float32(1.0)", "survives"),
    ("np.exp(-", "np.expp(-", "killed"),
    ("import numpy as np", "import nump as np", "cannot run"),
])  # fmt: skip
def test_what_comes_of_them(script, tmp_path, before, after, fate):
    text = (
        'import numpy as np\nOP = "silu"\nBACKEND = "numpy"\nDTYPES = ("float32",)\n\n\n@np.errstate(all="ignore")\n'
        "def run(out, x):\n    out[...] = x / (np.float32(1) + np.exp(-x))\n"
    )
    path, begin = tmp_path / "right.py", text.index(before)
    path.write_text(text)
    subject = Subject(op="silu", name="right", backend="numpy", path=str(path))
    mutant = script.Mutant(subject, "by hand", tmp_path / "m1_right.py", begin, begin + len(before), after)
    found = script.attempt(script.Task(mutant, 1, 1.0, time.monotonic() + 60))
    assert found.fate == fate
    assert bool(found.said) == (fate != "survives")
    assert script.attempt(script.Task(mutant, 1, 1.0, time.monotonic() - 1)) is None


def test_the_table_counts_them_and_survivors_are_shown(tmp_path):
    words = ("silu/numpy_fast_math", "--count", "6", "--limit", "0.5", "--jobs", "1", "--keep", str(tmp_path))
    done = subprocess.run([BENCH / "mutants", *words], capture_output=True, text=True, check=False, timeout=150)
    lines = done.stdout.splitlines()
    counts = Counter(line.partition(":")[0] for line in lines if "silu/numpy_fast_math," in line)
    assert lines[-1] == (
        f"mutants: {counts['killed']} killed, {counts['survives']} survive 0.5 s, {counts['cannot run']} cannot run"
    )
    assert counts.total() == len(list((tmp_path / "silu").glob("m*_numpy_fast_math.py"))) == 6
    assert counts["killed"] > 3
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_of_nothing_is_refused():
    done = subprocess.run([BENCH / "mutants", "nothing"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    sentence = "mutants: nothing is no file, and no clean built-in subject, op or backend; see --help"
    assert done.stderr.splitlines() == [sentence]
