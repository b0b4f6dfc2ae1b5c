"""The rotation by tables in Triton: a row is a head of a token, as many in a block as fill it; the rest is copied."""

import triton
import triton.language as tl

BACKEND = "triton"
DTYPES = ("float32", "float16", "bfloat16")


@triton.jit
def _rope(
    out_ptr,
    x_ptr,
    cos_ptr,
    sin_ptr,
    rows,
    heads,
    half,
    width,
    pair,
    apart,
    x_token,
    x_head,
    x_element,
    cos_token,
    cos_element,
    sin_token,
    sin_element,
    ROWS: tl.constexpr,
    HALF: tl.constexpr,
):
    # The two numbers of pair p are `p * pair` and `p * pair + apart`.
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    token, head = row // heads, row % heads
    p = tl.arange(0, HALF)[None, :]
    inside = (row < rows) & (p < half)
    cos = tl.load(cos_ptr + token * cos_token + p * cos_element, mask=inside, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + token * sin_token + p * sin_element, mask=inside, other=0.0).to(tl.float32)
    x_ptr += token * x_token + head * x_head
    out_ptr += row * width
    first, second = p * pair, p * pair + apart
    a = tl.load(x_ptr + first * x_element, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + second * x_element, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + first, a * cos - b * sin, mask=inside)
    tl.store(out_ptr + second, a * sin + b * cos, mask=inside)
    for begin in range(2 * half, width, HALF):
        column = begin + p
        rest = (row < rows) & (column < width)
        tl.store(out_ptr + column, tl.load(x_ptr + column * x_element, mask=rest), mask=rest)


def run(out, x, *, cos, sin, style, part):
    if not x.numel():
        return
    tokens, heads, width = x.shape
    half = width // part // 2
    block = triton.next_power_of_2(half)
    many = max(1, min(4096 // block, triton.next_power_of_2(tokens * heads)))
    pair, apart = (2, 1) if style == "interleaved" else (1, half)
    grid = (triton.cdiv(tokens * heads, many),)
    sizes = (tokens * heads, heads, half, width, pair, apart)
    _rope[grid](out, x, cos, sin, *sizes, *x.stride(), *cos.stride(), *sin.stride(), ROWS=many, HALF=block)
