"""Honest kernels of each op in an arithmetic of chance: formulas as kernels have them, in several ways, all right.

A kernel takes a machine, the inputs and attributes of a case, and gives what it computes before it is rounded to the
output's type: numbers of float32 or float64, or what is stored itself where the op says what that is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from _arithmetic import Machine, Value
from numpy.typing import NDArray
from scipy import special

from kernel_assay.corpus.blocks import BLOCKS
from kernel_assay.corpus.formats import format_of
from kernel_assay.oracles.numerics.blocks import unpack

Array = NDArray[Any]
Kernel = Callable[..., Any]

KERNELS: dict[str, Kernel] = {}
"""By op."""


def kernel(run: Kernel) -> Kernel:
    KERNELS[run.__name__] = run
    return run


# ---- rows ------------------------------------------------------------------------------------------------------------


@kernel
def row_sum(m: Machine, x: Array) -> Value:
    return m.sum(m.value(x))[..., 0]


@kernel
def row_max(m: Machine, x: Array) -> Array:
    del m
    largest: Array = np.fmax.reduce(x.astype(np.float64), axis=-1, initial=-np.inf)
    return largest


@kernel
def row_argmax(m: Machine, x: Array) -> Array:
    wide = np.where(np.isnan(x), -np.inf, x.astype(np.float64))
    place: Array = wide.shape[1] - 1 - wide[:, ::-1].argmax(axis=1) if m.either() else wide.argmax(axis=1)
    return place


def mean(m: Machine, x: Value) -> Value:
    """Of rows: each summand divided, or the sum."""
    n = float(max(1, x.data.shape[-1]))
    part = m.quotient(m.value(1.0), m.value(n), faithful=True)
    style = m.pick("quotient", "product", "early")
    if style == "early":
        return m.sum((x.rounded * part).rounded)
    return m.quotient(m.sum(x), m.value(n), faithful=True) if style == "quotient" else m.sum(x) * part


def normalized(m: Machine, x: Value, v: Value, weight: Value) -> Value:
    """The product x / sqrt(v) * weight."""
    return (x / m.root(v) if m.either() else x * m.reciprocal_root(v)) * weight


@kernel
def rmsnorm(m: Machine, x: Array, weight: Array, *, eps: float) -> Value:
    a = m.value(x)
    return normalized(m, a, mean(m, a * a) + eps, m.value(weight))


@kernel
def gemma_rmsnorm(m: Machine, x: Array, weight: Array, *, eps: float) -> Value:
    a = m.value(x)
    return normalized(m, a, mean(m, a * a) + eps, m.value(weight) + 1.0)


@kernel
def layernorm(m: Machine, x: Array, weight: Array, bias: Array, *, eps: float) -> Value:
    a = m.value(x)
    mu = mean(m, a)
    centred = (a - mu).rounded
    v = welford(m, a) if m.either() else mean(m, centred * centred)
    return normalized(m, centred, v + eps, m.value(weight)) + m.value(bias)


def welford(m: Machine, x: Value) -> Value:
    """The variance of rows, column after column."""
    n = x.data.shape[-1]
    mu, square = m.value(np.zeros((*x.data.shape[:-1], 1))), m.value(0.0)
    for j in range(n):
        delta = (x[..., j : j + 1] - mu).rounded
        mu = (mu + m.quotient(delta, m.value(float(j + 1)), faithful=True)).rounded
        square = (square + delta * (x[..., j : j + 1] - mu).rounded).rounded
    return m.quotient(square, m.value(float(max(1, n))), faithful=True)


# ---- exponentials ----------------------------------------------------------------------------------------------------

LOG2E = 1.4426950408889634


def logits(m: Machine, x: Array, mask: Array | None, scale: float) -> Value:
    s = m.value(x) if scale == 1.0 else m.value(x) * scale
    return s if mask is None else s + m.value(mask)


def powers(m: Machine, s: Value, top: Value) -> Value:
    """The numbers exp(s - top), where a product s may be fused with the difference; 0 beside a top of -Inf."""
    nothing = top.data == -np.inf
    e = m.function(np.exp, s - top)
    return Value(m, np.where(nothing, m.kind(0), e.data))


@kernel
def softmax(m: Machine, x: Array, mask: Array | None = None, *, scale: float = 1.0) -> Value:
    if x.shape[1] == 0:
        return m.value(x)
    s = logits(m, x, mask, scale)
    top = s.top()
    total = online_sum(m, s) if m.either() else m.sum(powers(m, s, top))
    e = powers(m, logits(m, x, mask, scale), top)
    return e / total if m.either() else e * (1.0 / total)


def online_sum(m: Machine, s: Value) -> Value:
    """The sum of exponentials by tiles of columns, scaled anew when the maximum changes."""
    n = s.data.shape[-1]
    tile = int(2 ** m.random.integers(7))
    top, total = m.value(np.full((s.data.shape[0], 1), -np.inf)), m.value(np.zeros((s.data.shape[0], 1)))
    for begin in range(0, n, tile):
        part = s[:, begin : begin + tile]
        new = Value(m, np.maximum(top.data, part.top().data))
        total = (total * powers(m, top, new) + m.sum(powers(m, part, new))).rounded
        top = new
    return total


@kernel
def silu(m: Machine, x: Array) -> Value:
    return _silu(m, m.value(x))


def _silu(m: Machine, x: Value) -> Value:
    below = m.function(np.exp, -x) + 1.0
    return x / below if m.either() else x * (1.0 / below)


@kernel
def silu_gate(m: Machine, gate: Array, up: Array) -> Value:
    return _silu(m, m.value(gate)) * m.value(up)


@kernel
def gelu(m: Machine, x: Array, *, approximate: str) -> Value:
    return _gelu(m, m.value(x), approximate)


def _gelu(m: Machine, x: Value, approximate: str) -> Value:
    if approximate == "tanh":
        cubic = m.pick("cube", "square")
        inner = x + x * x * x * 0.044715 if cubic == "cube" else x * (x * x * 0.044715 + 1.0)
        f = m.function(np.tanh, inner * 0.7978845608028654)
    else:
        f = m.function(lambda z: special.erf(np.asarray(z, np.float64)), x * 0.7071067811865476)
    return x * 0.5 * (f + 1.0)


@kernel
def gelu_gate(m: Machine, gate: Array, up: Array, *, approximate: str) -> Value:
    return _gelu(m, m.value(gate), approximate) * m.value(up)


# ---- products --------------------------------------------------------------------------------------------------------


def scaled_product(m: Machine, a: Value, b: Value, c: Array | None, alpha: float, beta: float) -> Value:
    """The sum alpha a b + beta c; what is multiplied with 0 is not read."""
    if m.either():
        a, alpha = (a * alpha).rounded, 1.0
    found = m.product(a, b)
    scaled = found if alpha == 1.0 else found * alpha
    return scaled if c is None or beta == 0.0 else scaled + m.value(c) * beta


@kernel
def gemm(m: Machine, a: Array, b: Array, c: Array | None = None, *, alpha: float = 1.0, beta: float = 1.0) -> Value:
    if alpha == 0.0:
        zeros = m.value(np.zeros((a.shape[0], b.shape[1])))
        return zeros if c is None or beta == 0.0 else m.value(c) * beta
    return scaled_product(m, m.value(a), m.value(b), c, alpha, beta)


@kernel
def gemv(m: Machine, a: Array, x: Array, y: Array | None = None, *, alpha: float = 1.0, beta: float = 1.0) -> Value:
    out: Value = gemm(m, a, x[:, None], None if y is None else y[:, None], alpha=alpha, beta=beta)[..., 0]
    return out


@kernel
def gemm_int8(m: Machine, a: Array, b: Array, c: Array | None = None, *, alpha: int = 1, beta: int = 1) -> Array:
    del m
    found = np.int64(alpha) * (a.astype(np.int64) @ b.astype(np.int64))
    return (found if c is None else found + np.int64(beta) * c.astype(np.int64)).astype(np.int32)


# ---- attention -------------------------------------------------------------------------------------------------------


@kernel
def attention(
    m: Machine, q: Array, k: Array, v: Array, lengths: Array | None = None, *, causal: bool, scale: float = 0.0
) -> Array:
    """Head by head, the same choices for each."""
    out = np.zeros(q.shape, m.kind)
    group, seed = q.shape[1] // max(1, k.shape[1]), int(m.random.integers(1 << 30))
    for b, h in np.ndindex(q.shape[:2]):
        length = k.shape[2] if lengths is None else int(lengths[b])
        seen = np.ones((q.shape[2], length), np.bool_)
        if causal:
            seen = np.tri(q.shape[2], length, length - q.shape[2], dtype=np.bool_)
        m.random = np.random.default_rng(seed)
        keys, values = (m.value(x[b, h // group, :length]) for x in (k, v))
        out[b, h] = head(m, m.value(q[b, h]), keys, values, seen, scale or q.shape[3] ** -0.5).data
    return out


def head(m: Machine, q: Value, k: Value, v: Value, seen: NDArray[np.bool_], scale: float) -> Value:
    """All weights at once, or tile by tile; the scale in front of the sum, behind it, or in the exponent of 2."""
    kt, (n, style) = k.along(lambda x: x.swapaxes(-1, -2)), (len(k.data), m.pick("front", "behind", "two"))
    s = m.product((q * scale).rounded, kt) if style == "front" else m.product(q, kt)
    factor = 1.0 if style == "front" else scale * LOG2E if style == "two" else scale
    s = s if style == "front" else s * factor
    s = Value(m, np.where(seen, s.data, m.kind(-np.inf)), s.factors)
    exponential = np.exp2 if style == "two" else np.exp
    tile = n if m.either() else int(2 ** m.random.integers(6))
    top = m.value(np.full((len(q.data), 1), -np.inf))
    total, acc = m.value(np.zeros(top.data.shape)), m.value(np.zeros((len(q.data), v.data.shape[1])))
    for begin in range(0, n, max(1, tile)):
        part = s[:, begin : begin + tile]
        new = Value(m, np.fmax(top.data, part.top().data))
        e, shrink = (weights(m, exponential, some, new) for some in (part, top))
        if tile == n and m.either():  # weights are divided before they are multiplied
            p = m.quotient(e, _nonzero(m, m.sum(e)), faithful=True)
            return m.product(p, v)
        total = (total * shrink + m.sum(e)).rounded
        acc = (acc * shrink + m.product(e, v[begin : begin + tile])).rounded
        top = new
    return acc / _nonzero(m, total)


def weights(m: Machine, exponential: Any, s: Value, top: Value) -> Value:
    """Of keys: 0 for those that are not seen."""
    known = Value(m, np.where(top.data == -np.inf, m.kind(0), top.data))
    e = m.function(exponential, s - known)
    return Value(m, np.where(s.data == -np.inf, m.kind(0), e.data))


def _nonzero(m: Machine, total: Value) -> Value:
    return Value(m, np.where(total.data == 0, m.kind(1), total.data))


# ---- positions -------------------------------------------------------------------------------------------------------


@kernel
def rope(
    m: Machine, x: Array, cos: Array | None = None, sin: Array | None = None, *,
    style: str, theta: float = 10000.0, offset: int = 0, part: int = 1,
) -> Array:  # fmt: skip
    width = x.shape[-1] // part
    c, s = (m.value(cos), m.value(sin)) if cos is not None and sin is not None else turns(m, x, theta, offset, width)
    out = m.value(x).data.copy() if not m.flush else x.astype(m.kind)
    ((x0, x1), (y0, y1)) = (_pairs(y[..., :width], style) for y in (m.value(x).data, out))
    c, s, a, b = c[:, None], s[:, None], Value(m, x0), Value(m, x1)
    y0[...], y1[...] = (a * c - b * s).data, (a * s + b * c).data
    return out


def turns(m: Machine, x: Array, theta: float, offset: int, width: int) -> tuple[Value, Value]:
    """Cosines and sines of angles."""
    pair = m.value(np.arange(width // 2) * 2.0) / float(max(1, width))
    power = m.function(lambda e: np.power(e.dtype.type(theta), -e), pair)
    angle = m.value(np.arange(offset, offset + len(x)))[:, None] * power
    return m.function(np.cos, angle), m.function(np.sin, angle)


def _pairs(x: Array, style: str) -> tuple[Array, Array]:
    half = x.shape[-1] // 2
    return (x[..., 0::2], x[..., 1::2]) if style == "interleaved" else (x[..., :half], x[..., half:])


# ---- bits ------------------------------------------------------------------------------------------------------------


@kernel
def embedding(m: Machine, table: Array, indices: Array) -> Array:
    del m
    return table[indices.astype(np.int64)]


@kernel
def convert(m: Machine, x: Array, *, to: str, saturate: bool = False) -> Array:
    del m
    top = format_of(to).max
    return np.clip(x.astype(np.float64), -top, top) if saturate else x.astype(np.float64)


# ---- packed blocks ---------------------------------------------------------------------------------------------------


@kernel
def dequantize(m: Machine, w: Array, *, format: str, to: str = "float32") -> Array:  # noqa: A002  its name
    del to
    fmt, content = BLOCKS[format], unpack(w, format)
    d, second = (_unflushed(m, x)[..., None] for x in (content.d, content.m))
    quants = _unflushed(m, content.quants)
    if fmt.second == "min":
        found = d * quants + second
    elif fmt.offset and m.either():
        found = d * quants + d * -float(fmt.offset)
    else:
        found = d * (quants - float(fmt.offset))
    return found.data.reshape(*w.shape[:-1], 32 * d.data.shape[-2])


def _unflushed(m: Machine, x: Array) -> Value:
    """Subnormal scales of float16 are normal numbers of float32."""
    return Value(m, np.asarray(x).astype(m.kind))


@kernel
def qgemm(m: Machine, w: Array, a: Array, *, format: str, activations: str) -> Value:  # noqa: A002  its name
    fmt, x, y = BLOCKS[format], unpack(w, format), unpack(a, activations)
    quants, offset = x.quants, float(fmt.offset)
    if activations == "q8_0":
        quants, offset = quants - fmt.offset, 0.0
    parts = int(2 ** m.random.integers(4))  # lanes that share a block
    dots = np.einsum("ibpl,jbpl->jibp", *(_parted(z, parts) for z in (quants, y.quants))).astype(np.float64)
    d, e = m.value(x.d)[None, :, :, None], m.value(y.d)[:, None, :, None]
    stored = activations == "q8_1"
    whole = m.value(y.m) if stored else m.value(y.d) * m.value(y.quants.sum(axis=-1))
    own = (whole * (1.0 / parts)).rounded[:, None, :, None]
    terms = d * (e * m.value(dots) - own * offset) if m.either() else d * e * m.value(dots) - d * offset * own
    if fmt.second == "min":
        terms = terms + m.value(x.m)[None, :, :, None] * own
    return m.sum(terms.rounded.along(lambda z: z.reshape(*z.shape[:2], z.shape[2] * z.shape[3])))[..., 0]


def _parted(quants: Array, parts: int) -> Array:
    return quants.reshape(*quants.shape[:-1], parts, 32 // parts).astype(np.int64)


@kernel
def qgemv(m: Machine, w: Array, a: Array, *, format: str, activations: str) -> Value:  # noqa: A002  its name
    out: Value = qgemm(m, w, a[None], format=format, activations=activations)[0]
    return out


@kernel
def quantize(m: Machine, x: Array, *, format: str) -> Array:  # noqa: A002  its name
    """As GGML's C code has it, halves rounded by adding or to even."""
    fmt = BLOCKS[format]
    blocks = m.value(x.reshape(*x.shape[:-1], x.shape[-1] // 32, 32))
    size, second = np.abs(blocks.data).max(axis=-1, keepdims=True, initial=0), np.zeros((), m.kind)
    least = m.value(0.0)
    if fmt.second == "min":
        low, high = blocks.data.min(axis=-1, keepdims=True), blocks.data.max(axis=-1, keepdims=True)
        d, least, second = (m.value(high) - m.value(low)) / float(2**fmt.bits - 1), m.value(low), low
    elif fmt.bits == 8:
        d = m.value(size) / 127.0
    else:
        first = np.take_along_axis(blocks.data, np.abs(blocks.data).argmax(axis=-1)[..., None], axis=-1)
        d = m.value(first) * (-1.0 / fmt.offset)
    inverse = Value(m, np.where(d.data == 0, m.kind(0), (1.0 / d).data))
    scaled = (blocks - least) * inverse
    ends = (-127, 127) if fmt.bits == 8 else (0, 2**fmt.bits - 1)
    nearest = np.rint(scaled.data) + fmt.offset
    if fmt.bits < 8 and m.either():
        nearest = np.floor((scaled + (fmt.offset + 0.5)).data)
    quants = np.clip(np.nan_to_num(nearest), *ends).astype(np.int64)
    if fmt.second == "sum":
        total = m.sum(blocks) if m.either() else m.value(quants.sum(axis=-1, keepdims=True)) * d
        second = total.data
    found = packed(fmt, d.data[..., 0], np.broadcast_to(second, d.data.shape)[..., 0], quants)
    return found.reshape(*x.shape[:-1], x.shape[-1] // 32 * fmt.size)


def packed(fmt: Any, d: Array, second: Array, quants: Array) -> Array:
    """Bytes of blocks."""
    heads = [d, second] if fmt.second else [d]
    scales = np.stack(heads, axis=-1).astype("<f2").view(np.uint8)
    if fmt.bits == 8:
        return np.concatenate([scales, quants.astype(np.int8).view(np.uint8)], axis=-1)
    nibbles = ((quants[..., :16] & 15) | (quants[..., 16:] & 15) << 4).astype(np.uint8)
    fifth = np.packbits((quants >> 4 & 1).astype(np.uint8), axis=-1, bitorder="little")
    return np.concatenate([scales, *([fifth] if fmt.bits == 5 else []), nibbles], axis=-1)


def run(op: str, m: Machine, inputs: Mapping[str, Array], attrs: Mapping[str, Any]) -> Array:
    """What an honest kernel computes for a case."""
    found = KERNELS[op](m, **inputs, **attrs)
    return np.asarray(found.data if isinstance(found, Value) else found)
