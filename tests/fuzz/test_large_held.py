"""Large cases whose outputs a process of the judge's takes over: on the CPU here, on a GPU where there is one."""

import os
import signal
import time
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from random import Random
from typing import ClassVar

import pytest

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking import large_check, large_policy
from kernel_assay.fuzz.checking import output_holder as module
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.output_holder import HolderProcess
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.selection import placed
from kernel_assay.fuzz.checking.subjects import fitting
from kernel_assay.fuzz.generation.model_shapes import seed_cases
from kernel_assay.kernels.backends.cuda_support.driver import device_count
from kernel_assay.kernels.boundary.output_transfer import IPC, SHARED
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.kernels.sandbox.batch import LostError, NoRoomError
from kernel_assay.oracles.catalog import contract_of

pytest.importorskip("torch")

needs_gpu = pytest.mark.skipif(not device_count(), reason="there is no CUDA device")
FAULTS = {p.stem: user_subject(str(p), ()) for p in sorted((Path(__file__).parents[1] / "faults").glob("*.py"))}
UNSEEN = {"returns_cached"}
"""Faults of small cases only: of a large one no result is held until the next is there."""
SILU = {s.name: s for s in subjects_of("silu")}
PEER = SILU["numpy_float32"]
ROWS, COLS = 700, 901
RIGHT = "    w = x.astype(np.float64)\n    out[...] = (w / (1.0 + np.exp(-w))).astype(x.dtype)\n"


class SharedHolder(HolderProcess):
    """One whose process goes on to the next test, as to start it costs two seconds; a GPU's does not."""

    waiting: ClassVar[list] = []

    @cached_property
    def process(self):
        if self._device != "cpu" or not self.waiting:
            return HolderProcess.process.func(self)
        process, vars(self)["_memory"] = self.waiting.pop()
        return process

    def close(self):
        if self._device == "cpu" and "process" in vars(self):
            with suppress(InternalError):  # it has died
                if self.ask("forget") == {}:  # else that was the answer to something before
                    self.waiting.append((vars(self).pop("process"), vars(self).pop("_memory")))
        super().close()


@pytest.fixture(scope="module", autouse=True)
def shared_holder():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_check, "HolderProcess", SharedHolder)
        yield
    while SharedHolder.waiting:
        last = SharedHolder("cpu")
        last.process  # noqa: B018  it takes the one that waits
        HolderProcess.close(last)


@pytest.fixture
def own_holder(monkeypatch):
    """For tests of the process itself: it begins and ends with the examiner."""
    monkeypatch.setattr(large_check, "HolderProcess", HolderProcess)


@pytest.fixture(autouse=True)
def lowered(monkeypatch):
    """Everything above a megabyte is large."""
    monkeypatch.setattr(large_policy, "LARGE", 1 << 20)


@pytest.fixture
def without(monkeypatch):
    """Nothing has a reference in float64."""
    monkeypatch.setattr(HolderProcess, "refer", lambda self, case: {})


@pytest.fixture
def taken(monkeypatch):
    """What was taken over, in order."""
    found, take = [], HolderProcess.take

    def noted(self, subject, report, offer):
        output = take(self, subject, report, offer)
        found.append((subject, offer["way"]))
        return output

    monkeypatch.setattr(HolderProcess, "take", noted)
    return found


def silu(*shape, **fields):
    fill = Fill(distribution="normal", seed=1)
    return Case(op="silu", tensors={"x": TensorRecipe(shape=shape, dtype="float32", fill=fill, **fields)})


CASE = silu(ROWS, COLS)


@pytest.fixture
def kernel(tmp_path):
    def write(name, lines=""):
        path = tmp_path / f"{name}.py"
        head = 'import os, threading\nimport numpy as np\nOP = "silu"\n\n\ndef run(out, x):\n'
        path.write_text(head + RIGHT + lines)
        return user_subject(str(path), ())

    return write


def asked(case, *subjects, **settings):
    with Examiner(subjects, **{"timeout": 5.0, "judge": "cpu", **settings}) as examiner:
        return examiner.check([CheckRequest(case, tuple(s.key for s in subjects))])[0]


