"""`--reference`: a run, its findings, their replay, and what a reference can do to the judge (nothing)."""

import gc
import time
import weakref

import pytest
from _command import refused
from _references import HEAD, LINEAR

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.reference_place import ReferencePlace, option_for
from kernel_assay.corpus.process.child import ChildProcess
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz import api
from kernel_assay.fuzz.checking.user_references import add_reference
from kernel_assay.oracles.catalog import contract_of, forget_contracts
from kernel_assay.oracles.spec.plain_case import plain_case
from kernel_assay.reports.reproducer.script import reproducer

pytestmark = pytest.mark.usefixtures("no_references")

NEW = """
class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        h = {} + self.linear.bias
        h = 0.5 * h * (1 + torch.erf(h * 0.7071067811865476))
        e = torch.exp(h - h.max(dim=1, keepdim=True).values)
        return e / e.sum(dim=1, keepdim=True)
"""
PRODUCT, NARROW = "x @ self.linear.weight.T", "(x.half() @ self.linear.weight.half().T).float()"
NUMPY = """import numpy as np

INPUTS = {{"x": "float32[rows, cols] -4..4"}}


def doubled(x):
    {}
    return 2 * x
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a pair of modules, a right kernel and a wrong one."""
    (tmp_path / "linear.py").write_text(HEAD + LINEAR)
    (tmp_path / "right.py").write_text(HEAD + NEW.format(PRODUCT))
    (tmp_path / "wrong.py").write_text(HEAD + NEW.format(NARROW))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def searched(*words, cases=64):
    return ("run", *words, "--cases", cases, "--seed", 1, "--quiet")


def test_a_pair_of_modules_is_judged_with_the_same_weights(here, fuzz):
    code, out, _ = fuzz(*searched("--reference", "linear.py", "--subject", "right.py"))
    assert (code, "findings: none" in out) == (0, True), out
    assert "linear is the module Model of linear.py, eval mode: x float32[x0, in_features], " in out
    assert "budgets of linear are estimated from their formulas: weaker than derived ones" in out
    campaign = Store(here / "corpus").runs()
    reach = Store(here / "corpus").load_run(campaign[-1]).reach["linear/right"]
    assert reach["in_features"] > 8 != reach["x0"], "extents that nobody listed were tried"


def test_a_wrong_module_is_found(here, fuzz):
    code, out, _ = fuzz(
        *searched("--reference", "linear.py:Model", "--subject", "wrong.py", "--dtype", "float32", cases=16)
    )
    assert (code, "times its estimated error budget" in out) == (1, True)
    finding = next(f for f in Store(here / "corpus").findings() if f.verdict.rule == "rho")
    assert "which its reference says how to make" not in reproducer(finding)
    assert "kassay replay" in reproducer(finding), "the class alone is no program"


def test_a_finding_knows_its_reference(here, fuzz, monkeypatch):
    (here / "ref.py").write_text(NUMPY.format(""))
    (here / "mine.py").write_text("def run(x):\n    return x + x * 1.001\n")
    code, out, _ = fuzz(*searched("--reference", "ref.py:doubled", "--subject", "mine.py"))
    assert (code, f"--reference {here / 'ref.py'}:doubled" in out) == (1, True)
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    (finding,) = Store(here / "corpus").findings()
    words = ("replay", finding.id, "--corpus", here / "corpus")
    for text, said in ((NUMPY.format(""), ""), (NUMPY.format("# new"), "warning: the reference of finding")):
        forget_contracts()
        (here / "ref.py").write_text(text)
        code, out, err = fuzz(*words)
        assert (code, out.startswith("fails: doubled/mine"), err.startswith(said), bool(err)) == (
            1,
            True,
            True,
            bool(said),
        )
    forget_contracts()
    (here / "ref.py").rename(here / "moved.py")
    refused(fuzz(*words), "is gone", "ref.py does not exist; name it with --reference")
    forget_contracts()
    (here / "mine.py").write_text("def run(x):\n    return x + x\n")
    code, out, err = fuzz(*words, "--reference", here / "moved.py")
    assert (code, out.startswith("does not fail any more: doubled/mine")) == (0, True), err


