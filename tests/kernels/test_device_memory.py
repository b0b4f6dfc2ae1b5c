"""A large case where its subject runs: all that is done on a GPU, done by torch on the CPU, and judged as ever."""

import os
from random import Random

import numpy as np
import pytest
import torch

from kernel_assay.corpus.inputs.fingerprint import rows_digest
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject, TensorSpec
from kernel_assay.fuzz.checking.check import interface_of
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.support.guard import GAP, POISONS, ZONE, Guarded
from kernel_assay.kernels.boundary.output_transfer import bytes_of
from kernel_assay.kernels.boundary.protocol import STACK_AT
from kernel_assay.kernels.sandbox.decode import outcome_of
from kernel_assay.kernels.worker.device import DeviceAccess, DeviceSetting
from kernel_assay.kernels.worker.device_guard import DeviceMemory, on_host
from kernel_assay.kernels.worker.executor import Executor, execute
from kernel_assay.kernels.worker.worker import NO_ROOM, Worker, _CaseSettings
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.large.judge_large import LargeReference, Ran

ROWS, COLS = 200, 301
RIGHT = "    out.copy_(torch.nn.functional.silu(x.double()).to(out.dtype))\n"


def silu(dtype="float32", **fields):
    fill = Fill(distribution="normal", seed=7)
    return Case(op="silu", tensors={"x": TensorRecipe(shape=(ROWS, COLS), dtype=dtype, fill=fill, **fields)})


@pytest.fixture
def ran(tmp_path):
    """What a subject of silu made of a case, and the verdict on it; body: its lines."""

    def run(body, case=None, head="def run(out, x):"):
        case = case or silu()
        path = tmp_path / "kernel.py"
        path.write_text(f"import torch\nSTATE = []\n\n\n{head}\n{body}")
        subject = Subject(op=case.op, name="mine", backend="torch", path=str(path))
        contract = contract_of(case.op)
        access, face = DeviceAccess(loader_of("torch"), "cpu"), interface_of(contract)
        setting = DeviceSetting(case, contract.output_specs(case), "cpu")
        executor = Executor(setting, access, access.bound(subject, face), face.extra)
        said, payload = execute(executor, {"status": Status.OK, "input_digest": "", "input_rows": setting.rows})
        assert said["input_rows"] == rows_digest(case)
        outcome = outcome_of(subject.key, said, memoryview(b"".join(map(bytes_of, payload))), setting.specs)
        reference = LargeReference(contract, case, [subject.numerics])
        verdict = reference.judge({subject.key: Ran(subject, outcome.execution, outcome.outputs)})[subject.key]
        return outcome, verdict

    return run


def raw(tensor, before=0, behind=0):
    """Lines of a subject: a tensor as bytes, with some of what is before and behind it."""
    return (
        f"    start = {tensor}.storage_offset() * {tensor}.element_size() - {before}\n"
        f"    size = {tensor}.numel() * {tensor}.element_size() + {before + behind}\n"
        f"    raw = torch.empty(0, dtype=torch.uint8).set_({tensor}.untyped_storage(), start, (size,), (1,))\n"
    )


