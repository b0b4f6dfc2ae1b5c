"""One made-up problem for each layout that `kassay judge` knows, with a right solution and a wrong one."""

from __future__ import annotations

import json
from pathlib import Path

HEAD = "import torch\nfrom torch import nn\n\n\n"
MODEL = """class {name}(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        {body}
"""
EXAMPLES = """

def get_inputs():
    return [torch.rand(16, 48)]


def get_init_inputs():
    return [48]
"""
SOFTMAX = "return torch.softmax(x * self.scale, dim=1)"
SAFE = """x = x * self.scale
        e = torch.exp(x - x.max(dim=1, keepdim=True).values)
        return e / e.sum(dim=1, keepdim=True)"""
HALF = SAFE.replace("x = x * self.scale", "x = (x.half() * self.scale.half()).float()")

PROBLEM = """inputs:
  x: "float32[rows, cols]"
  w: "float32[cols]"
attrs: {alpha: 1.5}
shapes: [{rows: 8, cols: 64}]
"""
GATE = "import torch\n\n\ndef {}(x, w, alpha):\n    {}\n"
GATED = "return x * torch.sigmoid(alpha * x) * w"
TAIL = """cols = x.shape[1] // 4 * 4
    out = x * w
    out[:, :cols] *= torch.sigmoid(alpha * x[:, :cols])
    return out"""

TASK = """files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "reference.py", "source": "reference.py"}
tests:
  - {"size": 16, "seed": 1001}
  - {"size": 32, "seed": 5531}
benchmarks:
  - {"size": 512, "seed": 54352}
"""
GRAY = """import torch


def ref_kernel(data):
    image, output = data
    weights = torch.tensor([0.25, 0.5, 0.25], device=image.device, dtype=image.dtype)
    output[...] = torch.sum(image * weights, dim=-1)
    return output


def generate_input(size: int, seed: int):
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    image = torch.rand(size, size, 3, device="cuda", dtype=torch.float32, generator=gen)
    return image, torch.empty(size, size, device="cuda", dtype=torch.float32)
"""
SUBMITTED = """import torch


def custom_kernel(data):
    image, output = data
    output[...] = {}
    return output
"""
WEIGHTED = "image[..., 0] * 0.25 + image[..., 1] * 0.5 + image[..., 2] * 0.25"

NORM = "(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight.to(torch.float32)).to(hidden.dtype)"
RUN = "import torch\n\n\ndef run(hidden, weight, eps):\n    x = hidden.to(torch.float32)\n    return {}\n"
TENSOR = {"shape": ["batch_size", "hidden_size"], "dtype": "float16"}
DEFINITION = {
    "name": "rmsnorm_d64",
    "op_type": "rmsnorm",
    "axes": {"batch_size": {"type": "var"}, "hidden_size": {"type": "const", "value": 64}},
    "inputs": {
        "hidden": TENSOR,
        "weight": {"shape": ["hidden_size"], "dtype": "float16"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"output": TENSOR},
    "reference": RUN.format(NORM),
}
EPS = {"type": "scalar", "value": 1e-6}
WORKLOADS = [
    {"axes": {"batch_size": n}, "inputs": {"hidden": {"type": "random"}, "eps": EPS}, "uuid": f"w{n}"} for n in (1, 7)
]


def solution(source: str) -> str:
    """A solution.json."""
    spec = {"language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::run"}
    sources = [{"path": "main.py", "content": source}]
    return json.dumps({"name": "mine", "definition": "rmsnorm_d64", "author": "me", "spec": spec, "sources": sources})


BASE: dict[str, dict[str, str]] = {
    "kernelbench": {"model.py": HEAD + MODEL.format(name="Model", body=SOFTMAX) + EXAMPLES},
    "plain": {"problem.yaml": PROBLEM, "reference.py": GATE.format("reference", GATED)},
    "gpu_mode": {"task.yml": TASK, "reference.py": GRAY},
    "flashinfer": {
        "definition.json": json.dumps(DEFINITION),
        "workload.jsonl": "".join(f"{json.dumps(one)}\n" for one in WORKLOADS),
    },
}
"""Layout -> files without a solution."""
SOLUTIONS: dict[str, dict[str, dict[str, str]]] = {
    "kernelbench": {
        "right": {"new.py": HEAD + MODEL.format(name="ModelNew", body=SAFE)},
        "wrong": {"new.py": HEAD + MODEL.format(name="ModelNew", body=HALF)},
    },
    "plain": {
        "right": {"solution.py": GATE.format("solution", GATED)},
        "wrong": {"solution.py": GATE.format("solution", TAIL)},
    },
    "gpu_mode": {
        "right": {"submission.py": SUBMITTED.format(WEIGHTED)},
        "wrong": {"submission.py": SUBMITTED.format(WEIGHTED.replace("0.5", "0.4"))},
    },
    "flashinfer": {
        "right": {"solution.json": solution(RUN.format(NORM))},
        "wrong": {"solution.json": solution(RUN.format(NORM.replace(" + eps", "")))},
    },
}
"""Layout -> whether it is right -> its files."""


def folder_of(root: Path, layout: str, which: str = "") -> Path:
    """Write a problem. which: `right` or `wrong`; empty: without a solution."""
    place = root / f"{layout}_{which or 'open'}"
    place.mkdir(parents=True)
    for name, text in {**BASE[layout], **SOLUTIONS[layout].get(which, {})}.items():
        (place / name).write_text(text, "utf-8")
    return place
