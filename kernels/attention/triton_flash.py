"""FlashAttention in Triton: blocks of 64 keys, a running maximum; the queries of all heads that share keys in a row."""

import triton
import triton.language as tl

BACKEND = "triton"
DTYPES = ("float16", "bfloat16")
NUMERICS = {"accumulate": "hopper", "intermediates": {"p": "input"}, "exp": "fast"}


@triton.jit
def _attention(
    out_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    lengths_ptr,
    lengths_step,
    kv_heads,
    group,
    queries,
    keys,
    head,
    scale,
    out_batch,
    out_head,
    out_row,
    q_batch,
    q_head,
    q_row,
    q_col,
    k_batch,
    k_head,
    k_row,
    k_col,
    v_batch,
    v_head,
    v_row,
    v_col,
    CAUSAL: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    HEAD: tl.constexpr,
):
    batch = (tl.program_id(1) // kv_heads).to(tl.int64)
    shared = tl.program_id(1) % kv_heads
    k_ptr += batch * k_batch + shared * k_head
    v_ptr += batch * v_batch + shared * v_head
    length = keys
    if lengths_ptr is not None:
        length = tl.load(lengths_ptr + batch * lengths_step)
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    own, i = shared * group + row // queries, row % queries
    d = tl.arange(0, HEAD)[None, :]
    inside = (row < group * queries) & (d < head)
    q = tl.load(q_ptr + batch * q_batch + own * q_head + i * q_row + d * q_col, mask=inside, other=0.0)
    last = length - 1
    if CAUSAL:
        last = i + length - queries
    top = tl.full((ROWS, 1), -float("inf"), tl.float32)
    total = tl.zeros((ROWS, 1), tl.float32)
    acc = tl.zeros((ROWS, HEAD), tl.float32)
    for begin in range(0, length, KEYS):
        j = (begin + tl.arange(0, KEYS))[:, None]
        there = (j < length) & (d < head)
        k = tl.load(k_ptr + j * k_row + d * k_col, mask=there, other=0.0)
        # Loaded before k is used, v lies beside it in shared memory, not where it was (quirks.LOST_DESCRIPTOR).
        v = tl.load(v_ptr + j * v_row + d * v_col, mask=there, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        s = tl.where(tl.trans(j) <= last, s, -float("inf"))
        new = tl.maximum(top, tl.max(s, axis=1, keep_dims=True))
        zero = tl.where(new == -float("inf"), 0.0, new)
        p, shrink = tl.exp(s - zero), tl.exp(top - zero)
        total = total * shrink + tl.sum(p, axis=1, keep_dims=True)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink)
        top = new
    acc = tl.div_rn(acc, tl.broadcast_to(tl.where(total == 0.0, 1.0, total), acc.shape))
    tl.store(out_ptr + batch * out_batch + own * out_head + i * out_row + d, acc, mask=inside)


def run(out, q, k, v, *, causal, lengths=None, scale=0.0):
    if not out.numel():
        return
    batch, heads, queries, head = q.shape
    kv_heads, keys = k.shape[1:3]
    group = heads // kv_heads
    step = 0 if lengths is None else lengths.stride(0)
    sizes = (kv_heads, group, queries, keys, head, scale or head**-0.5)
    strides = (*out.stride()[:3], *q.stride(), *k.stride(), *v.stride())
    rows = max(16, min(64, triton.next_power_of_2(group * queries)))
    grid = (triton.cdiv(group * queries, rows), batch * kv_heads)
    block = max(16, triton.next_power_of_2(head))
    _attention[grid](*(out, q, k, v, lengths, step, *sizes, *strides), CAUSAL=causal, ROWS=rows, KEYS=64, HEAD=block)
