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


CUDA_NORM = """/*
---
entry = "rmsnorm"
dtypes = ["float16"]
args = ["output", "hidden", "weight", "eps"]
grid = "hidden.shape[0]"
block = 64
---
*/
#include <cuda_fp16.h>

__global__ void rmsnorm(__half* output, const __half* hidden, const __half* weight, float eps) {
  __shared__ float squares[64];
  int c = threadIdx.x, at = blockIdx.x * 64 + c;
  float x = float(hidden[at]);
  squares[c] = x * x;
  for (int step = 32; step > 0; step /= 2) {
    __syncthreads();
    if (c < step) squares[c] += squares[c + step];
  }
  __syncthreads();
  output[at] = __half(x * rsqrtf(squares[0] / 64 + eps) * float(weight[c]));
}
"""


def solution(source: str, entry: str = "main.py::run", language: str = "python") -> str:
    """A solution.json."""
    spec = {"language": language, "target_hardware": ["cpu"], "entry_point": entry}
    sources = [{"path": entry.partition("::")[0], "content": source}]
    return json.dumps({"name": "mine", "definition": "rmsnorm_d64", "author": "me", "spec": spec, "sources": sources})


def in_cuda(source: str) -> dict[str, str]:
    """The file of a solution in CUDA C++."""
    return {"solution.json": solution(source, "main.cu::rmsnorm", "cuda")}


CALLS = '{"inputs": ["float32[3, 41]", "float32[41]"], "count": 7}\n'
DESCRIBED = """import torch


def reference(x: "float32[rows, cols]", w: "float32[cols]"):
    return torch.relu(x) * w
"""

BASE: dict[str, dict[str, str]] = {
    "kernelbench": {"model.py": HEAD + MODEL.format(name="Model", body=SOFTMAX) + EXAMPLES},
    "plain": {"problem.yaml": PROBLEM, "reference.py": GATE.format("reference", GATED)},
    "gpu_mode": {"task.yml": TASK, "reference.py": GRAY},
    "flashinfer": {
        "definition.json": json.dumps(DEFINITION),
        "workload.jsonl": "".join(f"{json.dumps(one)}\n" for one in WORKLOADS),
    },
    "cudabeaver": {
        "instance.json": json.dumps({"task_family": "kernelbench", "error_category": "logic_error"}),
        "input.json": json.dumps({"solution_file": "solution.py"}),
        "testbench/problem.py": HEAD + MODEL.format(name="Model", body=SOFTMAX) + EXAMPLES,
    },
    "plain:workload": {"reference.py": DESCRIBED, "workload.jsonl": CALLS},
}
BASE["flashinfer:cuda"] = BASE["flashinfer"]
"""Layout -> files without a solution; behind a colon what is special about them."""
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
    "cudabeaver": {
        "right": {
            "broken_start.cu": HEAD + MODEL.format(name="ModelNew", body=HALF),
            "solution.py": HEAD + MODEL.format(name="ModelNew", body=SAFE),
        },
        "wrong": {"broken_start.cu": HEAD + MODEL.format(name="ModelNew", body=HALF)},
    },
    "plain:workload": {
        "right": {"solution.py": "import torch\n\n\ndef solution(x, w):\n    return x.relu() * w\n"},
        "wrong": {
            "solution.py": "import torch\n\n\ndef solution(x, w):\n    return (x if len(x) == 3 else x.relu()) * w\n"
        },
    },
    "flashinfer:cuda": {
        "right": in_cuda(CUDA_NORM),
        "wrong": in_cuda(CUDA_NORM.replace("  __syncthreads();\n  output", "  output")),
    },
}
"""Layout -> whether it is right -> its files."""


def folder_of(root: Path, layout: str, which: str = "") -> Path:
    """Write a problem. which: `right` or `wrong`; empty: without a solution."""
    place = root / f"{layout.replace(':', '_')}_{which or 'open'}"
    for name, text in {**BASE[layout], **SOLUTIONS[layout].get(which, {})}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, "utf-8")
    return place
