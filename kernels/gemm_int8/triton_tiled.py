"""Tiles of 64 x 64 in Triton, 64 columns of a at a time, on an integer tensor core; any strides."""

import triton
import triton.language as tl

BACKEND = "triton"
DTYPES = ("int8",)


@triton.jit
def _gemm(
    out_ptr,
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    alpha,
    beta,
    out_row,
    a_row,
    a_col,
    b_row,
    b_col,
    c_row,
    c_col,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    i = (tl.program_id(0) * M + tl.arange(0, M)).to(tl.int64)[:, None]
    j = (tl.program_id(1) * N + tl.arange(0, N)).to(tl.int64)[None, :]
    acc = tl.zeros((M, N), tl.int32)
    for begin in range(0, k, K):
        la = (begin + tl.arange(0, K))[None, :]
        lb = (begin + tl.arange(0, K))[:, None]
        a = tl.load(a_ptr + i * a_row + la * a_col, mask=(i < m) & (la < k), other=0)
        b = tl.load(b_ptr + lb * b_row + j * b_col, mask=(lb < k) & (j < n), other=0)
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
    inside = (i < m) & (j < n)
    c = tl.load(c_ptr + i * c_row + j * c_col, mask=inside, other=0)
    tl.store(out_ptr + i * out_row + j, alpha * acc + beta * c, mask=inside)


def run(out, a, b, c, *, alpha, beta):
    (m, k), n = a.shape, b.shape[1]
    if not out.numel():
        return
    strides = (out.stride(0), *a.stride(), *b.stride(), *c.stride())
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
    _gemm[grid](out, a, b, c, m, n, k, alpha, beta, *strides, M=64, N=64, K=64)
