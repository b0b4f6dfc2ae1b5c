"""Interpreted Triton in check mode: races between programs and undefined memory, by name and line; right ones pass."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking import check_mode
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.check_mode import EmulatingExaminer
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.simt.schedule import is_checked
from kernel_assay.kernels.catalog import user_subject

pytestmark = pytest.mark.skipif(bool(loader_of("triton").unavailable()), reason="triton is not installed")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def said():
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    script = Path(__file__).with_name("_triton_races.py")
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


RIGHT = ("added_atomically", "locked", "last_adds_up", "handed_on", "bytes_of_one_element")


@pytest.mark.parametrize("kernel", RIGHT)
def test_what_atomic_operations_order_is_no_race(said, kernel):
    assert set(said[kernel]) == {"fine"}


RACES = {
    "added_by_a_store": "reads out[0] #, which program N wrote #, and nothing orders the two",
    "added_atomically_for_its_own_block": "writes out[0] #, which program N wrote #, and nothing",
    "added_and_read": "writes out[0] #, which program N read #, and nothing",
    "locked_without_order": "reads out[0] #, which program N wrote #, and nothing",
    "anybody_adds_up": "reads parts[N] #, which program N wrote #, and nothing",
    "lanes_of_one_store": "writes out[0] #, with several values at once",
    "blocks_of_a_descriptor": "writes out[N] #, which program N wrote #, and nothing",
    "neighbour": "reads out[N] #, which program N wrote #, and nothing",
    "half_of_an_element": "writes word[0] #, which program N wrote #, and nothing",
}


def pattern(words):
    """A sentence on a race, in which N is any number and # a place in the file."""
    places = re.escape(words).replace(r"\#", r"\(_triton_races\.py, line \d+\)")
    return r"race: program \d+ " + places.replace("N", r"\d+")


@pytest.mark.parametrize("kernel", RACES)
def test_what_nothing_orders_is_a_race_in_every_order_of_programs(said, kernel):
    for sentence in said[kernel]:
        assert re.match(pattern(RACES[kernel]), sentence), sentence


def test_the_orders_of_programs_are_several(said):
    assert len(set(said["added_by_a_store"])) > 3


def test_a_volatile_load_orders_nothing(said):
    assert any(s.startswith("race") and "reads parts[0]" in s for s in said["seen_and_not_handed_on"])
    assert not any("flag" in s for s in said["seen_and_not_handed_on"]), "it does not race itself"


@pytest.mark.parametrize(("kernel", "element"), [("added_to_nothing", "out[0]"), ("last_adds_up_too_much", "parts[7]")])
def test_what_nobody_has_written_is_not_read(said, kernel, element):
    for sentence in said[kernel]:
        assert sentence.startswith("uninitialized: program ")
        assert f"reads {element} (_triton_races.py, line " in sentence


def test_stores_of_the_same_value_are_a_warning(said):
    for sentence in said["stores_the_same"]:
        assert sentence.startswith("fine program ")
        assert sentence.count("nothing orders the two") == 1, "one for a launch"


HEAD = """import torch
import triton
import triton.language as tl

OP = "silu"


@triton.jit
def _silu(out, x, n, size: tl.constexpr):
    i = tl.program_id(0) * size + tl.arange(0, size)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    tl.store(out + i, v / (1.0 + tl.exp(-v)), mask=i < n)


@triton.jit
def _half(scratch, n, size: tl.constexpr):
    i = tl.arange(0, size)
    tl.store(scratch + i, 0.0, mask=i < n // 2)


@triton.jit
def _plus(out, scratch, n, size: tl.constexpr):
    i = tl.arange(0, size)
    tl.store(out + i, tl.load(out + i, mask=i < n) + 0 * tl.load(scratch + i, mask=i < n), mask=i < n)


def run(x):
    out, n = torch.empty_like(x), x.numel()
    _silu[(triton.cdiv(n, 16),)](out, x, n, 16)
    %s
    return out
"""
CASES = [
    Case(
        op="silu", tensors={"x": TensorRecipe(shape=(5, 7), dtype="float32", fill=Fill(distribution="normal", seed=s))}
    )
    for s in range(1, 20)
]
CHECKED = next(case for case in CASES if is_checked(case))
UNCHECKED = next(case for case in CASES if not is_checked(case))
SCRATCH = {
    "empty": "scratch = torch.empty(64)",
    "half": "scratch = torch.empty(64); _half[(1,)](scratch, n, 64)",
    "zeroed": "scratch = torch.empty(64).zero_()",
    "zeros": "scratch = torch.zeros(64)",
    "both halves": "scratch = torch.empty(64); _half[(1,)](scratch, n, 64); _half[(1,)](scratch, 2 * n, 64)",
}


ADDS = (HEAD % "pass").replace(
    "def run(x):\n    out, n = torch.empty_like(x), x.numel()", "def run(out, x):\n    n = x.numel()"
)
ADDS = ADDS.replace("    return out\n", "").replace("v / (1.0", "0 * tl.load(out + i, mask=i < n) + v / (1.0")
TEXTS = {
    **{way: HEAD % f"{text}; _plus[(1,)](out, scratch, n, 64)" for way, text in SCRATCH.items()},
    "adds": ADDS,
    "stored twice": (HEAD % "pass").replace("(triton.cdiv(n, 16),)", "(triton.cdiv(n, 16), 2)"),
}


def mine(folder, name):
    path = folder / f"{name.replace(' ', '_')}.py"
    path.write_text(TEXTS[name])
    return user_subject(str(path), ())


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """What was found of each in a case that is judged, and in one that is not."""
    folder = tmp_path_factory.mktemp("kernels")
    subjects = {name: mine(folder, name) for name in TEXTS}
    keys = tuple(s.key for s in subjects.values())
    with Examiner([*subjects.values()]) as examiner:
        both = examiner.check([CheckRequest(CHECKED, keys), CheckRequest(UNCHECKED, keys)])
    return {n: [(one.verdicts[s.key], one.executions[s.key]) for one in both] for n, s in subjects.items()}


@pytest.mark.parametrize("way", SCRATCH)
def test_scratch_that_torch_or_a_launch_has_written_is_defined(checked, way):
    found = checked[way][0][0]
    if way in {"empty", "half"}:
        element = 0 if way == "empty" else 17
        assert found.kind is Kind.UNINITIALIZED
        assert found.message == f"program 0 reads scratch[{element}] ({way}.py, line 24), which nobody has written"
    else:
        assert found.kind is Kind.PASS, found.message


def test_an_output_is_undefined_at_first_and_one_case_in_four_is_judged(checked):
    assert [verdict.kind is Kind.UNINITIALIZED for verdict, _ in checked["adds"]] == [True, False]


def test_a_warning_comes_with_the_execution(checked):
    (judged, execution), (_, other) = checked["stored twice"]
    assert judged.kind is Kind.PASS
    (said,) = execution.warnings
    assert "writes out[" in said
    assert not other.warnings


def test_a_kernel_on_a_gpu_is_interpreted_beside_it(tmp_path):
    there = mine(tmp_path, "adds").but(device="cuda")
    assert check_mode.wanted([there]) == {there.key: ""}
    with EmulatingExaminer([there], timeout=30.0, memory_mb=2048) as beside:
        (found,) = beside.check([beside.request(0, CHECKED)])
    assert found.verdicts[there.key].kind is Kind.UNINITIALIZED
