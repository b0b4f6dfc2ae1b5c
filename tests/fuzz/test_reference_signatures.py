"""Arguments and results as kernels have them: each kind has a kernel that is right and one that is not."""

from pathlib import Path

import numpy as np
import pytest
from _references import hosted

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.arguments import Argument
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.checking.user_references import add_reference
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import Target, propose
from kernel_assay.kernels.backends.support.rearranged import FromTensors
from kernel_assay.kernels.backends.support.signature import Interface, KernelFaultError
from kernel_assay.oracles.catalog import forget_contracts
from kernel_assay.oracles.spec.positions import alternatives
from kernel_assay.reports.reproducer.script import reproducer

pytestmark = pytest.mark.usefixtures("no_references")

TABLE = Path(__file__).parents[2] / "scripts/bench/own_references/signatures.py"
"""What the bench of references tries with more cases, and more kinds."""
KERNELS = {
    "clip_": ("right_returns_none", "right_returns_it", "wrong_other_memory", "wrong_one_end"),
    "accumulate": ("right", "wrong_overwrites"),
    "affine": ("right", "right_without_alpha", "right_other_strides", "right_negative_bit", "wrong_bias"),
    "joined": ("right", "wrong_order"),
    "arg_best": ("right_last", "wrong_head"),
    "top_two": ("right_sorted", "wrong_same_place"),
    "segments": ("right", "wrong_end"),
    "gated": ("right_module", "wrong_module", "right_autograd", "wrong_autograd", "right_callable"),
}
CASES = 12
FORMS = """
import ctypes, pathlib, subprocess, tempfile
import torch
from torch import nn

class right_forward:
    def forward(self, x, w): return torch.relu(x) * w
class right_holder:
    def __init__(self): self.one = 1
    def method(self, x, w): return torch.relu(x) * w * self.one
    @staticmethod
    def static(x, w): return torch.relu(x) * w
class Needs:
    def __init__(self, n): self.n = n
    def __call__(self, x, w): return x
class Fn(torch.autograd.Function):
    @staticmethod
    def forward(x, w): return torch.relu(x) * w
    @staticmethod
    def setup_context(ctx, inputs, output): pass
class Net(nn.Module):
    def forward(self, x, w): return torch.relu(x) * w
right_applied, right_net, right_compiled_net = Fn.apply, Net(), torch.compile(Net(), backend="eager")
@torch.compile(backend="eager")
def right_compiled(x, w): return torch.relu(x) * w
@torch.compile(backend="eager")
def wrong_compiled(x, w): return torch.relu(x * w)

folder = pathlib.Path(tempfile.mkdtemp())
(folder / "k.cpp").write_text('''extern "C" void gate(const float* x, const float* w, float* out, long rows, long cols)
    { for (long i = 0; i < rows * cols; i++) out[i] = (x[i] > 0 ? x[i] : 0) * w[i % cols]; }''')
subprocess.run(["g++", "-shared", "-fPIC", folder / "k.cpp", "-o", folder / "k.so"], check=True)
gate = ctypes.CDLL(str(folder / "k.so")).gate
gate.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2
def right_ctypes(x, w):
    x, w = x.contiguous(), w.contiguous()
    out = torch.empty_like(x)
    gate(x.data_ptr(), w.data_ptr(), out.data_ptr(), *x.shape)
    return out
def wrong_ctypes(x, w):
    out = torch.zeros_like(x.contiguous())
    gate(x.contiguous().data_ptr(), w.contiguous().data_ptr(), out.data_ptr(), x.shape[0] - 1, x.shape[1])
    return out
"""


def kinds_of(reference, files, cases=CASES, seed=1):
    """Name of each kernel -> the kinds of verdicts that it got."""
    contract = add_reference(str(reference))
    subjects = UserKernels(files).subjects((contract.name,))
    found = {s.key: set() for s in subjects}
    with Examiner(subjects, timeout=20.0) as examiner:
        made = [propose([Target(contract, contract.dtypes[:1])], seed, i, Elites()).case for i in range(cases)]
        for checked in examiner.check([CheckRequest(case, tuple(found)) for case in made]):
            for key, verdict in checked.verdicts.items():
                found[key].add(verdict.kind)
    contract.elsewhere.close()
    return {s.name.partition(":")[2]: found[s.key] for s in subjects}


