"""Reproducers of failures on a GPU hand the kernel copies there; here, where there is none, they are on the CPU."""

import ast

import pytest
import torch
from test_reproducer import SMALL, finding_of, isolated, run_all, seen, silu, written

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.findings import Exhibit
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.reports.reproducer.script import reproducer

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="it needs a GPU")
HEAD = 'import torch\nOP = "silu"\nBACKEND = "torch"\n\n\n'
RIGHT = "    out.copy_(torch.nn.functional.silu(x.double()))\n"
WRITES = {
    "last": (RIGHT + "    out[..., -1] = 7\n", Kind.MISMATCH, "is 7.0, wanted "),
    "unwritten": (
        "    y = out.clone()\n" + RIGHT + "    out[-1] = y[-1]\n",
        Kind.UNWRITTEN,
        " was never written: it is nan",
    ),
    "mutates": (RIGHT + "    x[0] += 1\n", Kind.INPUT_MUTATED, "it changed its input 'x' in "),
    "raises": ("    raise ValueError('no such thing')\n", Kind.RAISED, "it raised ValueError: no such thing"),
}
RETURNS = {
    "shape": ("    return torch.zeros(3)\n", Kind.WRONG_SHAPE, "its result has shape (3,), wanted "),
    "dtype": ("    return x.to(torch.float64)\n", Kind.WRONG_DTYPE, "its result has dtype float64, wanted "),
    "alias": ("    return x\n", Kind.ALIASED, "out is the memory of its input 'x', not a result of its own"),
    "values": ("    return torch.zeros_like(x)\n", Kind.MISMATCH, "is 0.0, wanted "),
    "layout": (
        "    return x.mT.clone(memory_format=torch.contiguous_format).mT\n",
        Kind.WRONG_LAYOUT,
        "strides of its result: ",
    ),
}
FAULTS = {
    **{name: (f"{HEAD}def run(out, x):\n{body}", *rest) for name, (body, *rest) in WRITES.items()},
    **{name: (f"{HEAD}def run(x):\n{body}", *rest) for name, (body, *rest) in RETURNS.items()},
}
LAYOUTS = {"last": "row_gaps", "values": "offset_one", "mutates": "transposed"}


def case_of(name):
    recipe = TensorRecipe(
        shape=(5, 8),
        dtype="bfloat16" if name in LAYOUTS else "float32",
        layout=LAYOUTS.get(name, "contiguous"),
        fill=Fill(distribution="normal", seed=3),
    )
    return Case(op="silu", tensors={"x": recipe})


def moved(finding):
    """As if it had been found on a GPU."""
    return finding.but(subject=finding.subject.but(device="cuda"))


def simulated(script):
    """The same file for where there is no GPU."""
    text = script.read_text("utf-8")
    assert text.count('DEVICE = "cuda"\n') == 1
    script.write_text(text.replace('DEVICE = "cuda"\n', 'DEVICE = "cpu"\n'), "utf-8")
    return script


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("kernels"), {}
    for name, (text, _, _) in FAULTS.items():
        (folder / f"{name}.py").write_text(text)
    subjects = {name: user_subject(str(folder / f"{name}.py"), ()) for name in FAULTS}
    with Examiner(list(subjects.values())) as examiner:
        for name, subject in subjects.items():
            verdict = examiner.check([CheckRequest(case_of(name), (subject.key,))])[0].verdicts[subject.key]
            assert verdict.kind is FAULTS[name][1], (name, verdict.message)
            found[name] = moved(seen(examiner, case_of(name), subject.key))
    return found