@pytest.fixture(scope="module")
def faulty():
    with Examiner([PEER, *FAULTS.values()], timeout=0.7, memory_mb=256, judge="cpu") as made:
        yield made


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_earns_the_verdict_that_it_earns_on_the_host(faulty, name):
    fault = FAULTS[name]
    checked = faulty.check([CheckRequest(CASE, (PEER.key, fault.key))])[0]
    assert checked.verdicts[PEER.key].kind is Kind.PASS
    verdict = checked.verdicts[fault.key]
    assert verdict.kind == (Kind.PASS if name in UNSEEN else fault.planted or Kind.PASS), verdict


def test_one_wrong_element_is_found_beside_a_peer(kernel, without, taken):
    wrong = kernel("wrong", "    out[345, 678] += 1\n")
    for order in ((wrong, PEER), (PEER, wrong)):
        said = asked(CASE, *order).verdicts
        assert (said[PEER.key].kind, said[wrong.key].kind) == (Kind.PASS, Kind.MISMATCH)
        assert said[wrong.key].message.startswith("out[345, 678] is ")
        assert said[wrong.key].blame == "wrong differs from the others; numpy_float32 agrees with the oracle"
        (share,) = said[wrong.key].shares
        assert (share.peer, share.reference) == (ROWS * COLS, 0)
        assert [(one.peer, one.at) for one in share.apart] == [("numpy_float32", (345, 678))]
        assert "compared with numpy_float32 (max ULP " in share.text
    assert taken == [(s.key, SHARED) for s in (PEER, wrong, PEER, wrong)]


def test_alone_without_a_reference_it_is_not(kernel, without):
    wrong = kernel("wrong", "    out[345, 678] += 1\n")
    assert asked(CASE, wrong).verdicts[wrong.key].kind is Kind.PASS


def test_one_wrong_element_is_found_alone_with_a_reference(kernel):
    wrong, right = kernel("wrong", "    out[345, 678] += 1\n"), kernel("right")
    with Examiner([wrong, right], judge="cpu") as examiner:
        for subject, kind in ((wrong, Kind.MISMATCH), (right, Kind.PASS)):
            checked = examiner.check([CheckRequest(CASE, (subject.key,))])[0]
            assert list(checked.verdicts) == [subject.key]
            verdict = checked.verdicts[subject.key]
            assert verdict.kind is kind
            (share,) = verdict.shares
            assert (share.peer, share.reference) == (0, ROWS * COLS)
            assert "compared with a float64 reference (max ULP " in share.text
            assert share.apart[0].ulps == (0 if subject is right else share.apart[0].ulps)
        look = examiner.look(CASE, wrong.key)
        assert [e.index for e in look.exhibit.elements] == [(345, 678)]


def test_without_a_reference_sums_of_the_rows_of_a_product_tell(kernel, without, tmp_path):
    """A wrong element that no part holds, of a subject alone."""
    fills = {n: Fill(distribution="normal", seed=i) for i, n in enumerate("ab")}
    shapes = {"a": (600, 64), "b": (64, 500)}
    case = Case(op="gemm", tensors={n: TensorRecipe(shape=shapes[n], dtype="float32", fill=fills[n]) for n in "ab"})
    text = 'import numpy as np\nOP = "gemm"\n\n\ndef run(out, a, b):\n    out[...] = a @ b\n'
    for name, line, kind in (("right", "", Kind.PASS), ("wrong", "    out[345, 123] += 5\n", Kind.MISMATCH)):
        path = tmp_path / f"{name}.py"
        path.write_text(text + line)
        subject = user_subject(str(path), ())
        verdict = asked(case, subject).verdicts[subject.key]
        assert verdict.kind is kind
        assert verdict.shares[0].algebra == 600 * 500
        assert kind is Kind.PASS or verdict.message.startswith("out[345, 123] is ")


