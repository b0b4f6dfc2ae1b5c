"""Triton's own interpreter: what is mended of it is said, it runs as it is, and one that nobody knows is refused."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.interpreter_mends import AS_IS, INTERPRETED, MENDED, mended_text
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.selection import as_is
from kernel_assay.fuzz.replay.replay import Item, _without_namesakes
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.catalog import user_subject

needed = pytest.mark.skipif(bool(loader_of("triton").unavailable()), reason="Triton, of a version we know, is not here")
ROOT = Path(__file__).parents[2]
KERNEL = """import torch, triton
import triton.language as tl

OP = "silu"


@triton.jit
def kernel(out, x, n, size: tl.constexpr):
    at = tl.arange(0, size)
    v = tl.load(x + at, at < n, other=0.0).to(tl.float32)
    tl.store(out + at, v / (1 + tl.exp(-v)), at < n)


def run(out, x):
    kernel[(1,)](out, x, x.numel(), 64)
"""
CASE = Case(
    op="silu",
    tensors={"x": TensorRecipe(shape=(4, 8), dtype="bfloat16", fill=Fill(distribution="normal", seed=3))},
)


@pytest.fixture
def subject(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(KERNEL)
    return user_subject(str(path), ("silu",))


def kind_of(subject):
    with Examiner([subject]) as examiner:
        return examiner.check([CheckRequest(CASE, (subject.key,))])[0].verdicts[subject.key].kind


@needed
def test_a_fault_of_the_interpreter_shows_where_it_runs_as_it_is(subject):
    """It truncates what it stores as bfloat16."""
    (other,) = as_is([subject])
    assert (subject.backend, other.backend) == (INTERPRETED, AS_IS)
    assert (kind_of(subject), kind_of(other)) == (Kind.PASS, Kind.MISMATCH)


@needed
def test_all_that_is_mended_is_said():
    asked = "import kernel_assay.kernels.backends.triton_cpu.interpreter as t; print(*t.REPAIRS)"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", asked], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(MENDED)
    assert all(words in mended_text() for words in MENDED.values())


@needed
def test_a_version_that_nobody_knows_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda _: "3.6.0")
    assert loader_of(INTERPRETED).unavailable() == (
        "its interpreter is mended for Triton 3.9 and this is 3.6.0; --as-is runs it as it is"
    )
    assert loader_of(AS_IS).unavailable() == ""


def test_only_what_is_interpreted_is_run_as_it_is(subject):
    others = [subject.but(backend="torch"), subject.but(device="cuda")]
    assert as_is(others) == others


def test_a_replay_has_a_process_for_each_of_both(subject):
    item = Item("mended", CASE, subject)
    other = replace(item, subject=as_is([subject])[0].but(name="other"))
    torch = replace(item, subject=subject.but(name="third", backend="torch"))
    groups = _without_namesakes([item, other, torch])
    assert [[i for i, _ in group] for group in groups] == [[0, 2], [1]]
