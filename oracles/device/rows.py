"""Ops on rows, by torch in float64: each formula is the reference of its contract, which says what it means.

Wherever it matters they round as those do, in the same order; what may differ is the last bits of exp, erfc, cos and
sin, and the order of sums. See oracles/contracts/<op>.py and oracles/numerics/activations.py, norms.py.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.torch.field import CARRIERS
from kernel_assay.oracles.contracts.rope import angles
from kernel_assay.oracles.device.slabs import Formula, Inputs, by_rows, stretches, wide
from kernel_assay.oracles.device.unpacking import dequantized
from kernel_assay.oracles.numerics.activations import CUBIC, ROOT
from kernel_assay.oracles.numerics.bounds import LIMIT
from kernel_assay.oracles.spec.axes import Attrs


def _silu(x: Tensor) -> Tensor:
    return x / (1.0 + torch.exp(-x))


def _gelu(x: Tensor, approximate: str) -> Tensor:
    if approximate == "tanh":
        return x / (1.0 + torch.exp(-2.0 * (ROOT * (x * (1.0 + CUBIC * x * x)))))
    tail: Tensor = torch.special.erfc(-x * math.sqrt(0.5))
    return 0.5 * x * tail


def _silu_gate(gate: Tensor, up: Tensor) -> Tensor:
    return _silu(gate) * up


def _gelu_gate(gate: Tensor, up: Tensor, *, approximate: str) -> Tensor:
    return _gelu(gate, approximate) * up


def _convert(x: Tensor, *, to: str, saturate: bool) -> Tensor:
    fmt = format_of(to)
    return x.clamp(-fmt.max, fmt.max) if saturate or not fmt.has_inf else x


def _dequantize(w: Tensor, *, format: str, to: str) -> Tensor:  # noqa: A002  its name
    del to
    return dequantized(w, format)


def _softmax(x: Tensor, mask: Tensor | None = None, *, scale: float) -> Tensor:
    s = x if scale == 1.0 else x * scale
    s = s if mask is None else s + mask
    top = s.amax(dim=-1, keepdim=True)
    z = s - top
    if bool((top == math.inf).any()):
        z = torch.where(top == math.inf, torch.where(s == math.inf, 0.0, -math.inf), z)
    e = z.exp_()
    return e.div_(e.sum(dim=-1, keepdim=True))


def _rmsnorm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    v = (x * x).sum(dim=-1, keepdim=True) / max(1, x.shape[-1]) + eps
    return _saturated(x / v.sqrt() * weight, x, weight)


def _gemma_rmsnorm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    return _rmsnorm(x, 1.0 + weight, eps=eps)


def _layernorm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    n = max(1, x.shape[-1])
    centred = x - x.sum(dim=-1, keepdim=True) / n
    v = (centred * centred).sum(dim=-1, keepdim=True) / n + eps
    v[v == 0.0] = 1.0
    return _saturated(centred / v.sqrt() * weight + bias, weight, bias)


def _saturated(y: Tensor, *factors: Tensor) -> Tensor:
    """Inf out of finite factors is the largest number, as the contract has it; only float64 has factors so large."""
    over = y.isinf()
    if not bool(over.any()):
        return y
    for factor in factors:
        over &= factor.isfinite()
    return torch.where(over, y.clamp(-LIMIT, LIMIT), y)


def _row_sum(x: Tensor) -> Tensor:
    return x.sum(dim=-1)


def _row_max(x: Tensor) -> Tensor:
    lost = x.isnan()
    return torch.where(lost.all(dim=-1), math.nan, x.masked_fill(lost, -math.inf).amax(dim=-1))


def _row_argmax(x: Tensor) -> Tensor:
    return x.masked_fill(x.isnan(), -math.inf).argmax(dim=-1).double()  # the first of several, as torch promises


def _embedding(inputs: Inputs, attrs: Attrs, out: Tensor) -> None:
    """Bits are moved, not numbers, of which NaN might lose some."""
    del attrs
    carrier = CARRIERS[8 * out.itemsize]
    table, moved = inputs["table"].view(carrier), out.view(carrier)
    for some in stretches(*out.shape):
        moved[some] = table[inputs["indices"][some].long()]


def _rope(inputs: Inputs, attrs: Attrs, out: Tensor) -> None:
    x, width = inputs["x"], out.shape[-1] // int(attrs["part"])
    for some in stretches(out.shape[0], out.shape[1] * out.shape[2]):
        mine, y = wide(x[some]), out[some]
        (a, b), (y0, y1) = (_halves(t, str(attrs["style"]), width) for t in (mine, y))
        c, s = (table[:, None, :] for table in _tables(inputs, attrs, some))
        y[..., width:] = mine[..., width:]
        torch.sub(a * c, b * s, out=y0)
        torch.add(a * s, b * c, out=y1)


def _halves(x: Tensor, style: str, width: int) -> tuple[Tensor, Tensor]:
    """Views of the first and of the second element of every pair; width: of what is rotated."""
    if style == "interleaved":
        return x[..., 0:width:2], x[..., 1:width:2]
    return x[..., : width // 2], x[..., width // 2 : width]


def _tables(inputs: Inputs, attrs: Attrs, some: slice) -> tuple[Tensor, Tensor]:
    """Cosines and sines of some tokens: (tokens, half).

    Angles are the contract's own, for the last bit of a power costs as many bits as the position has. Of float64, whose
    angles are wider than that, so are cosine and sine.
    """
    if "cos" in inputs:
        return wide(inputs["cos"][some]), wide(inputs["sin"][some])
    x, double = inputs["x"], inputs["x"].dtype == torch.float64
    like: Array = np.empty((some.stop - some.start, 0, x.shape[-1]), np.longdouble if double else np.float64)
    angle = angles(like, float(attrs["theta"]), int(attrs["offset"]) + some.start, int(attrs["part"]))
    if not double:
        sent = torch.from_numpy(angle).to(x.device)
        return sent.cos(), sent.sin()
    cos, sin = (torch.from_numpy(np.asarray(f(angle), np.float64)).to(x.device) for f in (np.cos, np.sin))
    return cos, sin


SILU = Formula(by_rows(_silu, "x"), lambda d: d["cols"])
SILU_GATE = Formula(by_rows(_silu_gate, "gate", "up"), lambda d: d["cols"])
GELU = Formula(by_rows(_gelu, "x"), lambda d: d["cols"])
GELU_GATE = Formula(by_rows(_gelu_gate, "gate", "up"), lambda d: d["cols"])
CONVERT = Formula(by_rows(_convert, "x"), lambda d: d["cols"])
DEQUANTIZE = Formula(by_rows(_dequantize, "w"), lambda d: 32 * d["blocks"])
SOFTMAX = Formula(by_rows(_softmax, "x", "mask"), lambda d: d["cols"])
RMSNORM = Formula(by_rows(_rmsnorm, "x"), lambda d: d["cols"])
GEMMA_RMSNORM = Formula(by_rows(_gemma_rmsnorm, "x"), lambda d: d["cols"])
LAYERNORM = Formula(by_rows(_layernorm, "x"), lambda d: d["cols"])
ROW_SUM = Formula(by_rows(_row_sum, "x"), lambda d: d["cols"])
ROW_MAX = Formula(by_rows(_row_max, "x"), lambda d: d["cols"])
ROW_ARGMAX = Formula(by_rows(_row_argmax, "x"), lambda d: d["cols"])
EMBEDDING = Formula(_embedding, lambda d: d["width"])
ROPE = Formula(_rope, lambda d: d["heads"] * d["half"] * 8)