@pytest.mark.parametrize("layout", ["offset_one", "transposed", "broadcast"])
def test_layouts_and_special_values(kernel, layout):
    case = silu(ROWS, COLS, layout=layout, specials=(Special(value="nan", place="one_column"),))
    wrong = kernel("wrong", "    out[np.isnan(out)] = 1\n")
    said = asked(case, wrong, PEER).verdicts
    assert (said[wrong.key].kind, said[PEER.key].kind) == (Kind.NONFINITE, Kind.PASS)


@pytest.mark.parametrize("op", ["gemm", "gemm_int8", "convert", "row_argmax", "softmax", "attention", "quantize"])
def test_right_subjects_of_other_ops_pass_and_are_compared(op):
    contract, random = contract_of(op), Random(op)
    seeds = [case for _ in range(9) for case in seed_cases(contract, random.randint, 1 << 23)]
    plain = (c for c in seeds if all(t.layout != "broadcast" for t in c.tensors.values()))
    case = next(c for c in plain if large_policy.is_large(contract, c))
    ours = [s for s in subjects_of(op) if s.backend in {"numpy", "torch"} and not s.planted]
    chosen = [s for s in ours if s.key in fitting(ours, case)][:3]
    verdicts = asked(case, *chosen, timeout=60.0).verdicts.values()
    assert {v.kind for v in verdicts} <= {Kind.PASS, Kind.UNSUPPORTED}
    passed = [v for v in verdicts if v.kind is Kind.PASS]
    assert passed
    if len(passed) > 1:
        assert all(s.of == s.peer + s.reference and s.apart for v in passed for s in v.shares)


def test_a_worker_that_dies_after_it_has_handed_over_loses_nothing(kernel, taken):
    right = kernel("right")
    dies = kernel("dies", "    os._exit(3)\n")
    said = asked(CASE, right, dies, PEER).verdicts
    assert {k: v.kind for k, v in said.items()} == {
        right.key: Kind.PASS,
        dies.key: Kind.CRASHED,
        PEER.key: Kind.PASS,
    }
    assert [subject for subject, _ in taken] == [PEER.key, right.key]


def test_what_was_lost_on_its_way_is_run_again_alone(kernel, monkeypatch):
    """The first worker dies before its offer is met, the second does not."""
    right, take, lost = kernel("right"), HolderProcess.take, []

    def late(self, subject, report, offer):
        if not lost:
            lost.append(offer["pid"])
            os.kill(offer["pid"], signal.SIGKILL)
            _gone(offer["pid"])
        return take(self, subject, report, offer)

    monkeypatch.setattr(HolderProcess, "take", late)
    said = asked(CASE, right, PEER).verdicts
    assert len(lost) == 1
    assert {v.kind for v in said.values()} == {Kind.PASS}


def _gone(pid):
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and Path(f"/proc/{pid}/fd/0").exists():
        time.sleep(0.01)


def test_who_dies_each_time_before_its_output_is_taken_has_crashed(kernel, monkeypatch):
    """As with a thread that outlives the run."""
    take = HolderProcess.take

    def late(self, subject, report, offer):
        if subject == dies.key:
            _gone(offer["pid"])
        return take(self, subject, report, offer)

    dies = kernel("dies", "    threading.Timer(0.3, os._exit, (3,)).start()\n")
    monkeypatch.setattr(HolderProcess, "take", late)
    said = asked(CASE, dies, PEER).verdicts
    assert (said[dies.key].kind, said[PEER.key].kind) == (Kind.CRASHED, Kind.PASS)
    assert "exited with 3" in said[dies.key].message


def test_what_a_living_worker_offers_and_cannot_be_had_is_our_own_fault(monkeypatch):
    def lost(*_):
        raise LostError("no such file")

    monkeypatch.setattr(HolderProcess, "take", lost)
    with pytest.raises(InternalError, match="cannot get at what silu/numpy_float32 left: no such file"):
        asked(CASE, PEER)


