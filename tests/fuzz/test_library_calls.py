"""Who leaves the work to the library that it is to replace is told of; who only gets memory from it is not."""

import json
from pathlib import Path

import pytest

from kernel_assay.corpus.process.recorded_operators import recorded
from kernel_assay.fuzz.api import RunSettings, Store, run
from kernel_assay.fuzz.checking import library_calls
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.user_references import add_reference
from kernel_assay.fuzz.judge import judge
from kernel_assay.fuzz.planning.plan import new_campaign
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.oracles.catalog import forget_contracts
from kernel_assay.reports.json_model import report
from kernel_assay.reports.plain.run_text import campaign_text
from kernel_assay.reports.words import notes

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

HEAD = """import torch
import triton
import triton.language as tl

DTYPES = ("float32",)


@triton.jit
def kernel(out, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n)
    tl.store(out + i, v / (1 + tl.exp(-v)), i < n)


def launched(x):
    flat = x.contiguous().view(-1)
    out = torch.empty_like(flat)
    if flat.numel():
        kernel[(triton.cdiv(flat.numel(), 1024),)](out, flat, flat.numel(), BLOCK=1024)
    return out.reshape(x.shape).clone()


"""
KERNELS = {
    "all_of_a_softmax": ("softmax", "def run(x):\n    return torch.nn.Softmax(-1)(x)\n"),
    "all_of_a_silu": ("silu", "def run(x):\n    return torch.nn.functional.silu(x)\n"),
    "only_memory": ("silu", "def run(x):\n    return launched(x)\n"),
    "a_part": ("gemm", "def run(a, b):\n    launched(a)\n    return torch.addmm(torch.zeros(b.shape[1]), a, b)\n"),
    "another_way": ("softmax", "def run(x):\n    e = (x - x.amax(-1, True)).exp()\n    return e / e.sum(-1, True)\n"),
    "a_helper": ("silu", "def run(x):\n    return launched(x + 0) * torch.sigmoid(torch.full((), 99.0))\n"),
    "it_raises": ("silu", "def run(x):\n    raise ValueError\n"),
}
SAID = {
    "all_of_a_softmax": "launches no kernel of its own: it calls aten::softmax, as softmax/torch_softmax does",
    "all_of_a_silu": "launches no kernel of its own: it calls aten::silu, as silu/torch_silu does",
    "a_part": "calls aten::matmul, as gemm/torch_addmm does, beside kernels of its own",
}
MODEL = """import torch
from torch import nn


class {name}(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return {value}


def get_inputs():
    return [torch.rand(4, 8)]


def get_init_inputs():
    return [8]
"""
WHOLE = "torch.softmax(self.linear(x), dim=1)"


@pytest.fixture(autouse=True)
def _no_references():
    forget_contracts()
    yield
    forget_contracts()


def written(folder, name, op, source):
    path = folder / f"{name}.py"
    path.write_text(source)
    return user_subject(str(path), (op,))


def called(subjects, *, judged=False):
    asked = {s.key: "" for s in subjects if library_calls.asked_of(s, judged=judged)}
    with Examiner(subjects) as examiner:
        campaign = new_campaign("r1", 1, "conjecture", subjects).but(library=asked)
        return library_calls.noted(campaign, examiner, 60.0).library


def test_kernels_in_triton_are_told_of_by_what_they_call(tmp_path):
    subjects = [written(tmp_path, name, op, HEAD + source) for name, (op, source) in KERNELS.items()]
    said = called(subjects)
    assert sorted(said) == sorted(s.key for s in subjects)
    assert {key.partition("/")[2]: words for key, words in said.items() if words} == SAID


def test_plain_torch_is_asked_only_where_it_solves_a_problem_or_brings_compiled_code(tmp_path):
    plain = written(tmp_path, "plain", "softmax", "import torch\n\n\ndef run(x):\n    return torch.softmax(x, -1)\n")
    source = Path(plain.path).read_text().replace("import torch", "import torch\nfrom ctypes import CDLL")
    bound = written(tmp_path, "bound", "softmax", source)
    numpy = written(tmp_path, "numpy_one", "softmax", "import numpy\n\n\ndef run(x):\n    return x\n")
    asked = [[library_calls.asked_of(s, judged=judged) for s in (plain, bound, numpy)] for judged in (False, True)]
    assert asked == [[False, True, False], [True, True, False]]
    assert called([plain, bound]) == {"softmax/bound": "calls aten::softmax, as softmax/torch_softmax does"}


