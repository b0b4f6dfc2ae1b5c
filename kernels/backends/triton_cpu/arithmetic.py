"""Interpreted Triton, arithmetic as a GPU has it: narrow formats are rounded to nearest, and sums in them are narrow.

The interpreter keeps bfloat16 and the 8-bit formats as integers. It truncates what it converts to them, converts some
types as if they were integers, and adds, compares and multiplies the bits. Here their values are widened to float32,
and what comes of it is rounded to nearest, ties to even. Its products of float32 are exact where a tensor core cuts
the operands to tf32, and its sums of float16 are float32 until the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter

from kernel_assay.corpus.formats import Array

AS_BITS = {
    tl.bfloat16: np.dtype(ml_dtypes.bfloat16),
    tl.float8e5: np.dtype(ml_dtypes.float8_e5m2),
    tl.float8e4nv: np.dtype(ml_dtypes.float8_e4m3fn),
    tl.float8e4b8: np.dtype(ml_dtypes.float8_e4m3fnuz),
    tl.float8e5b16: np.dtype(ml_dtypes.float8_e5m2fnuz),
}
"""Formats that numpy has not, so that the interpreter keeps their bits as integers."""
_CHUNK = 16
"""Products that a tensor core sums before it rounds to a float16 accumulator."""


def is_bits(handle: Any) -> bool:
    """Whether a handle's numbers are kept as bits. What was compared keeps the type, but is a truth value."""
    return bool(handle.data.dtype.kind == "u" and handle.data.itemsize <= 2 and handle.dtype.scalar in AS_BITS)


def widened(handle: Any) -> Array:
    """The numbers of a handle, in a type that numpy can compute in."""
    data: Array = handle.data
    if not is_bits(handle):
        return data
    bits = np.ascontiguousarray(data).reshape(data.shape)
    return np.asarray(bits.view(AS_BITS[handle.dtype.scalar]).astype(np.float32))


def stored(values: Array, dtype: Any, *, cut: bool = False) -> Any:
    """A handle of some numbers, rounded to a type; cut: towards zero."""
    wanted = interpreter._get_np_dtype(dtype)  # noqa: SLF001  the interpreter's own word
    if values.dtype.kind == "f" and wanted.kind in "iu" and dtype not in AS_BITS:
        return interpreter.TensorHandle(as_integers(values, wanted), dtype)
    format_ = AS_BITS.get(dtype, wanted)
    rounded = np.asarray(_within(values, dtype).astype(format_))
    if cut and values.dtype.kind == "f":
        bits = rounded.view(f"u{format_.itemsize}")
        wide = np.result_type(values.dtype, np.float32)
        over = np.abs(rounded.astype(wide)) > np.abs(values.astype(wide))
        rounded = np.asarray(bits - over.astype(bits.dtype)).view(format_)
    return interpreter.TensorHandle(rounded.view(wanted), dtype)


def as_integers(values: Array, wanted: np.dtype[Any]) -> Array:
    """Numbers without what is behind the point, as a GPU converts them.

    What is too large for 32 bits, or for 64, becomes the largest integer that they hold, and NaN becomes 0; narrower
    types are given the lowest bits of that.
    """
    wide = np.dtype(f"{wanted.kind}{max(4, wanted.itemsize)}")
    low, high = np.iinfo(wide).min, np.iinfo(wide).max
    whole = np.trunc(np.where(np.isnan(values), values.dtype.type(0), values))
    inside = np.where((whole > low) & (whole < high), whole, values.dtype.type(0)).astype(wide)
    ends = np.where(whole >= high, wide.type(high), np.where(whole <= low, wide.type(low), inside))
    return np.asarray(ends.astype(wanted))


def quiet(data: Array) -> Array:
    """The same numbers; of NaN, none that is signaling, which numpy's fmax and fmin would prefer to a number."""
    return np.asarray(data * data.dtype.type(1)) if data.dtype.kind == "f" else data


def _within(values: Array, dtype: Any) -> Array:
    """Saturate as a GPU does in conversions to OCP's 8-bit formats: what is too large becomes the largest number."""
    if dtype not in {tl.float8e4nv, tl.float8e5} or values.dtype.kind != "f":
        return values
    top = float(ml_dtypes.finfo(AS_BITS[dtype]).max)
    return np.clip(values, -top, top)