def test_a_function_gets_the_weights_behind_its_inputs(here, fuzz):
    text = "import torch\ndef run(x, linear_weight, linear_bias):\n    return torch.softmax(torch.nn.functional.gelu("
    (here / "function.py").write_text(text + "x @ linear_weight.T + linear_bias), dim=1)\n")
    (here / "short.py").write_text("def run(x):\n    return x\n")
    assert fuzz(*searched("--reference", "linear.py", "--subject", "function.py"))[0] == 0
    answer = fuzz(*searched("--reference", "linear.py", "--subject", "short.py"))
    refused(answer, "run takes (x), but it must be run(out, x, linear_weight, linear_bias) or")


def test_a_module_with_other_parameters_is_refused(here, fuzz):
    text = NEW.format(PRODUCT).replace(
        "self.linear = nn.Linear(in_features, out_features)", "self.w = nn.Bilinear(3, 3, 3)"
    )
    (here / "odd.py").write_text(HEAD + text.replace("bias", "x").replace("nn.Bilinear(3, 3, 3)", "nn.ReLU()"))
    answer = fuzz(*searched("--reference", "linear.py", "--subject", "odd.py"))
    refused(answer, "has the parameters none, but the reference has linear.weight, linear.bias")


def test_what_the_reference_refuses_is_counted_and_steers_the_search(here, fuzz):
    (here / "ref.py").write_text(NUMPY.format('assert x.shape[1] <= 64, "short rows only"'))
    (here / "mine.py").write_text("def run(x):\n    assert x.shape[1] <= 64\n    return x + x\n")
    code, out, _ = fuzz(
        "run", "--reference", "ref.py:doubled", "--subject", "mine.py", "--cases", "256", "--seed", "2", "--quiet"
    )
    assert code == 0, out
    assert "unsupported by the reference: AssertionError: short rows only (line 7)" in out
    kinds = Store(here / "corpus").load_run(Store(here / "corpus").runs()[-1]).kinds
    assert kinds["pass"] > 100
    assert kinds["unsupported"] < 128, "later cases are ones that it takes"


@pytest.mark.parametrize("act", ["os._exit(7)", "os.kill(os.getpid(), 11)", "print('x' * 10**6)"])
def test_a_reference_that_dies_takes_nobody_with_it(here, fuzz, act):
    (here / "ref.py").write_text(NUMPY.format(f"import os\n    if x.shape[0] > 60: {act}"))
    (here / "mine.py").write_text("def run(x):\n    return x + x\n")
    code, out, err = fuzz(*searched("--reference", "ref.py:doubled", "--subject", "mine.py", "--dtype", "float16"))
    assert code == 0, err
    assert ("unsupported by the reference: its process ended" in out) is ("print" not in act)
    assert "doubled/mine" in out


def test_a_module_of_a_package_is_a_reference_wherever_it_is_replayed(here, fuzz, monkeypatch):
    (here / "pack").mkdir()
    (here / "pack" / "__init__.py").write_text("")
    (here / "pack" / "base.py").write_text("TWO = 2\n")
    (here / "pack" / "refs.py").write_text("from .base import TWO\ndef twice(x: 'float32[n]'): return TWO * x\n")
    (here / "mine.py").write_text("def run(x):\n    return x + x + (x.shape[0] > 9)\n")
    assert fuzz(*searched("--reference", "pack.refs:twice", "--subject", "mine.py"))[0] == 1
    finding = next(iter(Store(here / "corpus").findings()))
    place = ReferencePlace.read(finding.contract)
    assert (place.target, place.folder) == ("pack.refs:twice", str(here))
    forget_contracts()
    monkeypatch.chdir("/")
    assert fuzz("replay", "--corpus", here / "corpus")[0] == 1


