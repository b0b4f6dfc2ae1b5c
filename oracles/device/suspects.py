"""Places where two outputs differ most, found where they lie, by torch: the numbers of oracles.large.suspects."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.corpus.inputs.torch.field import CARRIERS
from kernel_assay.oracles.large.suspects import FEW, Suspects

SLAB = 1 << 22
"""Elements whose float64 is in memory at a time: a quarter of a GiB with all that is made of them."""


@dataclass(frozen=True, slots=True)
class DeviceRoom:
    """The room of oracles.large.suspects.Room, with rows (as many as the output has) and columns on the device."""

    level: float
    floor: float
    rows: Tensor
    columns: Tensor
    bitwise: bool = False


def name_of(x: Tensor) -> str:
    """Our name of its dtype."""
    return str(x.dtype).removeprefix("torch.")


def bits_of(x: Tensor) -> Tensor:
    """The same memory as integers."""
    return x.view(CARRIERS[format_of(name_of(x)).bits])


def sizes(y: Tensor) -> tuple[Tensor, Tensor]:
    """Sizes of oracles.large.suspects.sizes, in float64; sums may differ from numpy's in the last digits."""
    matrix = _matrix(y)
    height, width = matrix.shape
    peaks = [_finite(matrix[some]).abs().amax() for some in _slabs(height, width)]
    top = max((float(peak) for peak in peaks), default=0.0) or 1.0
    rows = torch.zeros(height, dtype=torch.float64, device=y.device)
    columns = torch.zeros(width, dtype=torch.float64, device=y.device)
    for some in _slabs(height, width):
        square = (_finite(matrix[some]) / top) ** 2
        rows[some] = square.sum(1)
        columns += square.sum(0)
    mean = float(columns.sum()) / max(1, y.numel())
    row = (rows / (width * (mean or 1.0))).sqrt() if width >= FEW else torch.ones_like(rows)
    column = (columns / height if height >= FEW else torch.full_like(columns, mean)).sqrt() * top
    return row.reshape(y.shape[:-1]), column


def suspects(x: Tensor, y: Tensor, room: DeviceRoom, most: int, slab: int = SLAB) -> Suspects:
    """Suspects of oracles.large.suspects.suspects, of contiguous tensors of one shape.

    y: a peer of x's dtype, or a reference in float64, which is rounded to it; no bits are asked of such a one, but
    every other value is too much where bits would be.
    """
    left, right = _matrix(x), _matrix(y)
    height, width = left.shape
    at, ratios, beyond = np.zeros(0, np.int64), np.zeros(0), 0
    for some in _slabs(height, width, slab):
        ratio = _ratios(left[some], right[some], room, some).reshape(-1)
        beyond += int((ratio > 1.0).sum())
        worst = _largest(ratio, most)
        at = np.concatenate([at, worst.cpu().numpy() + some.start * width])
        ratios = np.concatenate([ratios, ratio[worst].cpu().numpy()])
    order = _largest(torch.from_numpy(ratios), most).numpy()
    return Suspects(at[order], ratios[order], beyond)


def _matrix(x: Tensor) -> Tensor:
    *lead, width = x.shape or (1,)
    return x.reshape(math.prod(lead), width)


def _slabs(height: int, width: int, slab: int = SLAB) -> Iterator[slice]:
    """Stretches of rows, none of which is empty."""
    step = max(1, slab // max(1, width))
    return (slice(start, start + step) for start in range(0, height if width else 0, step))


def _finite(x: Tensor) -> Tensor:
    return torch.nan_to_num(x.to(torch.float64), nan=0.0, posinf=0.0, neginf=0.0)


def _ratios(x: Tensor, y: Tensor, room: DeviceRoom, rows: slice) -> Tensor:
    fmt = FORMATS[name_of(x)]
    peer = y.dtype == x.dtype
    if room.bitwise and peer:
        return torch.where(bits_of(x) == bits_of(y), 0.0, math.inf).to(torch.float64)
    a, b = x.to(torch.float64), (y if peer else y.to(x.dtype)).to(torch.float64)
    alike = (a == b) | (a.isnan() & b.isnan())
    if room.bitwise:
        return torch.where(alike, 0.0, math.inf).to(torch.float64)
    rounded = fmt.unit * (a.abs() + b.abs()) + fmt.eta if fmt.is_float else 0.0
    model = room.rows.reshape(-1, 1)[rows] * room.columns
    size = torch.maximum(torch.where(b.isfinite(), b.abs(), 0.0), model)
    ratio = (a - b).abs() / (room.level * size + room.floor + rounded)
    return torch.where(alike, 0.0, torch.where(ratio.isfinite(), ratio, math.inf))


def _largest(ratio: Tensor, most: int) -> Tensor:
    """The largest, as oracles.large.suspects has it; what is not equal is never listed as a whole."""
    least = torch.topk(ratio, most).values[-1] if len(ratio) > most else ratio.new_zeros(())
    if float(least) > 0.0:
        above, equal = torch.nonzero(ratio > least).reshape(-1), torch.nonzero(ratio == least).reshape(-1)
        spread = np.linspace(0, len(equal) - 1, most - len(above)).astype(np.int64)
        found = torch.cat([above, equal[torch.from_numpy(spread).to(ratio.device)]])
    else:
        found = torch.nonzero(ratio).reshape(-1)
    return found[torch.argsort(-ratio[found], stable=True)]
