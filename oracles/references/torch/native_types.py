"""Types that tensors would have where a reference is run as it stands, while all of it is computed in float64.

Of a 16-bit x, `.to(x.dtype)` behind `x.float()` rounds. In float64 it would be nothing, as x is float64 there.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

UNITS = {torch.float16: np.float16, torch.bfloat16: np.dtype("bfloat16")}
"""Types that are narrower than what a kernel computes in, and numpy's for them."""
_DTYPE = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]
_CONVERSIONS = (torch.Tensor.to, torch.Tensor.type, torch.Tensor.type_as)


def native_of(*given: Any) -> torch.dtype | None:
    """The type of what an operator makes of tensors: of those that have axes, if there are any."""
    types = [(x.native, x.ndim) for x in tree_leaves(given) if getattr(x, "native", None) is not None]
    whole = [dtype for dtype, ndim in types if ndim] or [dtype for dtype, _ in types]
    return reduce(torch.promote_types, whole) if whole else None


def with_native(made: Any, dtype: torch.dtype | None) -> Any:
    """The same tensor, which has a type from now on."""
    made.native = dtype
    return made


def casts_of(tensors: Iterable[Any]) -> AbstractContextManager[Any]:
    """While it is entered, conversions to the types of such tensors round as they would where these are narrow."""
    return _Casts() if any(getattr(x, "native", None) in UNITS for x in tensors) else nullcontext()


class _Casts(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self._asked: torch.dtype | None = None
        """What a tensor whose dtype was read last has natively; the reader was told of float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = kwargs or {}
        if func == _DTYPE:
            self._asked = getattr(args[0], "native", None)
            return func(*args)
        if func in _CONVERSIONS:
            args = (args[0], *map(self._meant, args[1:]))
            kwargs = {name: self._meant(value) for name, value in kwargs.items()}
            if func == torch.Tensor.type_as and isinstance(args[1], torch.dtype):
                func = torch.Tensor.to
        return func(*args, **kwargs)

    def _meant(self, value: Any) -> Any:
        """What to convert to, where the reference stands."""
        native = self._asked if value is torch.float64 else getattr(value, "native", None)
        return native if native in UNITS else value
