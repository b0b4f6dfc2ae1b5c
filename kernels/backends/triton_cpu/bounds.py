"""Interpreted Triton, every address checked: a load or a store may touch the elements of its own tensor, no others.

The interpreter reads and writes whatever an address names; a mask that is too long shows in no result. A pointer
knows here which argument it was made from, through all arithmetic with it, because its type says so. One that was made
from an integer may lie in any tensor of the launch, and where it lies in none nothing can be said about the kernel.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime import interpreter
from triton.tools.tensor_descriptor import TensorDescriptor

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.kernels.backends.support.signature import KernelFaultError
from kernel_assay.kernels.backends.triton_cpu.places import kernel_line, line_words, program_words


class Region:
    """The memory in which the elements of one argument, a tensor, lie."""

    def __init__(self, name: str, tensor: Any) -> None:
        self.name = name
        self.tensor = tensor
        self.start = int(tensor.data_ptr())
        self.size = int(tensor.element_size())
        """Bytes of one element."""

    @cached_property
    def _hull(self) -> int:
        """Elements from the first to the last, with those between them that are none of the tensor's."""
        steps = zip(self.tensor.shape, self.tensor.stride(), strict=True)
        return 1 + sum((n - 1) * step for n, step in steps) if self.tensor.numel() else 0

    @property
    def stop(self) -> int:
        """The address behind its last element."""
        return self.start + self._hull * self.size

    @cached_property
    def _members(self) -> NDArray[np.bool_] | None:
        """A mask of the elements of the hull that are the tensor's; None: all."""
        if self._hull <= self.tensor.numel() and self.tensor.is_contiguous():
            return None
        found = np.zeros(self._hull, np.bool_)
        if self._hull:
            strides = self.tensor.stride()
            np.ndarray(tuple(self.tensor.shape), np.bool_, buffer=found.data, strides=strides)[...] = True
        return found

    def lacks(self, at: NDArray[np.uint64], width: int) -> NDArray[np.bool_]:
        """A mask of the addresses, of `width` bytes each, that are not in it."""
        offset = at.astype(np.int64) - self.start
        first, last = offset // self.size, (offset + width - 1) // self.size
        outside: NDArray[np.bool_] = (first < 0) | (last >= self._hull)
        if self._members is not None and self._hull:
            top = self._hull - 1
            outside |= ~(self._members[first.clip(0, top)] & self._members[last.clip(0, top)])
        return outside

    def holds(self, low: int, high: int) -> bool:
        """Whether every byte from `low` to before `high` is its own, as far as can be told at a glance."""
        return self._members is None and self.start <= low and high <= self.stop

    def element(self, address: int) -> str:
        """An address as an element of it."""
        return f"{self.name}[{(address - self.start) // self.size}]"

    def why_outside(self, address: int) -> str:
        """Words for why there is no element of it at an address."""
        index, count = (address - self.start) // self.size, int(self.tensor.numel())
        if index < 0:
            return "before its first element"
        if index >= self._hull:
            return f"beyond its {count} element{'s' if count != 1 else ''}"
        return "which lies between its elements"


class Pointer(tl.pointer_type):  # type: ignore[misc]
    """The type of a pointer that knows its argument; equal to the plain type, and carried wherever that one is."""

    def __init__(self, plain: Any, region: Region) -> None:
        super().__init__(plain.element_ty, plain.address_space, plain.const)
        self.region = region


LAUNCHED: list[Region] = []
"""The tensors of the launch in progress."""


def owned(name: str, value: Any) -> Any:
    """A tensor as a pointer that knows it; anything else as it is."""
    if isinstance(value, TensorDescriptor):
        LAUNCHED.append(Region(name, value.base))
    if not hasattr(value, "data_ptr"):
        return value
    region = Region(name, interpreter._unwrap_tensor(value))  # noqa: SLF001  the memory is what counts, not its type
    LAUNCHED.append(region)
    found = interpreter._implicit_cvt(value)  # noqa: SLF001  what the interpreter would make of it
    found.handle.dtype = Pointer(found.handle.dtype, region)
    return found


def width_of(ptrs: Any) -> int:
    """Bytes of what lies at an address."""
    return max(1, int(ptrs.get_element_ty().primitive_bitwidth) // 8)


def _region_of(handle: Any) -> Region | None:
    return handle.dtype.region if isinstance(handle.dtype, Pointer) else None


class CheckedMemory(interpreter.InterpreterBuilder):  # type: ignore[misc]
    """Looks at every address before it is used."""

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
        """Load where the mask allows. Raises KernelFaultError for an element that its tensor does not have."""
        self._check("reads", ptrs, mask)
        return super().create_masked_load(ptrs, mask, other, *rest, **named)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        """Store where the mask allows. Raises KernelFaultError as above."""
        self._check("writes", ptrs, mask)
        return super().create_masked_store(ptrs, value, mask, *rest, **named)

    def create_atomic_rmw(self, op: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        """Read, modify and write. Raises KernelFaultError as above."""
        self._check("writes", ptr, mask)
        return super().create_atomic_rmw(op, ptr, val, mask, *rest)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, *rest: Any) -> Any:
        """Compare and swap. Raises KernelFaultError as above."""
        self._check("writes", ptr, None)
        return super().create_atomic_cas(ptr, cmp, val, *rest)

    def create_bitcast(self, src: Any, dst_type: Any) -> Any:
        """Another type over the same memory: still the memory of the same argument."""
        found, region = super().create_bitcast(src, dst_type), _region_of(src)
        if region is not None and isinstance(found.dtype, tl.pointer_type):
            found.dtype = Pointer(found.dtype, region)
        return found

    def create_select(self, cond: Any, lhs: Any, rhs: Any) -> Any:
        """Select between pointers to two arguments: a pointer that may lie in either."""
        found = self.ternary_op(cond, lhs, rhs, np.where)
        if isinstance(found.dtype, Pointer) and _region_of(lhs) is not _region_of(rhs):
            found.dtype = tl.pointer_type(found.dtype.element_ty, found.dtype.address_space, found.dtype.const)
        return found

    def _check(self, verb: str, ptrs: Any, mask: Any) -> None:
        at = ptrs.data if mask is None or mask.data.all() else ptrs.data[np.broadcast_to(mask.data, ptrs.data.shape)]
        if not at.size:
            return
        width = width_of(ptrs)
        if (at & (width - 1)).any():
            what = f"{self._who} {verb} {width} bytes at an address that is no multiple of {width}"
            raise KernelFaultError(Kind.CRASHED, f"{what}{line_words(kernel_line())}")
        region = _region_of(ptrs)
        if region is None:
            self._check_unowned(verb, at, width)
        elif not region.holds(int(at.min()), int(at.max()) + width):
            outside = region.lacks(at, width)
            if outside.any():
                first = int(at[outside][0])
                what = f"{self._who} {verb} {region.element(first)}{line_words(kernel_line())}"
                raise KernelFaultError(Kind.OUT_OF_BOUNDS, f"{what}, {region.why_outside(first)}")

    def _check_unowned(self, verb: str, at: Array, width: int) -> None:
        """Raises NotImplementedError: the address may be right, of a tensor that is not seen here."""
        if np.logical_and.reduce([region.lacks(at, width) for region in LAUNCHED]).any():
            raise NotImplementedError(f"triton kernel {verb} memory of which only its address was passed")

    @property
    def _who(self) -> str:
        return program_words(self.grid_idx, self.grid_dim)