def test_where_the_first_way_does_not_work_the_other_one_is_taken(monkeypatch, taken):
    """It is not tried again."""
    take, tried = HolderProcess.take, []

    def refuses(self, subject, report, offer):
        tried.append(self.way)
        if self.way == IPC:
            raise LostError("CUDA_ERROR_NOT_SUPPORTED")
        return take(self, subject, report, offer)

    monkeypatch.setattr(HolderProcess, "take", refuses)
    monkeypatch.setattr(module, "SHARED", IPC)  # where the process begins
    assert {v.kind for v in asked(CASE, PEER, SILU["torch_silu"]).verdicts.values()} == {Kind.PASS}
    assert tried == [IPC, SHARED, SHARED]
    assert [way for _, way in taken] == [SHARED, SHARED]


def test_what_there_is_no_room_for_is_nobodys_fault(monkeypatch):
    def full(*_):
        raise NoRoomError("CUDA out of memory")

    monkeypatch.setattr(HolderProcess, "take", full)
    said = asked(CASE, PEER).verdicts[PEER.key]
    assert (said.kind, "do not fit beside what the oracle holds" in said.message) == (Kind.UNSUPPORTED, True)


@pytest.mark.usefixtures("own_holder")
def test_the_death_of_the_judge_is_our_own_trouble_and_another_is_started():
    with Examiner([PEER], judge="cpu") as examiner:
        request = [CheckRequest(CASE, (PEER.key,))]
        assert examiner.check(request)[0].verdicts[PEER.key].kind is Kind.PASS
        os.kill(examiner._large_cases.holder.process.pid, signal.SIGKILL)
        with pytest.raises(InternalError, match="the oracle of large cases: its process ended"):
            examiner.check(request)
        assert examiner.check(request)[0].verdicts[PEER.key].kind is Kind.PASS


@pytest.mark.usefixtures("own_holder")
def test_it_is_started_for_large_cases_only_and_ends_with_the_examiner():
    small = silu(3, 5)
    with Examiner([PEER], judge="cpu") as examiner:
        examiner.check([CheckRequest(small, (PEER.key,))])
        assert "process" not in vars(examiner._large_cases.holder)
        examiner.check([CheckRequest(CASE, (PEER.key,)), CheckRequest(CASE, (PEER.key,))])
        pid = examiner._large_cases.holder.process.pid
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()


def test_on_the_cpu_nobody_starts_it():
    with Examiner([PEER]) as examiner:
        examiner.check([CheckRequest(CASE, (PEER.key,))])
        assert "process" not in vars(examiner._large_cases.holder)


def test_a_judge_that_does_not_start_is_told():
    with Examiner([PEER], judge="nowhere") as examiner, pytest.raises(InternalError, match="does not start"):
        examiner.check([CheckRequest(CASE, (PEER.key,))])


def test_a_recipe_that_cannot_be_made_is_a_mistake_of_the_users():
    recipe = CASE.tensors["x"].but(fill=Fill(distribution="nothing_of_that_name"))
    with pytest.raises(UsageError, match="nothing_of_that_name"):
        asked(CASE.but(tensors={"x": recipe}), PEER)


@needs_gpu
@pytest.mark.parametrize("way", [IPC, SHARED])
def test_on_a_gpu(tmp_path, taken, monkeypatch, way):
    """A wrong element alone and beside a peer, in torch and CUDA C++; a right kernel is right."""
    monkeypatch.setattr(module, "IPC", way)
    body = "    out.copy_(x.double().div(1 + (-x.double()).exp()).to(out.dtype))\n"
    for name, lines in (("right", ""), ("wrong", "    out[345, 678] += 1\n")):
        head = 'import torch\nOP = "silu"\nBACKEND = "torch"\n\n\ndef run(out, x):\n'
        (tmp_path / f"{name}.py").write_text(head + body + lines)
    ours = placed([user_subject(str(tmp_path / f"{name}.py"), ()) for name in ("right", "wrong")], "cuda")
    with Examiner(ours, timeout=60.0) as examiner:
        for keys in ([s.key for s in ours], *([s.key] for s in ours)):
            said = examiner.check([CheckRequest(CASE, tuple(keys))])[0].verdicts
            for key, verdict in said.items():
                assert verdict.kind is (Kind.MISMATCH if key == "silu/wrong" else Kind.PASS), verdict
    assert {given for _, given in taken} == {way}
