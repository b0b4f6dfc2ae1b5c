"""Numbers on a device converted as numpy and ml_dtypes convert them, bit for bit.

Torch's own conversions differ: from float64 to float16 they round twice, by way of float32; to float8_e4m3fn they
saturate, where ml_dtypes has NaN; and NaN loses its sign, its payload or both. ml_dtypes, on the other hand, does round
twice to the types that it adds, and so must this. Bit patterns are rounded here by integer arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernel_assay.corpus.formats import Format, bits_of, format_of
from kernel_assay.corpus.inputs.torch.field import CARRIERS, dtype_of, patterned, real

_FLOAT32, _FLOAT64 = format_of("float32"), format_of("float64")


def converted(values: Tensor, fmt: Format) -> Tensor:
    """Numbers, float64 or int64, as elements of a format; those that become integers lie within its limits."""
    if fmt.name == "float16":
        return _narrowed(real(values), fmt, _FLOAT64)
    if not fmt.is_float or fmt.name == "float64":
        return values.to(dtype_of(fmt))
    near = _single(values)
    return near if fmt.name == "float32" else _narrowed(near, fmt, _FLOAT32)


def _single(values: Tensor) -> Tensor:
    """The nearest float32; NaN stays what it was, as far as there is room for it."""
    near, nan = values.to(torch.float32), values.isnan()
    if not nan.any():
        return near
    bits = values.view(torch.int64)
    payload = (bits >> (_FLOAT64.precision - _FLOAT32.precision)) & (_FLOAT32.nan_bits ^ (_FLOAT32.sign_bit - 1))
    pattern = (bits >> 63 << 31) | _FLOAT32.nan_bits | payload
    return torch.where(nan, patterned(pattern, _FLOAT32), near)


def _narrowed(values: Tensor, fmt: Format, source: Format) -> Tensor:
    """Numbers of a wider float format, source, rounded to nearest, ties to even."""
    raw = values.view(CARRIERS[source.bits])
    bits = raw & (source.sign_bit - 1)
    pattern = _magnitude(bits, fmt, source).clamp_(max=fmt.inf_bits if fmt.has_inf else fmt.nan_bits)
    nan = bits > source.inf_bits
    if nan.any():
        pattern = torch.where(nan, _nan(bits, fmt, source), pattern)
    return patterned(pattern.bitwise_or_(raw >> (source.bits - 1) << (fmt.bits - 1)), fmt)


def _magnitude(bits: Tensor, fmt: Format, source: Format) -> Tensor:
    """The pattern that is nearest to a positive number, as if there were no largest exponent; anything for NaN."""
    dropped = source.precision - fmt.precision
    pattern = (bits >> dropped).bitwise_and_(1).add_(bits).add_((1 << (dropped - 1)) - 1).bitwise_right_shift_(dropped)
    if fmt.emin == source.emin:
        return pattern
    pattern -= (fmt.emin - source.emin) << (fmt.precision - 1)
    # Beside this number the source's own step is eta, so that adding it rounds a subnormal number to multiples of eta.
    coarse = fmt.eta * 2.0 ** (source.precision - 1)
    small = (bits.view(dtype_of(source)) + coarse).view(bits.dtype) - bits_of(coarse, source.dtype)
    return torch.where(bits < bits_of(fmt.tiny, source.dtype), small, pattern)


def _nan(bits: Tensor, fmt: Format, source: Format) -> Tensor:
    """Convert NaN: numpy keeps the payload's highest bits, and ml_dtypes knows only one NaN."""
    if fmt.name != "float16":
        return torch.full_like(bits, fmt.nan_bits)
    payload = (bits >> (source.precision - fmt.precision)) & (fmt.inf_bits ^ (fmt.sign_bit - 1))
    return payload.clamp_(min=1) | fmt.inf_bits
