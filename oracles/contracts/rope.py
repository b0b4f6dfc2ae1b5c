"""Rotary position embedding with given tables.

    y0 = a * cos - b * sin,  y1 = a * sin + b * cos

(a, b) are the elements (2i, 2i+1) of a head in the style `interleaved`, (i, i + half) in the style `neox`.
Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, eq. 34. Budget: two products
and a sum round three times, so E = 2u(|a c| + |b s|) + 2 tiny (numerics.md 2.2); a float64 kernel's reference is as
wrong as the kernel, which doubles it. A product beyond the range of the arithmetic may legally give Inf or NaN.
"""

import numpy as np
from numpy.typing import NDArray

from corpus.formats import format_of
from oracles.bounds import classes_of
from oracles.contract import INTERVAL, NAN, NINF, PINF, Budget, Contract, Dim, Input, Output, Question, Reals
from oracles.relations import scaled


def reference(x: Reals, cos: Reals, sin: Reals, *, style: str) -> dict[str, Reals]:
    """The rotation."""
    out = np.empty(x.shape, x.dtype)
    (a, b), (y0, y1) = _halves(x, style), _halves(out, style)
    c, s = cos[:, None, :], sin[:, None, :]
    np.subtract(a * c, b * s, out=y0)
    np.add(a * s, b * c, out=y1)
    return {"out": out}


def _halves(x: Reals, style: str) -> tuple[Reals, Reals]:
    """Views of the first and of the second element of every pair."""
    if style == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def budget(q: Question) -> dict[str, Budget]:
    """Three roundings of at most |a c| + |b s| each."""
    size, cos, sin = np.abs(q.real("x")), np.abs(q.real("cos")), np.abs(q.real("sin"))
    total = np.empty(size.shape)
    (a, b), (t0, t1) = _halves(size, str(q.attrs["style"])), _halves(total, str(q.attrs["style"]))
    c, s = cos[:, None, :], sin[:, None, :]
    np.add(a * c, b * s, out=t0)
    np.add(a * s, b * c, out=t1)
    double = q.case.dtype == "float64"
    smallest = q.tiny or format_of("float64" if double else "float32").eta
    error = total * ((4.0 if double else 2.0) * q.u) + 2.0 * smallest
    return {"out": Budget(error, _accept(q, total, size, max(cos.max(initial=0.0), sin.max(initial=0.0))))}


def _accept(q: Question, total: Reals, size: Reals, top: float) -> NDArray[np.uint8] | None:
    """Free choice where a product may overflow; only tables that were scaled beyond 1 can do that."""
    limit = format_of("float64" if q.case.dtype == "float64" else "float32").max * 0.999
    if top <= 1.0 or not size.size or total.max() <= limit:
        return None
    out = q.want["out"]
    mask = classes_of(out)
    over = ~np.isnan(out) & (total > limit)
    mask[over & np.isfinite(total)] = INTERVAL | PINF | NINF | NAN
    mask[over & ~np.isfinite(total)] |= NAN
    return mask


_TABLE = ("uniform", "zeros", "ones", "unit_steps")

CONTRACT = Contract(
    name="rope",
    summary="pairs of elements rotated by tabled angles",
    dims={"tokens": Dim(0, 512), "heads": Dim(0, 64), "half": Dim(0, 128)},
    inputs={
        "x": Input(("tokens", "heads", "half*2")),
        "cos": Input(("tokens", "half"), distributions=_TABLE, specials=False),
        "sin": Input(("tokens", "half"), distributions=_TABLE, specials=False),
    },
    outputs={"out": Output(("tokens", "heads", "half*2"), like="x")},
    variants=tuple({"x": t, "cos": t, "sin": t} for t in ("float32", "float16", "bfloat16", "float64")),
    attrs={"style": ("interleaved", "neox")},
    reference=reference,
    budget=budget,
    laws=(scaled("scaling", {"x": 2.0}, factor=2.0), scaled("negation", {"x": -1.0}, factor=-1.0)),
)
