"""Tensors larger than any memory: where a kernel's launch or its indices end, found without running all of it.

Their memory is mapped, and taken only where it is touched. A kernel in CUDA C++ is emulated for a few blocks at either
end of its grid, in check mode: an index that does not fit where it is held leads outside, or where another block wrote.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernel_assay.corpus.formats import FORMATS, Array
from kernel_assay.kernels.backends.cuda import ENDS, CudaSubject
from kernel_assay.kernels.backends.support.base import Loader
from kernel_assay.kernels.backends.support.signature import Bound, Interface, KernelFaultError, bind
from kernel_assay.kernels.backends.triton import TritonLoader

_NORESERVE = 0x4000
"""Of mmap(2) on Linux: no memory is set aside for what is not touched."""
_LEAST = 1 << 16
"""Bytes of a mapping, which may not be empty."""
_LANES = 1 << 8
"""Threads that a program of Triton counts for."""


def stretched(loader: Loader, subject: Any, face: Interface, message: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a launch, or why nothing is said of it.

    That is its `threads`, its `blocks` along the longest side of the grid, why it is `refused`, what is `wrong`.
    """
    run = message["run"]
    try:
        tensors = {name: _mapped(tuple(shape), dtype) for name, (shape, dtype) in message["tensors"].items()}
        if isinstance(subject, CudaSubject):
            attrs = {name: value for name, value in message["attrs"].items() if name in subject.names}
            shape = subject.stretched(face, tensors, attrs, run=run)
            return {"threads": math.prod(shape.grid) * math.prod(shape.block), "blocks": max(shape.grid)}
        if isinstance(loader, TritonLoader):
            grids = _interpreted(loader, bind(subject, face, "it"), face, tensors, message["attrs"], ENDS * run)
            return {"threads": sum(map(math.prod, grids)) * _LANES, "blocks": max(map(max, grids), default=0)}
    except ValueError as error:
        return {"refused": str(error)}
    except (KernelFaultError, OverflowError) as error:
        return {"wrong": str(error)}
    except (NotImplementedError, OSError) as error:
        return {"declined": str(error)}
    return {"declined": "its blocks are not emulated"}


def _interpreted(
    loader: TritonLoader, bound: Bound, face: Interface, tensors: dict[str, Array], attrs: dict[str, Any], ends: int
) -> list[tuple[int, ...]]:
    """Launch so many programs at either end of each grid; the grids. Raises KernelFaultError for what leaves a tensor.

    Raises NotImplementedError for what is not claimed, and for whatever else it raises.
    """
    given = {name: loader.wrap(tensor) for name, tensor in tensors.items()}
    names = (*(() if bound.returns else face.outputs), *face.always)
    extra = {name: given[name] for name in face.extra if name in given}
    if why := bound.declines(attrs, extra):
        raise NotImplementedError(why)
    with loader.at_ends(ends) as grids:
        try:
            bound.call(*(given[name] for name in names), **extra, **bound.attributes(attrs))
        except KernelFaultError:
            raise
        except Exception as error:
            raise NotImplementedError(str(error)) from error
        return list(grids)


def _mapped(shape: tuple[int, ...], dtype: str) -> Array:
    """A tensor of zeros, of which only what is touched takes memory."""
    kind = FORMATS[dtype].dtype
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NORESERVE
    room = mmap.mmap(-1, max(_LEAST, math.prod(shape) * kind.itemsize), flags=flags)
    return np.frombuffer(room, kind, math.prod(shape)).reshape(shape)
