"""Products and mixtures, by torch in float64: each formula is the reference of its contract, but in pieces.

The last bits depend on the order of sums. See oracles/contracts/<op>.py and oracles/numerics/block_products.py.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor

from kernel_assay.corpus.blocks import block_format
from kernel_assay.oracles.device.slabs import Formula, Inputs, by_rows, stretches, tiles, wide
from kernel_assay.oracles.device.unpacking import flat, unpack, values
from kernel_assay.oracles.spec.axes import Attrs, Dims


def _gemm(inputs: Inputs, attrs: Attrs, out: Tensor) -> None:
    (m, k), n, c = inputs["a"].shape, out.shape[1], inputs.get("c")
    for rows in tiles(m, k):
        a = wide(inputs["a"][rows])
        for columns in tiles(n, k):
            found = a @ wide(inputs["b"][:, columns])
            added = None if c is None else c[rows, columns]
            out[rows, columns] = _summed(found, float(attrs["alpha"]), float(attrs["beta"]), added)


def _gemv(a: Tensor, x: Tensor, y: Tensor | None = None, *, alpha: float, beta: float) -> Tensor:
    return _summed(a @ x, alpha, beta, y)


def _summed(found: Tensor, alpha: float, beta: float, c: Tensor | None) -> Tensor:
    """Alpha * product + beta * c; what is multiplied with 0 is not read."""
    scaled = found if alpha == 1.0 else alpha * found if alpha else torch.zeros_like(found)
    return scaled if c is None or beta == 0.0 else scaled + beta * wide(c)


def _gemm_int8(inputs: Inputs, attrs: Attrs, out: Tensor) -> None:
    """Float64 holds every sum of products of 8 bits, and int64 what is made of it before it is wrapped."""
    (m, k), n, c = inputs["a"].shape, out.shape[1], inputs["c"]
    for rows in tiles(m, k):
        a = inputs["a"][rows].double()
        for columns in tiles(n, k):
            found = (a @ inputs["b"][:, columns].double()).long() * int(attrs["alpha"])
            found += c[rows, columns].long() * int(attrs["beta"])
            out[rows, columns] = found.int().double()


def _qgemm(inputs: Inputs, attrs: Attrs, out: Tensor) -> None:
    names = str(attrs["format"]), str(attrs["activations"])
    width = inputs["w"].shape[1] // block_format(names[0]).size * 33
    for rows in tiles(out.shape[1], width):
        w = _weights(inputs["w"][rows], *names)
        for some in tiles(out.shape[0], width):
            out[some, rows] = _activations(inputs["a"][some], names[1]) @ w.T


def _qgemv(inputs: Inputs, attrs: Attrs, out: Tensor) -> None:
    _qgemm({**inputs, "a": inputs["a"][None]}, attrs, out[None])


def _weights(raw: Tensor, name: str, activations: str) -> Tensor:
    """Factors of activations: elements; beside stored sums without their offset, which those make up."""
    content, fmt = unpack(raw, name), block_format(name)
    if activations != "q8_1":
        return flat(values(content, fmt))
    return torch.cat([flat(content.quants * content.d[..., None]), content.m - fmt.offset * content.d], dim=-1)


def _activations(raw: Tensor, name: str) -> Tensor:
    """Elements, and behind them the stored sums where there are any."""
    content = unpack(raw, name)
    elements = flat(content.quants * content.d[..., None])
    return torch.cat([elements, content.m], dim=-1) if name == "q8_1" else elements


def _attention(inputs: Inputs, attrs: Attrs, out: Tensor) -> None:
    q, k, v = (inputs[name] for name in "qkv")
    (batch, kv_heads, keys, head), queries = k.shape, q.shape[2]
    group = q.shape[1] // max(1, kv_heads)
    scale = float(attrs["scale"]) or 1.0 / math.sqrt(max(1, head))
    if not keys:
        out.zero_()
        return
    lengths = inputs["lengths"].tolist() if "lengths" in inputs else [keys] * batch
    for b, h in product(range(batch), range(kv_heads)):
        key, value, mine = wide(k[b, h]), wide(v[b, h]), slice(h * group, (h + 1) * group)
        for some in stretches(queries, group * max(keys, head)):
            seen = _seen(some, keys, _last(lengths[b], queries, attrs), q.device)
            out[b, mine, some] = _mixture(scale * (wide(q[b, mine, some]) @ key.T), value, seen)


def _last(length: int, queries: int, attrs: Attrs) -> tuple[int, int]:
    """The last key that the first query sees, and how many more each query after it."""
    return (length - queries - int(attrs.get("behind", 0)), 1) if attrs["causal"] else (length - 1, 0)


def _seen(some: slice, keys: int, last: tuple[int, int], device: torch.device) -> Tensor:
    """Mark the keys of a sequence that some queries see: (queries, keys)."""
    first, step = last
    ends = torch.arange(some.start, some.stop, device=device) * step + first
    return torch.arange(keys, device=device) <= ends[:, None]


def _mixture(scores: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """Values weighted by the softmax of scores; of rows that see nothing 0.

    scores: (group, rows, keys), written to; v: (keys, head); seen: (rows, keys).
    """
    s = scores.masked_fill_(~seen, -math.inf)
    top = s.amax(dim=-1, keepdim=True)
    z = s - torch.where(top == -math.inf, 0.0, top)
    if bool((top == math.inf).any()):
        z = torch.where(top == math.inf, torch.where(s == math.inf, 0.0, -math.inf), z)
    e, known = z.exp(), v.isfinite()
    sums = e.sum(dim=-1, keepdim=True)
    mixed = e @ torch.where(known, v, 0.0) / torch.where(sums == 0.0, 1.0, sums)
    return mixed if bool(known.all()) else _with_infinities(mixed, (z > -math.inf).double(), v)


def _with_infinities(mixed: Tensor, weighed: Tensor, v: Tensor) -> Tensor:
    """The result where values that have a weight are not finite."""
    up, down, lost = (weighed @ some.double() > 0.0 for some in (v == math.inf, v == -math.inf, v.isnan()))
    signed = torch.where(up, math.inf, torch.where(down, -math.inf, mixed))
    return torch.where(lost | (up & down) | mixed.isnan(), math.nan, signed)


def _least_mixture(d: Dims) -> int:
    """One query of every head of a group, or the keys of a sequence."""
    return max(d["group"] * max(d["keys"], d["head"]), d["keys"] * d["head"])


GEMM = Formula(_gemm, lambda d: d["k"])
GEMM_INT8 = Formula(_gemm_int8, lambda d: d["k"])
GEMV = Formula(by_rows(_gemv, "a", "y"), lambda d: d["k"])
QGEMM = Formula(_qgemm, lambda d: 33 * d["blocks"])
QGEMV = Formula(_qgemv, lambda d: 33 * d["blocks"])
ATTENTION = Formula(_attention, _least_mixture)
