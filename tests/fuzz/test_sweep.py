"""Billions of inputs, in small: two processes, one wrong element of a million, a subject that dies or hangs."""

import re

import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.reading import case_of
from kernel_assay.fuzz.exhaustive.sweep import ROWS, Sweeper, domains, excerpt, last_word, part_of
from kernel_assay.kernels.backends.cuda_support.driver import device_count
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.kernels.sandbox.closing import why_open
from kernel_assay.oracles.catalog import contract_of

ONES = 0x3F800000 // 256
"""The row that begins with 1.0."""
RIGHT = """import numpy as np
import os, time
import ml_dtypes
OP = "convert"
DTYPES = ("float32",)


def run(out, x, *, to, saturate=False):
    with np.errstate(all="ignore"):
        out[...] = x.astype(out.dtype)
    bits = x.view(np.uint32)
"""
GATED = """import numpy as np
OP = "silu_gate"
DTYPES = ("float16",)


@np.errstate(all="ignore")
def run(gate, up):
    wide = gate.astype(np.float32)
    return (wide / (1 + np.exp(-wide)) * up.astype(np.float32)).astype(np.float16)
"""


@pytest.fixture
def write(tmp_path):
    def subject(text, op="convert"):
        path = tmp_path / "mine.py"
        path.write_text(text)
        return user_subject(str(path), (op,))

    return subject


def swept(subject, first, rows, *, timeout=60.0, part=1024, number=0):
    (case, *_) = domains(contract_of(subject.op), subject)[number:]
    with Sweeper(subject, timeout=timeout, part=part) as sweeper:
        return sweeper.sweep(case, first, rows).sweep


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("first", [0, ONES, 0x7F800000 // 256 - 2048, 0xFFF00000 // 256])
def test_what_is_right_holds(write, first, number):
    """A million inputs in four parts."""
    found = swept(write(RIGHT), first, 4096, number=number)
    assert (found.kind, found.message) == (Kind.PASS, "")
    assert found.case.elements == 1 << 32


def test_it_is_closed_in(write, tmp_path):
    mark = tmp_path / "mark"
    body = f"    try:\n        open({str(mark)!r}, 'w').close()\n    except OSError:\n        pass\n"
    assert swept(write(RIGHT + body), ONES, 1024).kind is Kind.PASS
    assert mark.exists() is bool(why_open())


@pytest.mark.parametrize("name", ["numpy_bits", "torch_to"])
def test_kernels_of_the_house_hold(name):
    subject = next(s for s in subjects_of("convert") if s.name == name)
    assert swept(subject, ONES, 1024).kind is Kind.PASS


def test_one_wrong_input_of_a_million_is_found(write):
    """It is named with a case that shows it."""
    wrong = RIGHT + "    out[bits == 0x3F8ABCDE] += np.float32(0.001)\n"
    found = swept(write(wrong), ONES, 4096)
    assert found.kind is Kind.MISMATCH
    token = re.search(r"case:\S+", found.message)[0]
    assert "; 1 of inputs" in found.message
    assert case_of(token).tensors["x"].pokes == ((0, 0x3F8ABCDE),)


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        ("    out[bits == 0x3F8ABCDE] = np.nan\n", Kind.NONFINITE, "nan"),
        ("    raise ValueError('no such number')\n", Kind.RAISED, "ValueError: no such number"),
        ("    raise NotImplementedError('not yet')\n", Kind.UNSUPPORTED, "not yet"),
        ("    if (bits == 0x3F880000).any(): os._exit(7)\n", Kind.CRASHED, "exit code 7"),
        ("    os.kill(os.getpid(), 11)\n", Kind.CRASHED, "SIGSEGV"),
        ("    if (bits == 0x3F880000).any(): time.sleep(60)\n", Kind.TIMEOUT, "did not finish in 2 s"),
    ],
)
def test_what_goes_wrong_is_a_verdict(write, line, kind, words):
    found = swept(write(RIGHT + line), ONES, 4096, timeout=2.0)
    assert found.kind is kind
    assert words in found.message


