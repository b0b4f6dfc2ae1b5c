"""Odd subjects that no fault file covers: each must earn a verdict, and none may look like trouble of our own."""

import pytest

from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.catalog import subjects_of, user_subject

CASE = Case(op="silu", tensors={"x": TensorRecipe(shape=(3, 5), dtype="float32")})
PEER = next(s for s in subjects_of("silu") if s.name == "numpy_float32")
HEAD = 'import os\nimport sys\nimport numpy as np\nOP = "silu"\n\n'


def verdict(tmp_path, body, *, case=CASE, **settings):
    path = tmp_path / "odd.py"
    path.write_text(HEAD + body + "\n")
    odd = user_subject(str(path), ())
    with Examiner([odd, PEER], **{"timeout": 1.0, "memory_mb": 100, **settings}) as examiner:
        checked = examiner.check([CheckRequest(case, (odd.key, PEER.key))] * 2)
    assert [c.verdicts[PEER.key].kind for c in checked] == [Kind.PASS, Kind.PASS]
    assert checked[0].verdicts[odd.key].kind is checked[1].verdicts[odd.key].kind
    return checked[0].verdicts[odd.key]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("def run(x): return x.tolist()", Kind.RAISED),
        ("def run(x): return None", Kind.RAISED),
        ("def run(x): return x, x", Kind.RAISED),
        ("def run(x): return x.astype(object)", Kind.WRONG_DTYPE),
        ("def run(x): return run(x)", Kind.RAISED),
        ("def run(x): raise KeyboardInterrupt", Kind.RAISED),
        ("def run(x): raise ValueError('a' * 1_000_000)", Kind.RAISED),
        ("def run(x): return x.astype(bool)", Kind.WRONG_DTYPE),
        ("def run(x): return x.astype(complex)", Kind.WRONG_DTYPE),
        ("def run(x): return x[:0]", Kind.WRONG_SHAPE),
        ("def run(x): return x[::-1, ::-1]", Kind.ALIASED),
        ("def run(x): return np.broadcast_to(x.reshape(-1)[:1], (1 << 40,))", Kind.OUT_OF_MEMORY),
        ("def run(out, x): os.kill(os.getpid(), 19)", Kind.TIMEOUT),
        ("def run(out, x): os.kill(os.getpid(), 9)", Kind.CRASHED),
        ("def run(out, x): os.kill(os.getpid(), 15)", Kind.CRASHED),
        ("def run(out, x):\n    os.closerange(1, 3)\n    out[...] = 0", Kind.PASS),
        ("def run(out, x):\n    os.chdir('/')\n    np.seterr(all='raise')\n    out[...] = 0", Kind.PASS),
        ("def run(out, x): raise ValueError('\\ud800')", Kind.RAISED),
    ],
)
def test_odd_subjects_earn_a_verdict(tmp_path, body, kind):
    assert verdict(tmp_path, body).kind is kind


@pytest.mark.parametrize(
    "body",
    ["def run(out, x):\n    out[...] = 0\n    x.shape = (15,)", "def run(x):\n    x.shape = (5, 3)\n    return x + 0"],
)
def test_who_changes_the_shape_of_a_view_has_changed_its_input_for_nobody_else(tmp_path, body):
    assert verdict(tmp_path, body).kind is Kind.INPUT_MUTATED


@pytest.mark.parametrize("change", ["x.t_()", "x.data = torch.zeros(3)", "x.resize_(1)", "x.unsqueeze_(0)"])
def test_an_input_that_is_another_tensor_afterwards_was_changed(tmp_path, change):
    pytest.importorskip("torch")
    body = f"import torch\n\ndef run(x):\n    y = torch.zeros(x.shape)\n    {change}\n    return y"
    assert verdict(tmp_path, body).kind is Kind.INPUT_MUTATED