@pytest.fixture(scope="module")
def told(findings, tmp_path_factory):
    """Of each what its file says, and what that says of a right kernel."""
    top, jobs = tmp_path_factory.mktemp("there"), []
    for name, finding in findings.items():
        script = simulated(written(top / name, finding))
        right = script.parent / "right.py"
        returns = "    return torch.nn.functional.silu(x.double()).to(x.dtype).contiguous()\n"
        right.write_text(HEAD + (f"def run(x):\n{returns}" if name in RETURNS else f"def run(out, x):\n{RIGHT}"))
        jobs += [[script], [script, right]]
    results = run_all(top, jobs)
    return {name: results[2 * i : 2 * i + 2] for i, name in enumerate(findings)}


@pytest.mark.parametrize("name", FAULTS)
def test_what_failed_there_shows_again(told, name):
    code, said = told[name][0]
    assert code == 1, said
    assert FAULTS[name][2] in said
    assert "reproduced: " in said
    assert "recorded bytes" not in said


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_repaired_is_told(told, name):
    code, said = told[name][1]
    assert code == 0, said
    assert "not reproduced: " in said


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        (
            Kind.CRASHED,
            "raise RuntimeError('CUDA error: an illegal memory access')",
            "CUDA error: an illegal memory access",
        ),
        (Kind.OUT_OF_MEMORY, "raise RuntimeError('CUDA out of memory')", "it takes all the memory there is"),
        (
            Kind.OUT_OF_BOUNDS,
            "out.zero_(); out.as_strided((1,), (1,), out.storage_offset() + 15).fill_(7)",
            "it wrote 4 bytes outside the elements of 'out', at byte 60 from its start",
        ),
        (
            Kind.NONDETERMINISTIC,
            "out.fill_(1 if SEEN else 2); SEEN.append(1)",
            "runs 1 and 2 differ in 15 of 15 elements",
        ),
    ],
)
def test_what_is_no_value(tmp_path, kind, body, said):
    subject = silu().subject.but(backend="torch", device="cuda")
    exhibit = Exhibit(output="out", shape=(3, 5), dtype="float32", elements=(), returns=False)
    finding = finding_of(SMALL, subject, Verdict(kind=kind, rule="r", message=said, output="out"), exhibit)
    (tmp_path / "zeros.py").write_text(f"{HEAD}SEEN = []\n\n\ndef run(out, x):\n    {body}\n")
    (tmp_path / "right.py").write_text(f"{HEAD}def run(out, x):\n    out.zero_()\n")
    script = tmp_path / "reproduce.py"
    script.write_text(reproducer(finding), "utf-8")
    results = run_all(tmp_path, [[simulated(script)], [script, tmp_path / "right.py"]])
    assert [code for code, _ in results] == [1, 0], results
    assert said in results[0][1]
    assert "reproduced: " in results[0][1]


@needs_gpu
def test_on_a_gpu_they_are_there(findings, tmp_path):
    results = run_all(tmp_path, [[written(tmp_path / name, finding)] for name, finding in findings.items()])
    for name, (code, said) in zip(findings, results, strict=True):
        assert code == 1, (name, said)
        assert FAULTS[name][2] in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(findings, tmp_path):
    result = isolated(tmp_path, written(tmp_path, findings["last"]))
    assert (result.returncode, result.stdout) == (2, "it failed on a GPU, and torch finds none here\n")


@pytest.mark.parametrize(
    ("backend", "needs"), [("torch", "numpy, torch and a GPU"), ("triton", "numpy, torch, triton and a GPU")]
)
def test_it_says_what_it_needs(tmp_path, findings, backend, needs):
    finding = findings["last"]
    text = written(tmp_path, finding.but(subject=finding.subject.but(backend=backend))).read_text()
    ast.parse(text)
    assert f"(needs {needs})" in text
    assert "on_gpu(load(SUBJECT, FUNCTION))" in text


def test_what_kernel_assay_launches_is_replayed_on_the_device_where_it_failed(tmp_path):
    finding = silu()
    text = written(tmp_path, finding.but(subject=finding.subject.but(backend="cupy", device="cuda"))).read_text()
    assert f"kassay replay {finding.case.token} --subject zeros.py:run --device cuda\n" in text