FAULTS = {
    "writes_before": (
        RIGHT + raw("out", before=4) + "    raw[:4] = 0\n",
        Kind.OUT_OF_BOUNDS,
        "1 byte before its start",
    ),
    "writes_past": (RIGHT + raw("out", behind=4) + "    raw[-4:] = 0\n", Kind.OUT_OF_BOUNDS, "at byte 240800"),
    "writes_before_its_input": (RIGHT + raw("x", before=1) + "    raw[0] = 0\n", Kind.OUT_OF_BOUNDS, "1 byte before"),
    "leaves_its_tail": ("    out[:-1] = torch.nn.functional.silu(x[:-1])\n", Kind.UNWRITTEN, "out[199, 0] was never"),
    "leaves_one": (
        "    out.view(-1)[:-1] = torch.nn.functional.silu(x).view(-1)[:-1]\n",
        Kind.UNWRITTEN,
        "out[199, 300] was never written (1 of 60200 elements were not)",
    ),
    "changes_input": (RIGHT + "    x[77, 5] += 1\n", Kind.INPUT_MUTATED, "'x'"),
    "every_second": (
        RIGHT + "    STATE.append(1)\n    out[5, 7] += len(STATE) % 2\n",
        Kind.NONDETERMINISTIC,
        "differ in 1 element, first at out[5, 7]",
    ),
    "wrong_last_row": (RIGHT + "    out[-1] = 3\n", Kind.MISMATCH, "out[199, "),
    "raises": ('    raise ValueError("no")\n', Kind.RAISED, "ValueError: no"),
    "declines": ('    raise NotImplementedError("not this")\n', Kind.UNSUPPORTED, "not this"),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_earns_its_verdict(ran, name):
    body, kind, words = FAULTS[name]
    verdict = ran(body)[1]
    assert verdict.kind is kind, verdict
    assert words in verdict.message


RETURNS = {
    "returns_input": ("    return x\n", Kind.ALIASED),
    "other_shape": ("    return torch.nn.functional.silu(x).view(-1)\n", Kind.WRONG_SHAPE),
    "other_dtype": ("    return torch.nn.functional.silu(x).double()\n", Kind.WRONG_DTYPE),
    "foreign_dtype": ("    return x.to(torch.complex64)\n", Kind.WRONG_DTYPE),
    "not_contiguous": ("    return torch.nn.functional.silu(x.t().contiguous()).t()\n", Kind.WRONG_LAYOUT),
    "no_tensor": ("    return 3\n", Kind.RAISED),
    "right": ("    return torch.nn.functional.silu(x.double()).float()\n", Kind.PASS),
}


@pytest.mark.parametrize("name", sorted(RETURNS))
def test_what_is_returned_is_judged_by_its_form(ran, name):
    body, kind = RETURNS[name]
    assert ran(body, head="def run(x):")[1].kind is kind


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_a_right_one_passes_in_every_layout_and_dtype(ran, layout, dtype):
    specials = (Special(value="nan", place="one_column"), Special(value="inf", place="last"))
    outcome, verdict = ran(RIGHT, silu(dtype, layout=layout, specials=specials))
    assert verdict.kind is Kind.PASS, verdict
    report = outcome.execution.outputs[0]
    assert (report.differing, report.unwritten, outcome.execution.damage, outcome.execution.mutated) == (0, 0, (), ())
    assert outcome.outputs["out"].dtype.name == dtype


def test_two_different_nan_are_no_difference(ran):
    body = "    STATE.append(1)\n    out.view(torch.int32)[...] = 0x7FC00000 + len(STATE)\n"
    report = ran(body)[0].execution.outputs[0]
    assert (report.differing, report.unwritten) == (0, 0)


def test_counts_and_places_are_those_of_the_host(ran, monkeypatch):
    """Also when they lie in several pieces."""
    monkeypatch.setattr("kernel_assay.kernels.worker.executor.PIECE", 1000)
    body = "    STATE.append(1)\n    out[150:] = 1\n    out[170, 100:104] += len(STATE)\n    out[:2] = 0\n"
    report = ran(body)[0].execution.outputs[0]
    assert (report.differing, report.first_differing) == (4, 170 * COLS + 100)
    assert (report.unwritten, report.first_unwritten) == (148 * COLS, 2 * COLS)


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_memory_is_laid_out_as_on_the_host_byte_for_byte(op):
    random, contract = Random(f"device {op}"), contract_of(op)
    for _ in range(25):
        case, _ = generate(Target(contract, max_elements=1 << 9), random)
        specs = contract.output_specs(case)
        host, here = Guarded(case.tensors, materialize_all(case), specs), DeviceMemory(case, specs, "cpu")
        assert here.rows_digest(case) == rows_digest(case)
        for run in (0, 1):
            host.reset(run)
            here.reset(run)
            for a, b in zip(host.buffers, here.buffers, strict=True):
                zones = slice(a.start - ZONE, a.limit)
                assert host._slab[zones].tobytes() == here._slab[zones].numpy().tobytes(), (case, a.name)
                assert (a.view.shape, a.start, a.stop, a.limit) == (tuple(b.view.shape), b.start, b.stop, b.limit)
        assert here.damage() == ([], [])


@pytest.mark.parametrize("layout", ["row_gaps", "element_gaps", "offset_one", "offset_room"])
def test_gaps_are_watched_and_mended(layout):
    case = silu(layout=layout)
    memory = DeviceMemory(case, {"out": TensorSpec(shape=(1,), dtype="float32")}, "cpu")
    buffer = memory.inputs[0]
    region = memory._slab[buffer.start : buffer.stop]
    free = np.ones(buffer.item.nbytes, bool)
    at = np.ndarray((*buffer.item.shape, 4), bool, free.data, buffer.item.offset, (*buffer.item.strides, 1))
    at[...] = False
    first = int(np.flatnonzero(free)[0])
    region[first] = 1
    damage, mutated = memory.damage()
    assert ([(d.buffer, d.offset, d.count) for d in damage], mutated) == ([("x", first, 1)], [])
    memory.reset(1)
    assert memory.damage() == ([], [])
    assert int(region[first]) == GAP


def test_a_changed_input_is_made_anew_for_the_next_run():
    case = silu()
    memory = DeviceMemory(case, {"out": TensorSpec(shape=(3,), dtype="float32")}, "cpu")
    memory.inputs[0].view[3, 4] = 9
    assert memory.damage() == ([], ["x"])
    memory.reset(1)
    assert on_host(memory.inputs[0].bits, "float32").tobytes() == materialize_all(case)["x"].tobytes()
    memory.inputs[0].view[3, 4] = 9
    memory.reset(0)  # nobody has looked: the subject raised
    assert memory.damage() == ([], [])
    assert memory.outputs[0].view.view(torch.uint8).tolist() == [POISONS[0]] * 12


def test_whose_memory_an_address_is():
    memory = DeviceMemory(silu(), {"out": TensorSpec(shape=(3,), dtype="float32")}, "cpu")
    x, out = memory.buffers
    assert memory.holds(x.view.data_ptr()) == "x"
    assert memory.holds(out.view.data_ptr() + 8) == "out"
    assert memory.holds(out.view.data_ptr() + 12) == memory.holds(1) == ""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """One whose GPU is the CPU, and a subject that it believes to run there."""
    monkeypatch.setattr("kernel_assay.kernels.worker.worker._GPU", "cpu")
    path = tmp_path / "kernel.py"
    path.write_text(f"import torch\n\n\ndef run(out, x):\n{RIGHT}")
    subject = Subject(op="silu", name="mine", backend="torch", device="cuda", path=str(path))
    journal = os.memfd_create("journal")
    os.ftruncate(journal, STACK_AT)
    made = Worker(None, journal)
    os.close(journal)
    monkeypatch.setattr(Worker, "_note", lambda *_: None)
    made._subjects, made._faces = {subject.key: subject}, {"silu": interface_of(contract_of("silu"))}
    return made


def test_a_worker_makes_a_large_case_there_and_nowhere_else(worker):
    rooms = _CaseSettings(silu(), contract_of("silu").output_specs(silu()), large=True)
    for _ in range(2):
        head, payload, _ = worker._run(rooms, "silu/mine", 0, 0, last=True)
        assert (head["status"], head["input_digest"], len(payload[0])) == ("ok", "", ROWS * COLS * 4)
    assert set(vars(rooms)) & {"here", "there"} == {"there"}
    rooms.leave()
    assert not set(vars(rooms)) & {"here", "there"}


def test_where_the_device_has_no_room_nobody_is_accused(worker, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    rooms = _CaseSettings(silu(), contract_of("silu").output_specs(silu()), large=True)
    monkeypatch.setattr("kernel_assay.kernels.worker.device.DeviceSetting", full)
    head, payload, _ = worker._run(rooms, "silu/mine", 0, 0, last=True)
    assert (head["status"], head["message"], payload) == ("unsupported", NO_ROOM, [])


def test_a_subject_that_cannot_be_loaded_there_is_told_so(worker):
    worker._subjects = {"silu/mine": worker._subjects["silu/mine"].but(function="nothing")}
    rooms = _CaseSettings(silu(), contract_of("silu").output_specs(silu()), large=True)
    head, *_ = worker._run(rooms, "silu/mine", 0, 0, last=True)
    assert head["status"] == "build_failed"
    assert "has no function 'nothing'" in head["message"]
