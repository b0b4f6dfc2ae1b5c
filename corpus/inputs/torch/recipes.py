"""Turn a recipe into a tensor on any device, by torch: the same bytes as corpus/inputs/materialize.py.

A large input is made where it is used, for moving it there takes longer. The table of samplers has the names of the
table of distributions; the field, the rounding and the packed blocks have modules of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from kernel_assay.corpus.formats import bits_of, format_of
from kernel_assay.corpus.inputs.materialize import (
    exceptions,
    flip_of,
    integer_limits,
    is_settled,
    is_tame,
    unrepeated,
    window_of,
)
from kernel_assay.corpus.inputs.slices import pieces, seen
from kernel_assay.corpus.inputs.structures import structure_of
from kernel_assay.corpus.inputs.torch.distributions import sampler_of
from kernel_assay.corpus.inputs.torch.field import CARRIERS, DeviceWindow, dtype_of, real, signed
from kernel_assay.corpus.inputs.torch.rounding import converted
from kernel_assay.corpus.model.case import Fill, TensorRecipe

ROOM = 1 << 30
"""Bytes that making a tensor may take beside the tensor, about."""
CPU_ROOM = 1 << 24
"""The same on the CPU: what its caches hold, and what the allocator keeps instead of asking the system for it anew."""
PER_ELEMENT = 80
"""Bytes of intermediate results for an element, at most; a test counts them for every distribution and dtype."""
SPARING = {"every_bits": 2}
"""Distributions of billions of elements that have next to none: they are made in large pieces."""


def materialize(recipe: TensorRecipe, device: str | torch.device) -> Tensor:
    """The tensor's values on a device, contiguous (except for `broadcast`: a view with stride 0).

    Raises UsageError where corpus.inputs.materialize.materialize does, and InternalError for a distribution without a
    sampler.
    """
    made = unrepeated(recipe)
    values = _dense(made, torch.device(device))
    return values if made is recipe else values.expand(recipe.shape)


def _dense(recipe: TensorRecipe, device: torch.device) -> Tensor:
    window = window_of(recipe)
    carrier, cuts = CARRIERS[window.format.bits], [*pieces(recipe.shape, _most(device, recipe.fill))]
    if len(cuts) == 1:
        bits = _filled(DeviceWindow(window, device), recipe.fill).view(carrier).contiguous()
    else:
        bits = torch.empty(recipe.shape, dtype=carrier, device=device)
        for piece in cuts:
            bits[piece] = _filled(DeviceWindow(seen(window, piece), device), recipe.fill).view(carrier)
    flat = bits.view(-1)
    for where, pattern in exceptions(recipe):
        flat[where] = signed(pattern, window.format.bits)
    axis = flip_of(recipe)
    if axis is not None:
        _reverse(bits, axis)
    if structure := structure_of(recipe.fill.params, recipe.shape):
        _STRUCTURED[structure](bits)
    return bits.view(dtype_of(window.format))


def _most(device: torch.device, fill: Fill | None = None) -> int:
    """The number of elements that are made at once."""
    each = SPARING.get(fill.distribution, PER_ELEMENT) if fill else PER_ELEMENT
    return max(1, (CPU_ROOM if device.type == "cpu" else ROOM) // each)


def _filled(window: DeviceWindow, fill: Fill) -> Tensor:
    fmt = window.format
    values = sampler_of(fill.distribution)(window)
    if values.dtype == dtype_of(fmt) and is_settled(fill, fmt):
        return values
    values = _scaled(values, fill)
    if not fmt.is_float:
        low, high = integer_limits(fmt)
        values = values.nan_to_num(nan=0.0).clamp_(low, high)
    return converted(values, fmt)


def _scaled(values: Tensor, fill: Fill) -> Tensor:
    """Values with the fill's shift and scale; integers stay integers if the shift is one and there is no scale."""
    shift, scale = fill.params.get("shift", 0), fill.scale
    if shift:
        whole = isinstance(shift, int) and values.dtype == torch.int64
        values = values + shift if whole else real(values) + float(shift)
    if scale != 1.0:
        values = real(values) * float(scale)
    if is_tame(fill) or not values.is_floating_point():
        return values
    return torch.where(values.isnan(), _NAN, values.view(torch.int64)).view(torch.float64)


_NAN = bits_of(math.nan, format_of("float64").dtype)


def _mirror(bits: Tensor) -> None:
    upper = torch.ones(bits.shape[-2:], dtype=torch.bool, device=bits.device).triu_(1)
    bits.copy_(torch.where(upper, bits.mT, bits))


_STRUCTURED: dict[str, Callable[[Tensor], object]] = {
    "diagonal": lambda bits: bits.tril_().triu_(),
    "lower": Tensor.tril_,
    "upper": Tensor.triu_,
    "symmetric": _mirror,
}
"""Those of corpus/inputs/structures.py, in place."""


def _reverse(bits: Tensor, axis: int) -> None:
    """Reverse a tensor along an axis, in place: a second one of its size may find no room."""
    extent = bits.shape[axis]
    for piece in pieces((*bits.shape[:axis], extent // 2, *bits.shape[axis + 1 :]), _most(bits.device)):
        opposite = slice(extent - piece[axis].stop, extent - piece[axis].start)
        one, other = bits[piece], bits[(*piece[:axis], opposite, *piece[axis + 1 :])]
        kept = one.flip(axis)
        one.copy_(other.flip(axis))
        other.copy_(kept)