def must_fit(kinds):
    for name, found in kinds.items():
        failing = {kind for kind in found if kind.facts.fails}
        assert bool(failing) == ("wrong" in name), (name, found)
        assert failing or Kind.PASS in found


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_judged_by_its_signature(name):
    must_fit(kinds_of(f"{TABLE}:{name}", [f"{TABLE}:{name}_{kernel}" for kernel in KERNELS[name]]))


def test_a_kernel_may_be_a_class_a_method_what_autograd_applies_what_is_compiled_and_a_c_library(tmp_path):
    (tmp_path / "forms.py").write_text(FORMS)
    names = ["right_forward", "right_holder.method", "right_holder.static", "right_applied", "right_net",
             "right_compiled_net", "right_compiled", "wrong_compiled", "right_ctypes", "wrong_ctypes"]  # fmt: skip
    must_fit(kinds_of(f"{TABLE}:gated", [f"{tmp_path}/forms.py:{name}" for name in names]))


def test_a_kernel_that_imports_nothing_is_in_the_library_of_its_reference(tmp_path):
    text = "def right(x, bias=None, *, alpha):\n    y = x * alpha\n    return y if bias is None else y.add(bias)\n"
    (tmp_path / "mine.py").write_text(text)  # arrays of numpy have no `add`
    must_fit(kinds_of(f"{TABLE}:affine", [f"{tmp_path}/mine.py:right"]))


def test_what_the_reference_leaves_alone_must_not_be_changed(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def wrong_changes_a(out, a, b):\n    a *= b\n    out += a\n"
        "def right(out, a, b):\n    out += a * b\n"
    )
    kinds = kinds_of(f"{TABLE}:accumulate", [f"{tmp_path}/mine.py:{name}" for name in ("wrong_changes_a", "right")])
    must_fit(kinds)
    assert Kind.INPUT_MUTATED in kinds["wrong_changes_a"]


def test_a_failure_of_other_arguments_is_shrunk_replayed_and_shown(tmp_path, fuzz, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import torch\ndef run(values, offsets):\n"
        "    parts = [values[i:j].sum(0) for i, j in zip(offsets[:-1].tolist(), offsets[1:].tolist())]\n"
        "    return torch.stack(parts) * (1 if len(values) < 9 else 2)\n"
    )
    words = ("--reference", f"{TABLE}:segments", "--subject", "mine.py", "--cases", "32", "--seed", "1", "--quiet")
    code, out, _ = fuzz("run", *words)
    assert (code, "minimized" in out) == (1, True), out
    finding = next(iter(Store(tmp_path / "corpus").findings()))
    assert finding.case.tensors["values"].shape[0] == 9
    assert "kassay replay" in reproducer(finding), "the kernel alone cannot be called with the tensors of a case"
    forget_contracts()
    code, out, _ = fuzz("replay", finding.id)
    assert (code, out.startswith("fails: segments/mine")) == (1, True), out


def test_a_kernel_of_tensors_only_is_refused_for_other_arguments(tmp_path):
    (tmp_path / "mine.py").write_text("BACKEND = 'cupy'\ndef run(x): return x\n")
    contract = add_reference(f"{TABLE}:clip_")
    with pytest.raises(UsageError, match="changed in place, or are lists, masks or offsets, which a kernel in cupy"):
        UserKernels([f"{tmp_path}/mine.py"]).subjects((contract.name,))