def test_the_library_takes_references_too(here):
    (here / "ref.py").write_text(NUMPY.format(""))
    (here / "mine.py").write_text("import numpy as np\ndef run(x):\n    return np.float32(2.001) * x\n")
    settings = api.RunSettings(references=("ref.py:doubled",), subjects=("mine.py",), cases=32, seed=1)
    with Store("corpus") as store:
        result = api.run(settings, store=store)
    assert [f.signature.op for f in result.findings] == ["doubled"]
    assert result.campaign.references == {"doubled": "the function doubled of ref.py: x float32[rows, cols] -4..4"}
    process = contract_of("doubled").elsewhere
    assert process._process is None, "it ended with the run"
    assert api.check(result.findings[0].case, "mine.py").kind == "mismatch"
    assert process._process is not None, "and is there again where it is asked"


def test_a_reference_ends_with_a_run_that_is_refused_and_nothing_holds_it_then(here):
    (here / "ref.py").write_text(NUMPY.format(""))
    settings = api.RunSettings(references=("ref.py:doubled",), subjects=("none.py",), cases=32, seed=1)
    with Store("corpus") as store, pytest.raises(UsageError, match=r"none\.py"):
        api.run(settings, store=store)
    process = weakref.ref(contract_of("doubled").elsewhere)
    assert process()._process is None
    forget_contracts()
    gc.collect()
    assert process() is None


def test_an_answer_that_nobody_waited_for_is_none_to_the_next_question(here, monkeypatch):
    contract = add_reference(f"{here}/linear.py")
    first, second = (plain_case(contract, dict.fromkeys(contract.dims, n)) for n in (2, 3))

    def hear(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ChildProcess, "hear", hear)
        with pytest.raises(KeyboardInterrupt):
            contract.elsewhere.prepare([first])
    assert contract.elsewhere.shapes(second) == {"out": (3, 3)}


def test_several_processes_have_a_reference_each(here, fuzz):
    (here / "ref.py").write_text(NUMPY.format("assert x.shape[0] != 3"))
    (here / "mine.py").write_text("def run(x):\n    return x + x\n")
    code, out, err = fuzz(*searched("--reference", "ref.py:doubled", "--subject", "mine.py", "--jobs", "2"))
    assert (code, "64 cases, " in out) == (0, True), err


def test_an_interrupted_run_goes_on_with_its_reference(here, fuzz):
    (here / "ref.py").write_text(NUMPY.format(""))
    (here / "mine.py").write_text("def run(x):\n    return x + x\n")
    settings = api.RunSettings(references=("ref.py:doubled",), subjects=("mine.py",), seconds=300, seed=1)
    stop = api.Stop()
    with Store("corpus") as store:
        api.run(
            settings, store=store, stop=stop, on_event=lambda e: stop.ask() if isinstance(e, api.BatchJudged) else None
        )
    forget_contracts()
    code, out, err = fuzz("run", "--resume", "--cases", "256", "--quiet")
    assert (code, "doubled is the function doubled of ref.py" in out) == (0, True), err


def test_an_op_is_called_after_the_function_and_never_like_a_built_in_one(here):
    (here / "ref.py").write_text("def softmax(x: 'float32[n]'): return x\ndef f(x: 'float32[n]'): return x\n")
    assert add_reference("ref.py:softmax").name == "softmax_reference"
    assert contract_of("softmax").origin == ""
    assert add_reference("ref.py:f").name == "ref"
    assert add_reference("ref.py:f").name == "ref", "the same once more"
    (here / "sub").mkdir()
    (here / "sub" / "ref.py").write_text("def f(x: 'float32[n]'): return x\n")
    with pytest.raises(UsageError, match="op 'ref' is defined twice"):
        add_reference("sub/ref.py:f")


