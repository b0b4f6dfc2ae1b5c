"""Results of a reference if a factor of 0 leaves out what it is multiplied by, NaN and Inf among it.

A formula multiplies by a mask, or by the weight 0 of a masked key; many kernels, and torch's own, do not read what that
would meet. An input of floats that is 0 leaves nothing out, unless it has a structure: half of it is not read, perhaps.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernel_assay.oracles.references.torch.compositions import name_of

_PRODUCTS = {"mul", "mm", "bmm", "mv", "dot"}
_PLUS = {"addmm": "mm", "baddbmm": "bmm", "addmv": "mv"}
aten = torch.ops.aten


class LeftOut(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Zeros that were computed leave out their factors, and -Inf in a mask what it is added to, while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made: dict[int, Any] = {}
        """The memory of what was computed, which is kept so that nothing else comes to lie there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every operator."""
        del types
        result = self._operated(func, args, kwargs or {})
        given = {_place(x) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and _place(x) not in given:
                self._made[_place(x)] = x.untyped_storage()
        return result

    def _operated(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = name_of(func)
        if name in _PLUS and set(kwargs.values()) <= {1}:
            product = self._operated(getattr(aten, _PLUS[name]).default, args[1:3], {})
            return args[0] + product
        result = func(*args, **kwargs)
        if name in _PRODUCTS and all(isinstance(x, torch.Tensor) for x in args) and result.isnan().any():
            return _product(func, *args, *(self._zeros(x) for x in args))
        if name == "add" and isinstance(args[1], torch.Tensor) and not kwargs and result.isnan().any():
            for mask in args[:2]:
                if bool(((mask == 0) | mask.isneginf()).all()):
                    result = torch.where(mask.isneginf(), mask, result)
        return result

    def _zeros(self, x: Any) -> Any:
        """Mark the zeros that leave out."""
        counts = _place(x) in self._made or not x.dtype.is_floating_point
        return (x == 0) if counts else torch.zeros_like(x, dtype=torch.bool)


# Under its wrapper, which would import torch's compiler, a second and a half, to say that it is not compiled.
LeftOut.__torch_dispatch__ = inspect.unwrap(LeftOut.__torch_dispatch__)  # type: ignore[method-assign]


def _place(x: Any) -> int:
    place: int = x.untyped_storage().data_ptr()
    return place


def _product(func: Callable[..., Any], a: Any, b: Any, a_out: Any, b_out: Any) -> Any:
    """A function that is linear in a and in b, without the terms of which a factor is marked."""

    def any_of(*pairs: tuple[Any, Any]) -> Any:
        return sum(func(x.double(), y.double()) for x, y in pairs) > 0

    inf, none = float("inf"), float("-inf")
    lost = any_of(
        (a.isnan(), ~b_out), (~a_out, b.isnan()), (a.isinf(), (b == 0) & ~b_out), ((a == 0) & ~a_out, b.isinf())
    )
    up = any_of((a == inf, b > 0), (a == none, b < 0), (a > 0, b == inf), (a < 0, b == none))
    down = any_of((a == inf, b < 0), (a == none, b > 0), (a < 0, b == inf), (a > 0, b == none))
    found = func(*(torch.where(x.isfinite(), x, 0.0) for x in (a, b)))
    found = torch.where(up, found + inf, found)
    found = torch.where(down, found + none, found)  # Inf - Inf is NaN, as it should be
    return torch.where(lost, float("nan"), found)