def test_a_class_that_takes_arguments_is_declined_in_a_sentence(tmp_path):
    (tmp_path / "forms.py").write_text(FORMS.partition("folder =")[0])
    with pytest.raises(UsageError, match=r"Needs cannot be made without arguments .*; make an instance in the file"):
        kinds_of(f"{TABLE}:gated", [f"{tmp_path}/forms.py:Needs"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(xs: 'list[float32[n]] inout'): return xs[0]\n", "a list cannot be changed in place"),
        ("def f(m: 'bool[n] 0..1'): return m\n", "is not possible: of bool only plain inputs can be"),
        ("def f(x: 'float32[n]', o: 'int64[b] offsets of n'): pass\n", "write offsets as 'int64[b+1] offsets of n'"),
        ("def f(x: 'float32[n]', o: 'int64[b+1] offsets of k'): return x\n", "o has offsets of k, which is no axis"),
        ("def f(x: 'float32[n]'):\n    x += 1\n    return x * 2\n", "it changes its input 'x' besides what it returns"),
        ("class f(nn.Module):\n    def forward(self, x: 'float32[n] inout'): pass\n", "only a function's input can"),
        ("def f(x: 'float32[n]', a: 'float 3..1'): return x * a\n", "a = 'float 3..1' is not possible: the range ends"),
        ("def f(x: 'float32[n]', k: 'int 5..2'): return x * k\n", "k = 'int 5..2' is not possible: the range ends"),
        ("INPUTS = {'x': 'float32[n]', 'a': 'float 3..1'}\ndef f(x, a): return x\n", "the range ends before it begins"),
        ("def f(x: 'float32[n]', a: 'float 0..1e999'): return x\n", "the range is wider than any number"),
        ("def f(x: 'float64[n] -1e308..1e308'): return x\n", "the range is wider than any number"),
        ("def f(x: 'int8[n] 0..1000'): return x\n", "is not possible: int8 ends at -128 and 127"),
        ("DIMS = {'n': (4, 8, 0)}\ndef f(x: 'float32[n]'): return x\n", "and what it is a multiple of, if anything"),
    ],
)  # fmt: skip
def test_words_that_make_no_sense_are_refused(tmp_path, text, said):
    with pytest.raises(UsageError) as refused:
        hosted(tmp_path, text)
    assert said in str(refused.value)


def test_words_become_inputs(tmp_path):
    text = (
        "def f(xs: 'list[float32[n_i, c]]', o: 'int32[b+1] offsets of c', m: 'bool[c]', w: 'float32[c]' = None,\n"
        "      *, p: 'int 1..3' = 2, q='mean'): return torch.cat(xs) * m\n"
    )
    host = hosted(tmp_path, text)
    assert {name: i.axes for name, i in host.contract.inputs.items()} == {
        "xs_0": ("n_0", "c"), "xs_1": ("n_1", "c"), "xs_2": ("n_2", "c"), "o": ("b",), "m": ("c",), "w": ("c",)
    }  # fmt: skip
    assert host.contract.attrs == {"p": (2, 1, 3), "q": ("mean",)}
    assert set(host.contract.optional) == {"xs_1", "xs_2", "w", "p", "q"}
    assert host.contract.inputs["o"].upto == "c"


def test_examples_may_be_lists_and_masks(tmp_path):
    text = (
        "def f(xs, m): return torch.stack(xs).sum(0) * m\n"
        "def get_inputs(): return [[torch.rand(3, 4), torch.rand(3, 4)], torch.rand(3, 4) > 0.5]\n"
    )
    host = hosted(tmp_path, text)
    assert [one.kind for one in host.described.arguments] == ["list", "mask"]
    assert [t.axes for t in host.described.tensors] == [["xs_00", "xs_01"]] * 3


def test_what_is_changed_and_returned_is_found_out(tmp_path):
    host = hosted(tmp_path, "def f(x: 'float32[n]', y: 'float32[n]'):\n    return x.mul_(y)\n")
    assert (host.outputs, host.views) == ({"x_after": "float32"}, {"x_after": []})
    assert hosted(tmp_path, "def f(x: 'float32[n, m]'): return x.T\n").views == {"out": ["x"]}
    assert hosted(tmp_path, "def f(x: 'float32[n, m]'): return x.T.clone()\n").views == {"out": []}