@pytest.mark.parametrize("poison", [0x5A5A, 0xA6A6])
def test_what_was_never_written_is_seen(write, poison):
    """Whatever stands there: in the other run these are other bytes."""
    lazy = RIGHT.replace("out[...] = x.astype(out.dtype)", SKIPPED)
    row = int(np.uint16(poison).view(np.float16).astype(np.float32).view(np.uint32)) // 256
    assert swept(write(lazy), row - 512, 1024).kind is Kind.MISMATCH
    assert swept(write(RIGHT), row - 512, 1024).kind is Kind.PASS


SKIPPED = """near = x.astype(out.dtype)
        written = ~np.isin(near.view(np.uint16), [0x5A5A, 0xA6A6])
        out[written] = near[written]"""


def test_pairs(write):
    """Whole gates, of which one product is wrong by more than the budget, or none."""
    first = 0x3C00 * 256
    found = swept(write(GATED, "silu_gate"), first, 1024)
    assert (found.kind, found.message) == (Kind.PASS, "")
    wrong = GATED.replace("    return (", "    up = np.where((gate == 1) & (up == 3), up * 2, up)\n    return (")
    found = swept(write(wrong, "silu_gate"), first, 1024)
    assert found.kind is Kind.MISMATCH
    assert "1 of inputs" in found.message


def test_a_subject_that_does_not_load_is_refused(write):
    with pytest.raises(UsageError, match="does not import"):
        Sweeper(write("OP = 'convert'\nimport nothing_of_that_name\n\ndef run(x, *, to):\n    return x\n"), part=1)


def test_domains_are_whole():
    """Every number once: the parts follow each other, and the last one ends with the last pattern."""
    numpy = next(s for s in subjects_of("convert") if s.name == "numpy_bits")
    cases = domains(contract_of("convert"), numpy)
    assert [c.attrs["to"] for c in cases] == ["float16", "bfloat16"]
    assert part_of(cases[0], ROWS - 2, 2).tensors["x"].origin == (ROWS - 2, 0)
    assert domains(contract_of("silu"), numpy) == []


def test_two_judges_that_disagree_are_told(write):
    """What the oracle clears is no failure, and where it has not seen all of it, no pass."""
    subject = write(RIGHT)
    case = part_of(domains(contract_of("convert"), subject)[0], ONES, 4)
    listed = [(ONES * 256, 0x3C00)]
    small, outputs = excerpt(case, listed)
    assert small.tensors["x"].pokes == ((0, 0x3F800000),)
    assert outputs["out"].tolist() == [[1.0]]
    assert last_word(subject, case, {"failed": 1, "listed": listed, "rho": 0.0}) == 1.0
    assert last_word(subject, case, {"failed": 17, "listed": listed, "rho": 0.0}).kind is Kind.INCONCLUSIVE


@pytest.mark.skipif(not device_count(), reason="there is no GPU")
@pytest.mark.parametrize("alone", [False, True], ids=["memory of the GPU", "by the host"])
@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("convert/cuda_vector", Kind.PASS),
        ("convert/torch_to", Kind.PASS),
        ("convert/bug_cuda_truncated", Kind.MISMATCH),
        ("silu_gate/cuda_vector", Kind.PASS),
        ("silu_gate/torch_silu", Kind.PASS),
    ],
)
def test_on_a_gpu(key, kind, alone, monkeypatch):
    """The last domain of each, a million inputs of it; where memory cannot be shared the output goes by the host."""
    if alone:
        monkeypatch.setattr(Sweeper, "_greeting", lambda self, peer: {**GREETING(self, peer), "handle": ""})
    op, _, name = key.partition("/")
    subject = next(s for s in subjects_of(op) if s.name == name).but(device="cuda")
    with Sweeper(subject, part=1024) as sweeper:
        assert not (alone and sweeper.shared)
        assert sweeper.sweep(domains(contract_of(op), subject)[-1], ONES, 4096).sweep.kind is kind


GREETING = Sweeper._greeting
