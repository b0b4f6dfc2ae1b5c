"""A reference in float64 throughout, whatever it rounds on its way."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

NARROW = {torch.float32, torch.float16, torch.bfloat16}


class Widened(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, what would be rounded to a narrower type is not: all numbers are float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every operator."""
        del types
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in NARROW:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


# Under its wrapper, which would import torch's compiler, a second and a half, to say that it is not compiled.
Widened.__torch_dispatch__ = inspect.unwrap(Widened.__torch_dispatch__)  # type: ignore[method-assign]