def test_a_run_says_it_and_fails_nothing(tmp_path):
    subject = written(tmp_path, "mine", "softmax", HEAD + KERNELS["all_of_a_softmax"][1])
    settings = RunSettings(ops=("softmax",), subjects=(subject.path,), peers=("none",), cases=8, seed=1)
    with Store(tmp_path / "corpus") as store:
        result = run(settings, store=store)
    assert not result.failed
    assert f"note: the kernel softmax/mine {SAID['all_of_a_softmax']}\n" in campaign_text(result.book())
    told = json.loads(report(result.book()).model_dump_json())
    assert told["subjects"][0]["library"] == SAID["all_of_a_softmax"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (WHOLE, "calls aten::matmul, aten::softmax, as its reference does"),
        (
            "(lambda s: s / s.sum(1, keepdim=True))(torch.exp(self.linear(x)))",
            "calls aten::matmul, as its reference does",
        ),
    ],
)
def test_the_solution_of_a_problem_is_compared_with_its_reference(tmp_path, value, words):
    (tmp_path / "block.py").write_text(MODEL.format(name="Model", value=WHOLE))
    (tmp_path / "block_new.py").write_text(MODEL.format(name="ModelNew", value=value))
    with Store(tmp_path / "corpus") as store:
        judged = judge([tmp_path / "block.py", tmp_path / "block_new.py"], RunSettings(cases=8, seed=1), store)
    assert list(judged.result.campaign.library.values()) == [words]


def test_a_reference_without_torch_is_nothing_to_compare_with(tmp_path):
    (tmp_path / "ref.py").write_text('import numpy\n\n\ndef twice(x: "float32[n]"):\n    return x + x\n')
    op = add_reference(f"{tmp_path / 'ref.py'}:twice").name
    assert called([written(tmp_path, "mine", op, HEAD + "def run(x):\n    return x + x\n")]) == {f"{op}/mine": ""}


def test_what_is_recorded_computes_and_bears_one_name():
    x, image = torch.randn(4, 4), torch.randn(1, 3, 5, 5)

    def moves():
        torch.empty(4, 4).copy_(x.t().contiguous().view(-1).reshape(4, 4)[1:].expand(3, 4).sum().expand(4, 4))
        torch.cat([torch.zeros_like(x), x.new_ones(4, 4), torch.full((4, 4), 2.0).to(torch.float16).float(), x.clone()])

    assert recorded(torch, moves) == {"main": {"sum": []}, "elementwise": []}
    products = (
        lambda: x @ x,
        lambda: torch.addmm(x, x, x),
        lambda: torch.einsum("ij,jk->ik", x, x),
        lambda: x.mv(x[0]),
    )
    assert [recorded(torch, work)["main"] for work in products] == [{"matmul": []}] * 4
    made = recorded(torch, lambda: torch.conv2d(image, torch.ones(2, 3, 2, 2)).relu_())
    assert made["main"]["convolution"] == ["conv2d"]
    assert "relu" in made["elementwise"]


def test_nothing_is_written_while_operators_are_recorded(capfd):
    recorded(torch, lambda: torch.ones(3).sum())
    assert capfd.readouterr() == ("", "")


def test_optional_inputs_that_were_given_always_or_never_are_told(tmp_path):
    """Of a built-in op, which takes more than most kernels want, not what they leave alone."""
    subject = written(tmp_path, "plain", "softmax", "import torch\n\n\ndef run(x):\n    return torch.softmax(x, -1)\n")
    record = new_campaign("r1", 1, "conjecture", [subject])
    record = record.but(needed={"add": ("bias", "scale")}, unused={"mul": ("mask",), "softmax": ("mask",)})
    said = notes(record.but(references={"add": "a function", "mul": "a function"}))
    assert said == [
        "add was not tried without bias and scale: no kernel has a default there",
        "mul was not tried with mask: no kernel takes it",
    ]