def test_a_number_of_groups_is_found_out(tmp_path):
    text = "def f(x: 'float32[n, c, l]', *, groups={}): return F.group_norm(x, groups)\n"
    for groups in (6, 10):
        assert hosted(tmp_path, text.format(groups)).described.dims["c"][2:] == (groups, 256)
    told = "DIMS = {'c': (8, 64, 8)}\n" + text.format(4)
    assert hosted(tmp_path, told).described.dims["c"] == (8, 64, 8)
    assert hosted(tmp_path, text.format(1)).described.dims["c"][2:] == (1, 256)


def test_positions_of_equal_numbers_are_equal():
    x = np.array([[3.0, 3.0, 1.0], [1.0, 2.0, 2.0]])

    def right(got, want, axis=1, low=x, high=x):
        return alternatives(np.asarray(got), np.asarray(want, np.float64), axis, low, high).tolist()

    assert right([1, 2], [0, 1]) == [True, True]
    assert right([2, 0], [0, 1]) == [False, False]
    assert right([3, -1], [0, 1]) == [False, False], "outside"
    assert right([[1], [1]], [[0], [1]]) == [[True], [True]], "the axis is kept"
    assert right([[0, 0], [2, 1]], [[0, 1], [1, 2]]) == [[True, False], [True, True]], "one place twice"
    assert right(1, 0, axis=-1) is True, "of all in a row"
    assert right([2, 0], [0, 1], high=x + 2) == [True, True], "as near as rounding may have brought them"
    assert right([0, 0], [1, 1], axis=1, low=np.full((2, 3), np.nan), high=np.full((2, 3), np.nan)) == [True, True]


def test_what_is_returned_besides_what_is_changed_has_a_form():
    face = Interface(("x",), ("x_after", "out"), ())
    room, out = np.zeros(3, np.float32), np.zeros(3, np.float32)
    for result, kind in ((np.ones(2, np.float32), Kind.WRONG_SHAPE), (np.ones(3), Kind.WRONG_DTYPE)):
        changed = [Argument("x", "tensor", ("x",), inout=True)]
        bound = FromTensors(lambda x, *, r=result: r, changed, lambda f: f).bound(face, "here")
        with pytest.raises(KernelFaultError) as caught:
            bound.call(room, out, np.ones(3, np.float32))
        assert caught.value.kind is kind


def test_offsets_that_are_changed_are_told():
    cuts = Argument("o", "offsets", ("o",), divides=("x", 0))
    assert cuts.made({"o": np.array([9, 5, 2]), "x": np.zeros(7)}).tolist() == [0, 2, 5, 7]

    def kernel(x, o):
        o[-1] = 0
        return x

    bound = FromTensors(kernel, [cuts], lambda f: f).bound(Interface(("x", "o"), ("out",), ()), "here")
    with pytest.raises(KernelFaultError, match="it changed its input 'o'"):
        bound.call(np.zeros(7), np.array([9, 5, 2]))


def test_a_reference_that_names_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.py").write_text("")
    for text, said in (("folder", "is a folder"), ("", "'' names no file"), ("empty.py", "no function and no class")):
        with pytest.raises(UsageError, match=said):
            add_reference(text)
    with pytest.raises(UsageError, match="the subject '' names no file; name one, as kernel"):
        UserKernels([""]).subjects(("softmax",))


def test_a_report_shows_arguments_as_their_author_wrote_them(tmp_path, monkeypatch, fuzz):
    monkeypatch.chdir(tmp_path)
    body = (
        "def f(x: 'float32[n]', o: 'int64[b+1] offsets of n', m: 'bool[n]', y: 'float32[n] inout'):\n    y += x * m\n"
    )
    (tmp_path / "ref.py").write_text("import torch\n" + body)
    (tmp_path / "mine.py").write_text("import torch\ndef f(x, o, m, y):\n    y += x * m\n")
    _, out, _ = fuzz(
        "run", "--reference", "ref.py:f", "--subject", "mine.py:f", "--cases", "32", "--seed", "1", "--quiet"
    )
    assert "x float32[n], o int64[b+1] offsets of n, m bool[n], y float32[n] inout" in out
