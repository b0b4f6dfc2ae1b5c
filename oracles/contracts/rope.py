"""Rotary position embedding, with given tables or computed angles.

    y0 = a * cos - b * sin,  y1 = a * sin + b * cos

(a, b) are the elements (2i, 2i+1) of a head in the style `interleaved`, (i, i + half) in the style `neox`, of the first
1/part of the head; the rest of it is copied. Without tables the angle of pair i at token t is (t + offset) *
theta**(-i/half). Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, eq. 34;
partial heads as in GPT-NeoX and GPT-J. Budget: two products and a sum round three times, so E = 2u(|a c| + |b s|) +
2 tiny (numerics.md 2.2); a computed angle is off by its own size times the error of the power and of the product with
the position, and sine and cosine by 2 ulp. A float64 kernel's reference is rounded as the kernel's result is, which
doubles the first term. A product beyond the range of the arithmetic may legally give Inf or NaN; Inf times a sine or a
cosine whose sign is in doubt may be of either sign.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array, compute_format
from kernel_assay.oracles.numerics.bounds import LIMIT, classes_of, quotient_error, sine_error
from kernel_assay.oracles.spec.axes import Attrs
from kernel_assay.oracles.spec.balls import Ball, ball
from kernel_assay.oracles.spec.contract import (
    INTERVAL,
    NAN,
    NINF,
    PINF,
    Budget,
    Contract,
    Dim,
    Groups,
    Input,
    Invariant,
    Output,
    Question,
    Reals,
)
from kernel_assay.oracles.spec.law_library import alone, only_if, scaled


def reference(
    x: Reals,
    cos: Reals | None = None,
    sin: Reals | None = None,
    *,
    style: str,
    theta: float = 10000.0,
    offset: int = 0,
    part: int = 1,
) -> dict[str, Reals]:
    """The rotation."""
    if cos is None or sin is None:
        angle = angles(x, theta, offset, part)
        cos, sin = np.cos(angle), np.sin(angle)
    out = x.copy()
    (a, b), (y0, y1) = _halves(x, style, part), _halves(out, style, part)
    c, s = cos[:, None, :], sin[:, None, :]
    np.subtract(a * c, b * s, out=y0)
    np.add(a * s, b * c, out=y1)
    return {"out": out}


def angles(x: Reals, theta: float, offset: int, part: int) -> Reals:
    """(tokens, half) in the type of x."""
    half = x.shape[-1] // (2 * part)
    position = np.arange(offset, offset + x.shape[0]).astype(x.dtype)
    pair = np.arange(half).astype(x.dtype) / max(1, half)
    return np.asarray(position[:, None] * x.dtype.type(theta) ** -pair)


def _halves(x: Array, style: str, part: int) -> tuple[Array, Array]:
    """Views of the first and of the second element of every pair."""
    width = x.shape[-1] // part
    if style == "interleaved":
        return x[..., 0:width:2], x[..., 1:width:2]
    return x[..., : width // 2], x[..., width // 2 : width]


def budget(q: Question) -> dict[str, Budget]:
    """Three roundings of at most |a c| + |b s| each, and what the angle is off; what is copied has no error."""
    style, part = str(q.attrs["style"]), int(q.attrs.get("part", 1))
    cos, sin, off = _tables(q, part)
    size, total, error = np.abs(q.real("x")), np.zeros(q.inputs["x"].shape), np.zeros(q.inputs["x"].shape)
    (a, b), (t0, t1), (e0, e1) = (_halves(some, style, part) for some in (size, total, error))
    c, s = cos[:, None, :], sin[:, None, :]
    np.add(a * c, b * s, out=t0)
    np.add(a * s, b * c, out=t1)
    double = q.case.dtype == "float64"
    products = q.rounding("products")
    for e, t in ((e0, t0), (e1, t1)):
        e[...] = np.minimum(t, LIMIT) * ((4.0 if double else 2.0) * q.u) + 2.0 * q.least + (a * off + b * off)
        if products:
            np.add(e, products.of(np.minimum(t, LIMIT)) + products.half, out=e)
    turned = _turned(q, style, part, (c < off) | (s < off))
    return {"out": Budget(error, _accept(q, total, turned, max(cos.max(initial=0.0), sin.max(initial=0.0))))}


def _tables(q: Question, part: int) -> tuple[Reals, Reals, Reals]:
    """Magnitudes of cosine and sine, and by how much both may be off where they were computed.

    A power: its exponent and logarithm round three times, which counts as often as the logarithm is large; its own 2
    ulp, a reciprocal and the product with the position are 6u. Or one power from pair to pair: 5u each, product too.
    The first pair turns by the position itself, which is exact. Sine and cosine are off by 2 ulp, except of 0. Those of
    fast math are off by sine_error, and its powers are those of a logarithm that is off by 2 ulp more.
    """
    if "cos" in q.inputs:
        cos, sin = np.abs(q.real("cos")), np.abs(q.real("sin"))
        return cos, sin, np.zeros((1, 1, 1))
    theta, offset = float(q.attrs.get("theta", 10000.0)), int(q.attrs.get("offset", 0))
    angle = angles(q.real("x"), theta, offset, part)
    pair = np.arange(angle.shape[1])
    logarithm = (6.0 if q.numerics.fast_math else 3.0) * pair / max(1, len(pair)) * np.log(theta)
    steps = np.where(pair > 0, 6.0 * q.u + quotient_error(q) + (logarithm + 5.0 * pair) * q.u, 0.0)
    steps = steps + 3.0 * q.every.unit  # the position, the power and their product
    off = np.where(angle == 0.0, 0.0, np.minimum(angle * steps + sine_error(q, angle), 2.0))
    cos, sin, rounding = np.abs(np.cos(angle)), np.abs(np.sin(angle)), q.rounding("tables")
    off = off + np.where(angle == 0.0, 0.0, rounding.unit + rounding.half)
    return cos, sin, off[:, None, :]


def _turned(q: Question, style: str, part: int, unsure: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Pairs with an Inf whose sine or cosine may have either sign: Inf, -Inf or, of a difference of both, NaN."""
    x = q.real("x")
    turned = np.zeros(x.shape, np.bool_)
    if unsure.any() and np.isinf(x).any():
        a, b = _halves(x, style, part)
        for half in _halves(turned, style, part):
            half[...] = unsure & (np.isinf(a) | np.isinf(b)) & ~np.isnan(a) & ~np.isnan(b)
    return turned


