"""`judge`: one problem of each layout, by right and wrong solutions, and one sentence for what cannot be judged."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from _command import refused

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "bench"))
from _layouts import BASE, CUDA_NORM, NORM, RUN, SOLUTIONS, folder_of, solution

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import Target, propose
from kernel_assay.fuzz.layout_registry import layouts, recognised
from kernel_assay.fuzz.layouts.support.problem import Workload
from kernel_assay.kernels.backends.simt.toolchain import missing as lacking
from kernel_assay.oracles.catalog import contract_of, forget_contracts

pytestmark = pytest.mark.usefixtures("no_references")


def words(folder, tmp_path, *more):
    return ("judge", folder, "--cases", "64", "--seed", "1", "--corpus", tmp_path / "corpus", *more)


def test_every_layout_has_a_problem():
    assert sorted(BASE) == sorted(SOLUTIONS)
    assert {module.__name__.rpartition(".")[2] for module in layouts()} == {name.partition(":")[0] for name in BASE}


@pytest.mark.parametrize("which", ["right", "wrong"])
@pytest.mark.parametrize("layout", sorted(BASE))
def test_a_solution_is_judged(tmp_path, fuzz, layout, which):
    if layout == "flashinfer:cuda" and (why := lacking()):
        pytest.skip(why)
    folder = folder_of(tmp_path, layout, which)
    before = sorted(folder.rglob("*"))
    code, out, err = fuzz(*words(folder, tmp_path, "--json", tmp_path / "o.json", "--junit", tmp_path / "o.xml"))
    assert (code, out.startswith(f"{which}")) == (int(which == "wrong"), True), out + err
    assert ("looking into it" if which == "wrong" else "searching on") in err, "a person sees how far it is"
    told = json.loads((tmp_path / "o.json").read_text())
    shapes = told["shapes"] or told["report"]["workload"]
    assert (told["verdict"], bool(shapes), told["too_large"]) == (which, True, [])
    assert 0 < told["first_verdict_seconds"] <= told["seconds"]
    assert int(ET.parse(tmp_path / "o.xml").getroot().get("failures")) == len(told["report"]["findings"])
    assert sorted(p for p in folder.rglob("*") if "__pycache__" not in p.parts) == before, "nothing is left beside it"


def test_a_finding_is_replayed_by_its_adapters(tmp_path, fuzz):
    folder = folder_of(tmp_path, "gpu_mode", "wrong")
    assert fuzz(*words(folder, tmp_path))[0] == 1
    forget_contracts()
    code, out, err = fuzz("replay", "--corpus", tmp_path / "corpus")
    assert (code, "fails: gpu_mode_wrong/submission_adapter:custom_kernel" in out) == (1, True), err


def test_a_trace_has_a_line_for_each_workload(tmp_path, fuzz):
    folder = folder_of(tmp_path, "flashinfer", "right")
    whole = RUN.format(NORM).replace("def run", "def run_all")
    wrong = f"{whole}\n\ndef run(hidden, weight, eps):\n    out = run_all(hidden, weight, eps)\n"
    wrong += "    return out if hidden.shape[0] == 1 else out[:1]\n"
    (folder / "solution.json").write_text(solution(wrong))
    code, _, err = fuzz(*words(folder, tmp_path, "--trace", tmp_path / "t.jsonl"))
    assert code == 1, err
    one, other = (json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines())
    assert (one["definition"], one["solution"], one["workload"]["uuid"]) == ("rmsnorm_d64", "mine", "w1")
    assert one["evaluation"]["status"] == "PASSED"
    assert set(one["evaluation"]) == {"status", "environment", "timestamp", "log", "correctness", "performance"}
    assert other["evaluation"]["status"] == "INCORRECT_SHAPE"
    assert not {"correctness", "performance"} & set(other["evaluation"]), "their schema forbids both"


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (Kind.NONFINITE, "INCORRECT_NUMERICAL"),
        (Kind.WRONG_DTYPE, "INCORRECT_DTYPE"),
        (Kind.RAISED, "RUNTIME_ERROR"),
        (Kind.CRASHED, "RUNTIME_ERROR"),
        (Kind.BUILD_FAILED, "COMPILE_ERROR"),
        (Kind.TIMEOUT, "TIMEOUT"),
    ],
)
def test_statuses_are_theirs(tmp_path, kind, status):
    problem = recognised([folder_of(tmp_path, "flashinfer", "right")])
    line = problem.trace(Workload({}, {"uuid": "w"}), Verdict(kind=kind, message="so"))
    assert (line["evaluation"]["status"], line["evaluation"]["log"]) == (status, "so")


def test_the_first_cases_have_the_shapes_that_the_author_names():
    shapes = ({"rows": 7, "cols": 9}, {"rows": 3, "cols": 65})
    target = Target(replace(contract_of("softmax"), shapes=shapes), dtypes=("float16",))
    proposed = [propose([target], 1, index, Elites(())) for index in range(3)]
    tensors = [one.case.tensors["x"] for one in proposed]
    assert [t.shape for t in tensors[:2]] == [(7, 9), (3, 65)]
    assert {(t.dtype, t.layout, t.fill.distribution) for t in tensors[:2]} == {("float16", "contiguous", "normal")}
    assert proposed[2].choices, "the others are drawn"


def test_two_files_are_a_pair(tmp_path):
    folder = folder_of(tmp_path, "kernelbench", "right")
    (folder / "other.py").write_text((folder / "new.py").read_text())
    with pytest.raises(UsageError, match=r"more than one file with ModelNew \(new.py, other.py\): name the pair"):
        recognised([folder])
    assert recognised([folder / "other.py", folder / "model.py"]).subject == f"{folder / 'other.py'}:ModelNew"
    with pytest.raises(UsageError, match="has no class ModelNew"):
        recognised([folder / "model.py", folder / "model.py"])


def test_a_solution_that_does_not_itself_import_torch_is_judged(tmp_path, fuzz):
    """Its workers are others than those that were started before that was known."""
    folder = folder_of(tmp_path, "kernelbench", "right")
    (folder / "new.py").rename(folder / "impl.py")
    (folder / "new.py").write_text("from impl import ModelNew\n")
    code, out, err = fuzz(*words(folder / "model.py", tmp_path, folder / "new.py"))
    assert (code, out.startswith("right")) == (0, True), out + err


@pytest.mark.parametrize("layout", sorted(BASE))
def test_a_missing_solution_is_told(tmp_path, fuzz, layout):
    missing = {
        "kernelbench": "has no class ModelNew, which is the solution of model.py",
        "plain": "has no solution.py, which holds the function 'solution'",
        "gpu_mode": "has no submission.py, which holds custom_kernel",
        "flashinfer": "has no solution.json, which holds the solution",
        "cudabeaver": "solution.py has no ModelNew, which is the solution",
    }
    told = missing[layout.partition(":")[0]]
    refused(fuzz(*words(folder_of(tmp_path, layout), tmp_path)), told)


def test_what_is_no_problem_is_told(tmp_path, fuzz):
    (tmp_path / "empty").mkdir()
    looked = "looked for: instance.json and input.json, definition.json, task.yml, a file with the class Model and "
    looked += "get_inputs(), problem.yaml"
    refused(fuzz(*words(tmp_path / "empty", tmp_path)), "holds no problem that is known", looked)
    folder = folder_of(tmp_path, "plain", "right")
    (folder / "model.py").write_text(BASE["kernelbench"]["model.py"])
    (folder / "new.py").write_text(SOLUTIONS["kernelbench"]["right"]["new.py"])
    refused(fuzz(*words(folder, tmp_path)), "holds several problems, KernelBench and problem.yaml")


def test_a_reference_that_raises_is_told(tmp_path, fuzz):
    folder = folder_of(tmp_path, "kernelbench", "right")
    text = BASE["kernelbench"]["model.py"].replace("torch.softmax(", "torch.no_such(")
    (folder / "model.py").write_text(text)
    refused(fuzz(*words(folder, tmp_path)), "it does not run on its own examples: AttributeError")


@pytest.mark.parametrize(
    ("layout", "file", "old", "new", "said"),
    [
        ("plain", "problem.yaml", "inputs:", "input:", "problem.yaml: "),
        ("plain", "problem.yaml", "inputs:", "{", "is no YAML"),
        ("plain", "reference.py", "def reference", "def other", "has no reference, which is the reference"),
        ("gpu_mode", "task.yml", "tests:", "test:", "has no tests"),
        ("gpu_mode", "reference.py", "def ref_kernel", "def kernel", "has no ref_kernel"),
        ("flashinfer", "definition.json", '"axes"', '"axe"', "is not of its schema: no 'axes'"),
        ("flashinfer", "definition.json", '"const"', '"expr"', "the axis hidden_size is expr"),
        ("flashinfer", "workload.jsonl", '"value"', '"values"', "eps is a scalar, and no line"),
        ("flashinfer", "workload.jsonl", '{"axes"', '{"ax"', "has a line that is no workload"),
        ("flashinfer", "solution.json", '"python"', '"fortran"', "is written in fortran"),
        ("flashinfer", "workload.jsonl", '{"axes"', '{"a": ' + "[" * 100_000, "are not as definition.json should be"),
        ("flashinfer", "definition.json", '"name": "rmsnorm_d64"', '"name": 7', "7 is no name"),
        ("flashinfer", "solution.json", "main.py::run", "main.py", "is no FILE::FUNCTION of its sources"),
        (
            "flashinfer",
            "solution.json",
            '"path": "main.py"',
            '"path": "../main.py"',
            "outside of its folder: ../main.py",
        ),
    ],
)
def test_what_breaks_a_layout_is_told(tmp_path, layout, file, old, new, said):
    folder = folder_of(tmp_path, layout, "right")
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    with pytest.raises(UsageError) as caught:
        recognised([folder])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_shapes_of_the_author_come_first_unless_they_are_too_large(tmp_path, fuzz):
    folder = folder_of(tmp_path, "plain", "right")
    text = BASE["plain"]["problem.yaml"].replace("shapes: [", "shapes: [{rows: 9999, cols: 9999}, ")
    (folder / "problem.yaml").write_text(text)
    code, out, _ = fuzz(*words(folder, tmp_path))
    assert (code, "came first: rows=8 cols=64\n" in out, "too large to be tried: rows=9999 cols=9999" in out) == (
        0,
        True,
        True,
    )


def test_numbers_that_yaml_takes_for_text_are_numbers(tmp_path):
    folder = folder_of(tmp_path, "plain", "right")
    text = BASE["plain"]["problem.yaml"] + "attrs: {eps: 1e-6, how: tanh, most: inf, n: 3, k: 0.5..1.5}\n"
    (folder / "problem.yaml").write_text(text)
    (adapter,) = recognised([folder]).files.values()
    assert "'eps': 1e-06, 'how': 'tanh', 'most': 'inf', 'n': 3, 'k': '0.5..1.5'}" in adapter


def test_a_solution_in_cuda_that_needs_a_gpu_is_told_by_a_status_and_no_finding(tmp_path, fuzz):
    folder = folder_of(tmp_path, "flashinfer:cuda", "right")
    host = "#include <torch/extension.h>\ntorch::Tensor run(torch::Tensor x) { return x; }\n"
    for source, entry, why in (
        (host, "main.cu::run", "run of main.cu is a function of the host, not a kernel"),
        (CUDA_NORM.replace("---", ""), "main.cu::rmsnorm", "rmsnorm of main.cu has no front matter"),
        (
            CUDA_NORM + "__global__ void k2(float*) {}\n",
            "main.cu::k2",
            "is k2, and the front matter of main.cu launches",
        ),
    ):
        (folder / "solution.json").write_text(solution(source, entry, "cuda"))
        refused(fuzz(*words(folder, tmp_path, "--trace", tmp_path / "t.jsonl")), why)
        told = [json.loads(line)["evaluation"] for line in (tmp_path / "t.jsonl").read_text().splitlines()]
        assert [one["status"] for one in told] == ["COMPILE_ERROR"] * 2
        assert all(one["log"].startswith("not judged: ") and why in one["log"] for one in told)
    assert not list(tmp_path.glob("corpus/local/findings/**/*.json"))


def test_a_task_of_cudabeaver_for_a_gpu_is_one_sentence(tmp_path, fuzz):
    folder = folder_of(tmp_path, "cudabeaver", "wrong")
    (folder / "instance.json").write_text('{"task_family": "cuda"}')
    refused(fuzz(*words(folder, tmp_path)), "is of the family cuda, whose test is a program that nvcc builds for a GPU")
    (folder / "instance.json").write_text('{"task_family": "kernelbench"}')
    (folder / "testbench" / "problem.py").unlink()
    refused(fuzz(*words(folder, tmp_path)), "has no problem.py or testbench/problem.py or reference.py with the class")


@pytest.mark.parametrize("said", ['PLANTED = "mismatch"', 'PLANTED = "mismatch"\nSHOWS = "emulator"'])
def test_a_solution_cannot_say_that_it_is_meant_to_be_wrong(tmp_path, fuzz, said):
    folder = folder_of(tmp_path, "kernelbench", "wrong")
    path = folder / "new.py"
    path.write_text(f"{said}\n{path.read_text()}")
    code, out, err = fuzz(*words(folder, tmp_path))
    assert (code, out.startswith("wrong")) == (1, True), out + err


@pytest.mark.parametrize(("kept", "code"), [("x.shape[0] % 2", 0), ("x.shape[0] == 128", 2)])
def test_a_solution_that_declines_nearly_all_is_not_called_right(tmp_path, fuzz, kept, code):
    folder = folder_of(tmp_path, "kernelbench", "right")
    path = folder / "new.py"
    decline = f"        if not ({kept}):\n            raise NotImplementedError\n"
    path.write_text(re.sub(r"(    def forward\(self, x\):\n)", rf"\1{decline}", path.read_text()))
    found, out, err = fuzz(*words(folder, tmp_path))
    assert (found, "declined" in out) == (code, True), out + err
    assert out.startswith("not judged" if code else "right")


PAIR = "import torch\nfrom torch import nn\n\nclass {}(nn.Module):\n    def forward(self, x): return {}\n"
EXAMPLES = "def get_inputs(): return [torch.rand(6, 20){}]\ndef get_init_inputs(): return []\n"
ORDINARY = {  # a solution of torch.softmax(x, 1) or x.amax(1), and whether it is right
    "a maximum that loses NaN": ("x.amax(1)", "x.nan_to_num(-torch.inf).amax(1)", "right_if_ordinary"),
    "a sum before its product": ("(x * 2).sum(1)", "x.sum(1) * 2", "right"),
    "no maximum": ("x.softmax(1)", "x.exp() / x.exp().sum(1, keepdim=True)", "wrong"),
    "no last column": ("x.amax(1)", "x.nan_to_num(-torch.inf)[:, : max(1, x.shape[1] // 8 * 8)].amax(1)", "wrong"),
}


@pytest.mark.parametrize("what", ORDINARY)
def test_what_only_differs_for_odd_inputs_is_right_for_ordinary_ones(tmp_path, fuzz, what):
    reference, mine, verdict = ORDINARY[what]
    folder = tmp_path / "pair"
    folder.mkdir()
    (folder / "one.py").write_text(PAIR.format("Model", reference) + EXAMPLES.format(""))
    (folder / "one_new.py").write_text(PAIR.format("ModelNew", mine))
    code, out, err = fuzz(*words(folder, tmp_path, "--json", tmp_path / "o.json"))
    told = json.loads((tmp_path / "o.json").read_text())
    found = told["verdict"], code, bool(told["beyond"])
    assert found == (verdict, int(verdict == "wrong"), "if" in verdict), out + err
    assert out.startswith({"right_if_ordinary": "right for ordinary inputs"}.get(verdict, verdict))
    if verdict == "right_if_ordinary":
        assert "it differs from its reference for inputs with NaN, Inf" in out
        assert fuzz(*words(folder, tmp_path, "--strict"))[0] == 1


@pytest.mark.parametrize(
    ("mine", "verdict"),
    [
        ("torch.nn.functional.silu(x * 3) * x", "right"),
        ("(lambda y: (y * y.float().sigmoid()).to(x.dtype).float() * x.float())((x * 3).float()).to(x.dtype)", "right"),
        ("torch.nn.functional.silu(x * 3.1) * x", "wrong"),
    ],
)
def test_a_solution_may_round_where_its_reference_does(tmp_path, fuzz, mine, verdict):
    folder = tmp_path / "pair"
    folder.mkdir()
    examples = EXAMPLES.format(".bfloat16()")
    (folder / "one.py").write_text(PAIR.format("Model", "torch.nn.functional.silu(x * 3) * x") + examples)
    (folder / "one_new.py").write_text(PAIR.format("ModelNew", mine))
    code, out, err = fuzz(*words(folder, tmp_path))
    assert (code, out.startswith(f"{verdict},")) == (int(verdict == "wrong"), verdict == "right"), out + err
    assert "its reference rounds to bfloat16 in between, and so may it" in out
