"""How much a formula in torch makes, whatever the machine."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the elements of all results of operators while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every operator."""
        del types
        result = func(*args, **(kwargs or {}))
        self.elements += sum(x.numel() for x in tree_leaves(result) if isinstance(x, torch.Tensor))
        return result


# Under its wrapper, which would import torch's compiler, a second and a half, to say that it is not compiled.
Sizes.__torch_dispatch__ = inspect.unwrap(Sizes.__torch_dispatch__)  # type: ignore[method-assign]