class Arithmetic(interpreter.InterpreterBuilder):  # type: ignore[misc]
    """Numbers instead of bits."""

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        """Convert, to nearest where it must be rounded."""
        return stored(widened(src), dst_type.scalar)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        """Convert as the kernel asks: to nearest or towards zero."""
        return stored(widened(src), dst_type.scalar, cut=rounding_mode == ir.ROUNDING_MODE.RTZ)

    def unary_op(self, arg: Any, op: Callable[..., Array]) -> Any:
        """One number into one."""
        if not is_bits(arg):
            return super().unary_op(arg, op)
        return stored(op(widened(arg)), arg.dtype.scalar)

    def binary_op(self, lhs: Any, rhs: Any, op: Callable[..., Array]) -> Any:
        """Two numbers into one, or into a truth value."""
        if op is np.fmax or op is np.fmin:
            lhs, rhs = (interpreter.TensorHandle(quiet(h.data), h.dtype) for h in (lhs, rhs))
        if not is_bits(lhs):
            return super().binary_op(lhs, rhs, op)
        found = op(widened(lhs), widened(rhs))
        return interpreter.TensorHandle(found, tl.int1) if found.dtype == np.bool_ else stored(found, lhs.dtype.scalar)

    def ternary_op(self, lhs: Any, rhs: Any, other: Any, op: Callable[..., Array]) -> Any:
        """Three numbers into one; a choice moves bits as they are."""
        if op is np.where or not is_bits(other):
            return super().ternary_op(lhs, rhs, other, op)
        return stored(op(widened(lhs), widened(rhs), widened(other)), other.dtype.scalar)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        """A product and a sum, rounded once: float64 holds both of numbers this narrow."""
        if not is_bits(z):
            return super().create_fma(x, y, z)
        return stored(widened(x).astype(np.float64) * widened(y) + widened(z), z.dtype.scalar)

    def create_atomic_rmw(self, op: Any, ptr: Any, val: Any, *rest: Any) -> Any:
        """Raises NotImplementedError for numbers that are kept as bits."""
        if is_bits(val):
            raise NotImplementedError(f"interpreted Triton has no atomic operations on {val.dtype.scalar}")
        return super().create_atomic_rmw(op, ptr, val, *rest)

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:  # noqa: ARG002
        """A product, in the arithmetic of the accumulator."""
        left, right = widened(a), widened(b)
        if left.dtype == np.float32 and not is_bits(a) and input_precision == ir.INPUT_PRECISION.TF32:
            left, right = tf32(left), tf32(right)
        if d.data.dtype != np.float16:
            wide = d.data.dtype
            return interpreter.TensorHandle(np.matmul(left, right, dtype=wide) + d.data, d.dtype.scalar)
        total = d.data
        for begin in range(0, left.shape[-1], _CHUNK):
            columns, rows = left[..., begin : begin + _CHUNK], right[..., begin : begin + _CHUNK, :]
            total = (np.matmul(columns, rows, dtype=np.float32) + total).astype(np.float16)
        return interpreter.TensorHandle(total, d.dtype.scalar)


def tf32(values: Array) -> Array:
    """Read float32 numbers as a tensor core does: 10 bits behind the leading one, so that NaN may be Inf."""
    return (np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


class Reductions(interpreter.ReduceOps):  # type: ignore[misc]
    """Reductions of a block along an axis, as halves that are combined until one element is left."""

    def sum(self, input: Any) -> Any:  # noqa: A002  the interpreter's name
        """The sum; in 16 bits every partial sum is rounded to them."""
        handle = input.handle
        if not is_bits(handle) and handle.data.dtype != np.float16:
            return super().sum(input)
        data, axis = self._along(widened(handle))
        format_ = AS_BITS.get(input.dtype, np.dtype(np.float16))
        while data.shape[axis] > 1:
            low, high = np.split(data, 2, axis)
            data = (low + high).astype(format_).astype(data.dtype)
        return self.to_tensor(self._reduced(stored(data, input.dtype).data, axis), input.dtype)

    def min_max(self, input: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:  # noqa: A002
        """The largest or smallest, with its index or without."""
        taken = input[0] if isinstance(input, tuple) else input
        if idx_reduce_op is None:
            handle = interpreter.TensorHandle(quiet(taken.handle.data), taken.handle.dtype)
            return super().min_max(tl.tensor(handle, taken.type), val_reduce_op)
        data, axis = self._along(widened(taken.handle))
        shape = [-1 if i == axis else 1 for i in range(data.ndim)]
        index = np.broadcast_to(np.arange(data.shape[axis], dtype=np.int32).reshape(shape), data.shape)
        before = np.greater if idx_reduce_op is np.nanargmax else np.less
        while data.shape[axis] > 1:
            (x, y), (i, j) = np.split(data, 2, axis), np.split(index, 2, axis)
            first = before(x, y) | ((x == y) & (i < j))
            data, index = np.where(first, x, y), np.where(first, i, j)
        value = self.to_tensor(self._reduced(stored(data, taken.dtype).data, axis), taken.dtype)
        return value, self.to_tensor(self._reduced(index, axis), tl.int32)

    def _along(self, data: Array) -> tuple[Array, int]:
        """The numbers, and the axis to reduce; without one, all of them stand along the last."""
        if self.axis is None:
            return data.reshape((1,) * (data.ndim - 1) + (-1,)), data.ndim - 1
        return data, self.axis % data.ndim

    def _reduced(self, data: Array, axis: int) -> Array:
        """Keep or drop the axis that was reduced, of which one element is left."""
        if self.keep_dims:
            return data
        return data.reshape(()) if self.axis is None else np.squeeze(data, axis)


class Scans(interpreter.ScanOps):  # type: ignore[misc]
    """Running sums and products."""

    def apply_impl(self, input: Any) -> Any:  # noqa: A002  the interpreter's name
        """Raises NotImplementedError for numbers that are kept as bits."""
        if any(is_bits(arg.handle) for arg in input):
            raise NotImplementedError(f"interpreted Triton has no scans of {input[0].dtype}")
        return super().apply_impl(input)
