"""Cupy's subjects without a GPU: their formulas on a stand-in of numpy (tests/kernels/_fake), everything but CUDA."""

import ast
import sys
from pathlib import Path

import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.campaign.search import Limits, Search
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.planning.plan import new_campaign
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends import cupy as module
from kernel_assay.kernels.backends.cuda_support import driver, late_streams
from kernel_assay.kernels.backends.cuda_support.late_streams import is_streamed
from kernel_assay.kernels.backends.cupy import CupyLoader
from kernel_assay.kernels.backends.support.base import Returned
from kernel_assay.kernels.backends.support.guard import Guarded
from kernel_assay.kernels.catalog import ROOT, subjects_of, user_subject
from kernel_assay.oracles.catalog import contract_of, load_contracts

FAKE = Path(__file__).with_name("_fake")
OURS = [s for op in load_contracts() for s in subjects_of(op) if s.backend == "cupy"]


@pytest.fixture
def fake(monkeypatch):
    """The stand-in, here and in workers."""
    for name in [n for n in sys.modules if n.partition(".")[0] in {"cupy", "cupyx", "cuda"}]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(FAKE))
    monkeypatch.setattr(module, "device_count", lambda: 1)
    monkeypatch.setattr(late_streams, "DRIVER", driver.Driver())
    late_streams._wait.cache_clear()
    import cupy

    yield cupy
    for name in [n for n in sys.modules if n.partition(".")[0] in {"cupy", "cupyx", "cuda"}]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def write(tmp_path):
    def file(body, head="import cupy"):
        path = tmp_path / "mine.py"
        path.write_text(f'{head}\n\nOP = "silu"\nBACKEND = "cupy"\n\n\n{body}\n')
        return path

    return file


def memory(dtype="float32", shape=(3, 5), layout="contiguous", fill="normal"):
    recipe = TensorRecipe(shape=shape, dtype=dtype, layout=layout, fill=Fill(distribution=fill, seed=1))
    case = Case(op="silu", tensors={"x": recipe})
    made = Guarded(case.tensors, materialize_all(case), contract_of("silu").output_specs(case))
    made.reset(0)
    return made


def called(path, made, **named):
    """What the function returned, called with the buffers of some memory, outputs first."""
    views = [b.view[...] for b in (*made.outputs, *made.inputs)]
    return CupyLoader().load(path, "run")(*views, **named)


def test_every_op_has_a_kernel_that_imports_nothing_but_cupy():
    assert {s.op for s in OURS} == set(load_contracts())
    for subject in OURS:
        tree = ast.parse((ROOT.parent / subject.path).read_text("utf-8"))
        names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert names <= {"cupy", "math", "cupyx.scipy.special"}, subject.path
        assert "cupy" in names
        assert set(subject.dtypes) <= {"float32", "float16", "float64", "int8"}, "cupy's own types only"


