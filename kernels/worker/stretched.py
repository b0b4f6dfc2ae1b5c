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
from kernel_assay.kernels.backends.cuda import CudaSubject
from kernel_assay.kernels.backends.support.signature import Interface, KernelFaultError

_NORESERVE = 0x4000
"""Of mmap(2) on Linux: no memory is set aside for what is not touched."""
_LEAST = 1 << 16
"""Bytes of a mapping, which may not be empty."""


def stretched(loaded: tuple[Any, Interface], message: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a launch: its `threads`, why it is `refused`, what is `wrong`; or why nothing is said."""
    subject, face = loaded
    if not isinstance(subject, CudaSubject):
        return {"declined": "it is no kernel in CUDA C++"}
    try:
        tensors = {name: _mapped(tuple(shape), dtype) for name, (shape, dtype) in message["tensors"].items()}
        attrs = {name: value for name, value in message["attrs"].items() if name in subject.names}
        return {"threads": subject.stretched(face, tensors, attrs, run=message["run"])}
    except ValueError as error:
        return {"refused": str(error)}
    except (KernelFaultError, OverflowError) as error:
        return {"wrong": str(error)}
    except (NotImplementedError, OSError) as error:
        return {"declined": str(error)}


def _mapped(shape: tuple[int, ...], dtype: str) -> Array:
    """A tensor of zeros, of which only what is touched takes memory."""
    kind = FORMATS[dtype].dtype
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NORESERVE
    room = mmap.mmap(-1, max(_LEAST, math.prod(shape) * kind.itemsize), flags=flags)
    return np.frombuffer(room, kind, math.prod(shape)).reshape(shape)