def _accept(q: Question, total: Reals, turned: NDArray[np.bool_], top: float) -> NDArray[np.uint8] | None:
    """Free choice where a product may overflow; only tables that were scaled beyond 1 can do that."""
    limit = min(compute_format(q.case.dtype).max, q.rounding("products").top) * 0.999
    tame = top <= 1.0 or not total.size or total.max() <= limit
    if tame and not turned.any():
        return None
    out = q.want["out"]
    mask = classes_of(out)
    mask[turned] |= PINF | NINF | NAN
    if not tame:
        over = ~np.isnan(out) & (total > limit)
        mask[over & np.isfinite(total)] = INTERVAL | PINF | NINF | NAN
        mask[over & ~np.isfinite(total)] |= NAN
    return mask


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The formula, with one angle; the rest of a head is copied."""
    token, head, column = index
    x, width = inputs["x"], inputs["x"].shape[2] // int(attrs.get("part", 1))
    if column >= width:
        return ball(x[index])
    pair, second = divmod(column, 2) if attrs["style"] == "interleaved" else divmod(column, width // 2)[::-1]
    places = (2 * pair, 2 * pair + 1) if attrs["style"] == "interleaved" else (pair, pair + width // 2)
    a, b = (ball(x[token, head, place]) for place in places)
    if "cos" in inputs:
        c, s = ball(inputs["cos"][token, pair]), ball(inputs["sin"][token, pair])
    else:
        angle = (token + int(attrs.get("offset", 0))) * ball(attrs.get("theta", 10000.0)) ** (Ball(-2 * pair) / width)
        c, s = angle.cos(), angle.sin()
    return a * s + b * c if second else a * c - b * s


def rotated_pairs(q: Question) -> Groups | None:
    """The pairs, whose lengths a rotation keeps; given tables need not be one."""
    if "cos" in q.inputs:
        return None
    x, style, part = q.real("x"), str(q.attrs["style"]), int(q.attrs.get("part", 1))
    a, b = _halves(x, style, part)
    first, _ = _halves(np.arange(x.size, dtype=np.float64).reshape(x.shape), style, part)
    step = 1 if style == "interleaved" else x.shape[2] // (2 * part)
    return Groups(starts=first.astype(np.int64), step=step, count=2, wanted=np.hypot(a, b))


_TABLE = ("uniform", "zeros", "ones", "unit_steps")

CONTRACT = Contract(
    name="rope",
    summary="pairs of elements rotated by tabled or computed angles",
    dims={"tokens": Dim(0, 512), "heads": Dim(0, 64), "half": Dim(0, 128)},
    inputs={
        "x": Input(("tokens", "heads", "half*2*{part}")),
        "cos": Input(("tokens", "half"), distributions=_TABLE, specials=False),
        "sin": Input(("tokens", "half"), distributions=_TABLE, specials=False),
    },
    outputs={"out": Output(("tokens", "heads", "half*2*{part}"), like="x")},
    variants=tuple({"x": t, "cos": t, "sin": t} for t in ("float32", "float16", "bfloat16", "float64")),
    attrs={
        "style": ("interleaved", "neox"),
        "theta": (10000.0, 500000.0),
        "offset": (0, 1, 1000, 131071),
        "part": (1, 2, 4),
    },
    intermediates={
        "products": "the two products, before their sum",
        "tables": "sines and cosines that are computed",
    },
    optional=("cos", "sin", "theta", "offset", "part"),
    together=(("cos", "sin"),),
    separable=("tokens", "heads"),
    placed={"tokens": lambda attrs, before, _: {**attrs, "offset": int(attrs.get("offset", 0)) + before}},
    on_device="rows.ROPE",
    reference=reference,
    element=element,
    budget=budget,
    laws=(
        scaled("scaling", {"x": 2.0}, factor=2.0),
        scaled("negation", {"x": -1.0}, factor=-1.0),
        Invariant(name="norm", of="length", each="pair", groups=rotated_pairs),
        only_if(lambda case: "cos" in case.tensors, alone("token_alone", {"x": 0, "cos": 0, "sin": 0})),
        alone("head_alone", {"x": 1}, out=1),
    ),
)
