"""Bug: the mask ends at a multiple of 4 elements, as for vectors of 4, and so behind the last one."""

import triton
import triton.language as tl

BACKEND = "triton"
DTYPES = ("float32", "float16", "bfloat16")
NUMERICS = {"exp": "fast"}
PLANTED = "out_of_bounds"


@triton.jit
def _silu_gate(out_ptr, gate_ptr, up_ptr, count, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < (count + 3) // 4 * 4
    gate = tl.load(gate_ptr + i, mask=inside).to(tl.float32)
    up = tl.load(up_ptr + i, mask=inside).to(tl.float32)
    tl.store(out_ptr + i, tl.div_rn(gate, 1.0 + tl.exp(-gate)) * up, mask=inside)


def run(out, gate, up):
    if not (gate.is_contiguous() and up.is_contiguous()):
        raise NotImplementedError("takes contiguous tensors only")
    count = out.numel()
    if count:
        _silu_gate[(triton.cdiv(count, 1024),)](out, gate, up, count, BLOCK=1024)