def test_other_dtypes_are_tried_when_they_are_asked_for(here):
    (here / "ref.py").write_text(NUMPY.format(""))
    (here / "mine.py").write_text("def run(x):\n    return x + x\n")
    with Store("corpus") as store:
        for dtypes, tried in (((), "float32"), (("bfloat16",), "bfloat16")):
            settings = api.RunSettings(
                references=("ref.py:doubled",), subjects=("mine.py",), cases=32, seed=1, dtypes=dtypes
            )
            result = api.run(settings, store=store)
            assert (result.findings, {cell.split("|")[1] for cell in result.campaign.coverage}) == ((), {tried})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--reference", "none.py"), "none.py does not exist"),
        (("--reference", "circle.py"), "circle.py does not exist"),
        (("--reference", "linear.py:Nobody"), "linear.py has no function or class 'Nobody'; it has Model"),
        (("--reference", "no.module:f"), "no.module does not import: ModuleNotFoundError"),
        (
            ("--reference", "linear.py", "--dtype", "int8"),
            "linear/right takes float32, float16, bfloat16, float64, not int8",
        ),
        (("--reference", "ends.py:f"), "cannot be loaded: its process ended (exit code 3)"),
    ],
)
def test_bad_requests_are_refused(here, fuzz, words, said):
    (here / "ends.py").write_text("import os\nos._exit(3)\n")
    (here / "circle.py").symlink_to("circle.py")
    refused(fuzz("run", *words, "--subject", "right.py", "--cases", "8"), said)


def test_the_place_of_a_reference_is_read_as_it_is_written():
    for text in ("/a b/ref.py:fn#0123456789abcdef", "pack.refs:fn@/a b#0123456789abcdef"):
        assert str(ReferencePlace.read(text)) == text
    assert ReferencePlace.read("/a/contract.py") is None
    assert option_for("/a b/ref.py:fn#0123456789abcdef") == " --reference '/a b/ref.py:fn'"
    assert (option_for("/a/c.py"), option_for("")) == (" --contract /a/c.py", "")


def test_findings_of_two_references_are_replayed_under_their_own(here, fuzz):
    """Neither is taken for the other's, and neither is called fixed."""
    for name, factor in (("twice", 2), ("thrice", 3)):
        (here / f"{name}.py").write_text(f'def {name}(x: "float32[rows, cols] -4..4"):\n    return x * {factor}\n')
        (here / f"k_{name}.py").write_text(f"def k(x):\n    return x * {5 - factor}\n")
        assert fuzz(*searched("--reference", f"{name}.py", "--subject", f"k_{name}.py"))[0] == 1
    forget_contracts()
    code, out, _ = fuzz("replay")
    assert (code, "does not fail any more" in out) == (1, False)
    assert {f"{name}/k_{name}" in out for name in ("twice", "thrice")} == {True}


def test_two_references_of_one_name_have_ops_of_their_own(here, fuzz):
    for folder, factor in (("a", 2), ("b", 3)):
        (here / folder).mkdir()
        (here / folder / "ref.py").write_text(f'def scaled(x: "float32[rows, cols] -4..4"):\n    return x * {factor}\n')
        (here / folder / f"k_{folder}.py").write_text("def k(x):\n    return x * 7\n")
        assert fuzz(*searched("--reference", f"{folder}/ref.py", "--subject", f"{folder}/k_{folder}.py"))[0] == 1
        forget_contracts()
    code, out, _ = fuzz("replay")
    assert (code, "fails: scaled/k_a" in out, "fails: scaled_2/k_b" in out) == (1, True, True)


def test_a_forgotten_comma_is_no_longer_name(here, fuzz):
    (here / "odd.py").write_text('def odd(x: "float32[rows cols]"):\n    return x\n')
    refused(
        fuzz(*searched("--reference", "odd.py", "--subject", "right.py")), "the axis 'rows cols' of x must be a name"
    )


MASKED = """
class Model(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x, mask=None):
        y = self.linear(x)
        return y if mask is None else y * mask

def get_inputs(): return [torch.rand(4, 12), torch.rand(4, 12)]
def get_init_inputs(): return [12]
"""
KERNELS = """
class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x, mask=None):
        y = x @ self.linear.weight.T + self.linear.bias
        return y * (factor if mask is None else mask)

def run(x, weight, bias, *, mask=None):
    return (x @ weight.T + bias) * (factor if mask is None else mask)

factor = {}
"""