@pytest.mark.parametrize("method", ["contiguous", "detach", "cpu", "numpy", "is_contiguous"])
def test_a_result_is_read_by_methods_of_torch_and_not_of_its_own(tmp_path, method):
    pytest.importorskip("torch")
    own = "torch.zeros(self.shape).numpy()" if method == "numpy" else "torch.zeros(self.shape)"
    body = (
        f"import torch\n\nclass T(torch.Tensor):\n    def {method}(self, *a, **k): return {own}\n\n"
        "def run(x):\n    return torch.ones(x.shape).as_subclass({})"
    )
    assert verdict(tmp_path, body.format("T")).kind is Kind.MISMATCH
    plain = body.format("T").replace("torch.ones(x", "torch.zeros(x")
    assert verdict(tmp_path, plain).kind is Kind.PASS, "a class of its own is no matter"


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("later", ["weakref.finalize(x, fill, y)", "gc.callbacks.append(lambda *_: fill(y))"])
def test_what_is_filled_when_its_inputs_are_dropped_was_not_filled(tmp_path, backend, later):
    pytest.importorskip(backend)
    body = (
        f"import gc, weakref, {backend} as xp\nBACKEND = {backend!r}\n\ndef fill(y): y[...] = 0\n\ndef run(x):\n"
        f"    y = xp.empty(tuple(x.shape), dtype=x.dtype)\n    {later}\n    return y"
    )
    assert verdict(tmp_path, body).kind is Kind.UNWRITTEN


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize(("room", "kind"), [("ROOMS", Kind.ALIASED), ("{}", Kind.PASS)])
def test_a_result_in_the_memory_of_the_one_before_it_is_aliased(tmp_path, backend, room, kind):
    """As of who keeps a buffer for each shape; with a fresh one for each call the same function is right."""
    pytest.importorskip(backend)
    body = (
        f"import {backend} as xp\nBACKEND = {backend!r}\nROOMS = {{}}\n\ndef run(x):\n"
        f"    out = {room}.setdefault(tuple(x.shape), xp.empty(tuple(x.shape), dtype=x.dtype))\n    out[...] = 0\n"
        "    return out"
    )
    said = verdict(tmp_path, body)
    assert said.kind is kind
    assert ("lies in the memory of the first call's result" in said.message) is (kind is Kind.ALIASED)


def test_an_exception_without_a_text_is_the_subjects_affair(tmp_path):
    body = "class Odd(Exception):\n    def __str__(self): raise RuntimeError('no text')\n\ndef run(out, x): raise Odd"
    assert verdict(tmp_path, body).kind is Kind.RAISED


@pytest.mark.parametrize(
    "body", ["def run(x): return x.astype(str)", "def run(x): return np.zeros(x.shape, [('a', 'f4')])"]
)
def test_foreign_dtypes_are_wrong_dtypes(tmp_path, body):
    assert verdict(tmp_path, body).kind is Kind.WRONG_DTYPE


def test_a_result_that_almost_fills_the_memory_is_the_subjects_affair(tmp_path):
    kind = verdict(tmp_path, "def run(x): return np.zeros(25 << 20, np.uint8)").kind
    assert kind in {Kind.OUT_OF_MEMORY, Kind.WRONG_SHAPE}


def test_garbage_on_every_descriptor_is_a_crash(tmp_path):
    body = (
        "def run(out, x):\n    for fd in range(3, 64):\n        try:\n            os.write(fd, b'garbage' * 99)\n"
        "        except OSError:\n            pass\n    out[...] = 0"
    )
    assert verdict(tmp_path, body).kind is Kind.CRASHED


def test_a_shape_that_depends_on_the_values_is_the_subjects_affair(tmp_path):
    path = tmp_path / "odd.py"
    path.write_text(
        'import numpy as np\nOP = "gemm"\n\ndef run(a, b):\n    out = a @ b\n'
        "    return out.reshape(-1) if np.abs(a).max() > 2 else out\n"
    )
    odd = user_subject(str(path), ())
    ones = TensorRecipe(shape=(2, 2), dtype="float32", fill={"distribution": "ones"})
    with Examiner([odd]) as examiner:
        examiner.check([CheckRequest(Case(op="gemm", tensors={"a": ones, "b": ones}), (odd.key,), ("scaling",))])


def test_garbage_in_the_journal_alone_is_a_crash_after_the_timeout(tmp_path):
    """It is a file of the worker's; what it says of time must not be believed."""
    body = (
        "def run(out, x):\n    import stat, time\n    for fd in range(3, 64):\n        try:\n"
        "            if stat.S_ISREG(os.fstat(fd).st_mode):\n                os.pwrite(fd, b'garbage' * 9, 0)\n"
        "        except OSError:\n            pass\n    time.sleep(60)"
    )
    assert verdict(tmp_path, body, timeout=1.0).kind in {Kind.CRASHED, Kind.TIMEOUT}


def test_a_function_of_numpy_in_a_file_that_imports_torch_is_told_how_to_say_so(tmp_path):
    pytest.importorskip("torch")
    body = "import torch\n\n\ndef run(x): return x.astype(np.float32) * 0"
    said = verdict(tmp_path, body, memory_mb=4096)
    assert said.kind is Kind.RAISED
    assert "has no attribute 'astype' (its file imports torch" in said.message
    assert verdict(tmp_path, f'{body}\n\n\nBACKEND = "numpy"', memory_mb=4096).kind is Kind.PASS