def test_why_it_is_not_available(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert loader_of("cupy").unavailable() == "cupy is not installed"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(module, "device_count", lambda: 0)
    assert loader_of("cupy").unavailable() == "there is no CUDA device"
    monkeypatch.setattr(module, "device_count", lambda: 2)
    assert loader_of("cupy").unavailable() == ""


def test_without_a_driver_there_is_no_device(monkeypatch):
    def missing(name):
        raise OSError(name)

    driver.device_count.cache_clear()
    monkeypatch.setattr(driver.ctypes, "CDLL", missing)
    assert driver.device_count() == 0
    driver.device_count.cache_clear()


def test_the_wheel_is_named_after_cuda(monkeypatch):
    def version(name):
        if name == "cupy-cuda12x":
            return "14.0"
        raise module.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(module.metadata, "version", version)
    assert loader_of("cupy").versions() == {"cupy-cuda12x": "14.0"}


@pytest.mark.parametrize("layout", ["contiguous", "offset_one", "row_gaps", "element_gaps", "transposed", "broadcast"])
@pytest.mark.parametrize("shape", [(3, 5), (0, 4), (1, 1)])
def test_arrays_lie_on_the_gpu_as_they_lie_here(fake, write, shape, layout):
    made, seen = memory(shape=shape, layout=layout), []
    path = write("def run(out, x, *, seen):\n    seen += [out, x]\n    out[...] = x * 2")
    called(path, made, seen=seen)
    for array, buffer in zip(seen, (*made.outputs, *made.inputs), strict=True):
        assert type(array) is fake.ndarray
        assert (array.shape, array.strides, array.dtype) == (buffer.view.shape, buffer.view.strides, buffer.view.dtype)
        assert int(array.data.ptr) != buffer.view.ctypes.data
        if buffer.view.size:
            assert (int(array.data.ptr) - buffer.view.ctypes.data) % 4 == 0
            assert fake.asnumpy(array).tobytes() == np.asarray(buffer.view).tobytes()
    assert (made.outputs[0].view == made.inputs[0].view * 2).all()
    assert made.intact(0)


def test_what_is_written_beside_the_elements_comes_back(fake, write):
    made = memory()
    beyond = "cupy.ndarray((1,), cupy.float32, memptr=out.data + out.nbytes)[0] = 1"
    called(write(f"def run(out, x):\n    {beyond}"), made)
    damage, mutated = made.damage(0)
    assert [(d.buffer, d.offset) for d in damage] == [("out", 60)]
    assert mutated == []
    made = memory()
    called(write("def run(out, x):\n    x[1, 2] = 7"), made)
    assert made.damage(0) == ([], ["x"])
    made = memory(layout="row_gaps")
    beside = "cupy.ndarray((1,), cupy.float32, memptr=x.data + 5 * 4)[0] = 1"
    called(write(f"def run(out, x):\n    {beside}"), made)
    assert [(d.buffer, d.offset) for d in made.damage(0)[0]] == [("x", 20)]


def test_what_is_returned_is_fetched(fake, write):
    loader, made = CupyLoader(), memory()
    view = made.inputs[0].view
    result = loader.load(write("def run(x):\n    return x * 2, x[:, ::2], 3"), "run")(view[...])
    fresh, part = (loader.unwrap(r) for r in result[:2])
    assert isinstance(fresh, Returned)
    assert (fresh.array == view * 2).all()
    assert (fresh.dtype, fresh.contiguous, fresh.address) == ("float32", True, 0)
    assert (part.array == view[:, ::2]).all()
    assert (part.contiguous, made.holds(part.address)) == (False, "x")
    with pytest.raises(TypeError, match="it returned int, not an array of cupy"):
        loader.unwrap(result[2])


@pytest.mark.parametrize("dtype", FORMATS)
def test_types_that_cupy_lacks_are_declined(fake, write, dtype):
    path = write("def run(out, x):\n    pass")
    if dtype in {"bfloat16", "float8_e4m3fn", "float8_e5m2"}:
        with pytest.raises(NotImplementedError, match=f"cupy has no {dtype}"):
            called(path, memory(dtype, fill="zeros"))
    else:
        called(path, memory(dtype, fill="zeros"))


def test_errors_of_launches_are_raised_and_those_that_stay_end_the_process(fake, write, monkeypatch, capfd):
    path = write("def run(out, x):\n    out[...] = x")
    fake.LAUNCHED[:] = ["cudaErrorInvalidConfiguration: invalid configuration argument"]
    with pytest.raises(fake.CUDARuntimeError, match="invalid configuration"):
        called(path, memory())
    called(path, memory())
    fake.LAUNCHED[:] = ["cudaErrorIllegalAddress: a sticky one"]

    def leave(code):
        raise SystemExit(code)

    monkeypatch.setattr(driver.os, "_exit", leave)
    with pytest.raises(SystemExit):
        called(path, memory())
    assert "cudaErrorIllegalAddress" in capfd.readouterr().err


def test_in_some_second_runs_the_inputs_arrive_late_on_another_stream(fake, write):
    """What lies there until then is seen by nobody who keeps to the stream."""
    from cuda.bindings import driver

    order = next(n for n in range(100) if is_streamed(n, 1))
    loader, buffers = CupyLoader(), memory(fill="normal")
    call = loader.load(write("def run(out, x):\n    out[...] = x"), "run")
    for run, steps in ((0, []), (1, ["set", "set", "launch", "copy", "copy"])):
        driver.CALLED.clear()
        buffers.reset(run)
        loader.prepare(order, run)
        assert loader.streamed is bool(steps)
        call(*(b.view for b in (*buffers.outputs, *buffers.inputs)))
        assert steps == driver.CALLED
        assert buffers.outputs[0].view.tobytes() == buffers.inputs[0].view.tobytes()


def test_a_file_that_does_not_import_is_named(fake, write):
    with pytest.raises(UsageError, match="does not import: ModuleNotFoundError"):
        CupyLoader().load(write("", "import cupy_of_another_name"), "run")


def test_a_kernel_is_judged_in_a_worker(fake, write):
    right = user_subject(str(write("def run(out, x):\n    out[...] = x / (1 + cupy.exp(-x))")), ())
    fill = Fill(distribution="normal", seed=1)
    case = Case(op="silu", tensors={"x": TensorRecipe(shape=(3, 5), dtype="float32", fill=fill)})
    with Examiner([right]) as examiner:
        assert examiner.check([CheckRequest(case, (right.key,))])[0].verdicts[right.key].kind is Kind.PASS
    wrong = user_subject(str(write("def run(x):\n    return x")), ())
    with Examiner([wrong]) as examiner:
        verdict = examiner.check([CheckRequest(case, (wrong.key,))])[0].verdicts[wrong.key]
        assert (verdict.kind, "its input 'x'" in verdict.message) == (Kind.ALIASED, True)


def test_the_formulas_of_all_ops_are_right(fake, tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_assay.fuzz.campaign.triage_queue.SHRINK_SECONDS", 0.0)
    with Store(tmp_path / "corpus") as store, Examiner(OURS) as examiner:
        store.prepare()
        record = new_campaign("r1", 4, "conjecture", OURS)
        store.start_run(record)
        done = Search(examiner, store, record, Limits(600.0, 800)).run()
    assert {key: kinds for key, kinds in done.by_subject.items() if set(kinds) - {"pass", "unsupported"}} == {}
    assert {s.key for s in OURS} == {key for key, kinds in done.by_subject.items() if kinds.get("pass", 0) > 10}
