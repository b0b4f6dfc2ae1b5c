"""Small questions about tensors and arguments, for watch.py, in programs that have none of our packages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

FINITE, INF, NAN = 0, 1, 2
"""How bad the worst element of a tensor is."""


def key(tensor: Any) -> int:
    """Identify a storage while it lives; views share it."""
    key: int = tensor.untyped_storage()._cdata  # noqa: SLF001
    return key


def same(one: Any, other: Any) -> bool:
    """Whether two tensors share a storage."""
    return key(one) == key(other)


def given(args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    """INF or NAN if the program has written one down as an argument."""
    numbers = [one for one in (*args, *kwargs.values()) if isinstance(one, float) and not math.isfinite(one)]
    return max((NAN if math.isnan(one) else INF for one in numbers), default=FINITE)


def tensors(torch: Any, value: Any) -> Iterator[Any]:
    """Tensors in lists, dicts, and records of any kind."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors(torch, one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors(torch, one)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors(torch, getattr(value, name, None))


def cloned(torch: Any, value: Any) -> Any:
    """Copy tensors, also those in a list."""
    if isinstance(value, (list, tuple)):
        return [cloned(torch, one) for one in value]
    return value.clone() if isinstance(value, torch.Tensor) else value


def first_of(tensor: Any) -> tuple[list[int], float, int]:
    """Index and value of the first of the worst elements of a tensor that is not finite, and how many there are."""
    mask = tensor.isnan()
    if not bool(mask.any()):
        mask = tensor.isinf()
    index = mask.nonzero()[0].tolist() if tensor.dim() else []
    value = tensor[tuple(index)].item()
    return index, value if isinstance(value, float) else math.nan, int(mask.sum())
