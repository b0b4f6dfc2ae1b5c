"""GEGLU's product in Triton: one row of 1024 elements after the other, whatever the shape; no gaps."""

import math

import triton
import triton.language as tl
from triton.language.extra import libdevice

BACKEND = "triton"
DTYPES = ("float32", "float16", "bfloat16")
ROOT = tl.constexpr(math.sqrt(0.5))
SLOPE = tl.constexpr(math.sqrt(2 / math.pi))


@triton.jit
def _gelu_gate(out_ptr, gate_ptr, up_ptr, count, TANH: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    gate = tl.load(gate_ptr + i, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + i, mask=inside, other=0.0).to(tl.float32)
    f = libdevice.tanh(SLOPE * (gate + 0.044715 * gate * gate * gate)) if TANH else tl.erf(gate * ROOT)
    tl.store(out_ptr + i, 0.5 * gate * (1.0 + f) * up, mask=inside)


def run(out, gate, up, *, approximate):
    if not (gate.is_contiguous() and up.is_contiguous()):
        raise NotImplementedError("takes contiguous tensors only")
    count = out.numel()
    if count:
        _gelu_gate[(triton.cdiv(count, 1024),)](out, gate, up, count, TANH=approximate == "tanh", BLOCK=1024)