@pytest.mark.parametrize("function", ["ModelNew", "run"])
@pytest.mark.parametrize("factor", [1, 2])
def test_an_optional_input_of_a_module_is_left_out_of_some_cases(here, fuzz, function, factor):
    (here / "masked.py").write_text(HEAD + MASKED)
    (here / "mine.py").write_text(HEAD + KERNELS.format(factor))
    code, out, _ = fuzz(*searched("--reference", "masked.py", "--subject", f"mine.py:{function}"))
    assert (code, "[mask float32[x0, d]]" in out) == (factor - 1, True), out


EAGER = """
def normed(x, w):
    off = x - x.mean(-1, keepdim=True)
    return off / torch.sqrt(off.pow(2).mean(-1, keepdim=True) + 1e-5) * w
"""


def test_a_kernel_that_rounds_as_the_reference_itself_does_is_told_of_its_claim(here, fuzz):
    text = EAGER.replace("(x, w)", "(x: 'bfloat16[rows, cols]', w: 'bfloat16[cols]')")
    (here / "ref.py").write_text(HEAD + text)

    def claims(kernel):
        (here / "mine.py").write_text(kernel)
        code, out, _ = fuzz(*searched("--reference", "ref.py:normed", "--subject", "mine.py"))
        return code, [line for line in out.splitlines() if line.strip().startswith("claim")]

    rounding = "import torch\n" + EAGER.replace("normed", "run")
    code, lines = claims(rounding)
    assert code == 1
    assert "as the reference itself in torch is: declare NUMERICS = {'intermediates': {'all': 'input'}}" in lines[0]
    assert claims("NUMERICS = {'intermediates': {'all': 'input'}}\n" + rounding) == (0, [])
    tail = "def run(x, w):\n    y = normed(x.float(), w.float())\n    y[:, 16:] *= 2\n    return y.to(x.dtype)\n"
    assert claims("import torch\n" + EAGER + tail) == (1, []), "the reference is not that far off"


def test_the_children_of_a_reference_that_forks_end(here, fuzz):
    (here / "ref.py").write_text(NUMPY.format("import os; os.fork()"))
    (here / "mine.py").write_text("def run(x):\n    return x + x\n")
    began = time.monotonic()
    code, out, err = fuzz(*searched("--reference", "ref.py:doubled", "--subject", "mine.py"))
    assert (code, "findings: none" in out) == (0, True), err
    assert time.monotonic() - began < 30, "there are not twice as many with each case"


PREPARED = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(12, 12)
        self.prepared = {{}}

    def forward(self, x):
        key = {}
        if key not in self.prepared:
            self.prepared[key] = {}
        return {}

def get_inputs(): return [torch.rand(8, 12)]
"""
KEPT = {
    "its weights": ("None", "self.linear.weight.T.contiguous()", "x @ self.prepared[key] + self.linear.bias"),
    "a result by its shape": ("x.shape", "self.linear(x)", "self.prepared[key].clone()"),
    "a result by the sum": ("float(x.sum())", "self.linear(x)", "self.prepared[key].clone()"),
}


@pytest.mark.parametrize("kept", KEPT)
def test_a_module_may_prepare_its_weights_once_and_keep_nothing_of_its_inputs(here, fuzz, monkeypatch, kept):
    monkeypatch.setattr("kernel_assay.fuzz.campaign.triage_queue.SEQUENCE_SECONDS", 2.0)
    (here / "plain.py").write_text(HEAD + PREPARED.format("None", "None", "self.linear(x)"))
    (here / "keeps.py").write_text(HEAD + PREPARED.format(*KEPT[kept]))
    code, out, _ = fuzz(*searched("--reference", "plain.py", "--subject", "keeps.py:Model"))
    assert code == (0 if kept == "its weights" else 1), out
    assert ("stateful (sequence)" in out) == (code == 1), out
