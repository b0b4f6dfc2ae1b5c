"""The operators of torch that some work calls, by torch's own profiler, which watches and takes no part.

What only moves, makes or copies tensors is left out. Products have one name, for torch picks one of several by shape.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

Operators = dict[str, Any]
"""`main`: each operator that does more than compute elements one by one -> those of them that called it on the way;
`elementwise`: names of those that do not."""

_PRODUCTS = {
    *("mm", "bmm", "mv", "dot", "vdot", "inner", "addmm", "addbmm", "baddbmm", "addmv"),
    *("linear", "matmul", "einsum", "_int_mm"),
}
_MOVES = {
    *("clone", "copy", "fill", "zero", "_to_copy", "type_as", "cat", "concat", "stack", "pad", "constant_pad_nd"),
    *("resize", "_unsafe_view", "item", "is_nonzero", "_local_scalar_dense"),
}


def recorded(torch: Any, work: Callable[[], Any]) -> Operators:
    """Do some work, and name the operators that it calls. Raises what the work raises."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would write to stderr that it begins, and that it ends
    with torch.autograd.profiler.profile() as watching:
        work()
    main: dict[str, set[str]] = {}
    elementwise: set[str] = set()
    for event in watching.function_events:
        name = _name(event)
        if name and _is_elementwise(torch, name):
            elementwise.add(name)
        elif name and _computes(torch, name):
            above = {one for one in map(_name, _above(event)) if one and one != name}
            main.setdefault(name, set()).update(above)
    return {"main": {name: sorted(above) for name, above in main.items()}, "elementwise": sorted(elementwise)}


def _name(event: Any) -> str:
    """The name of an operator of torch's own, without the library's; of what is none, empty."""
    library, _, name = str(event.name).rpartition("::")
    name = name if name.endswith("__") else name.removesuffix("_")  # in place
    return ("matmul" if name in _PRODUCTS else name) if library == "aten" else ""


def _above(event: Any) -> Iterator[Any]:
    while (event := event.cpu_parent) is not None:
        yield event


def _forms(torch: Any, name: str) -> list[Any]:
    """All forms of an operator, but for those that write into what they are given besides."""
    packet = getattr(torch.ops.aten, name, None)
    forms = [getattr(packet, form) for form in packet.overloads()] if packet is not None else []
    return [form for form in forms if not any(one.is_out for one in form._schema.arguments)]  # noqa: SLF001


def _is_elementwise(torch: Any, name: str) -> bool:
    return name not in _MOVES and any(torch.Tag.pointwise in form.tags for form in _forms(torch, name))


def _computes(torch: Any, name: str) -> bool:
    """Whether it makes numbers of a tensor's, which no view does."""
    if name in _MOVES or name.startswith("new_") or name.endswith("_like"):
        return False
    forms = [form._schema for form in _forms(torch, name)]  # noqa: SLF001  nothing else tells it
    takes = any("Tensor" in str(one.type) for form in forms for one in form.arguments)
    gives = any("Tensor" in str(one.type) for form in forms for one in form.returns)
    return takes and gives and not any(_is_view(one) for form in forms for one in form.returns)


def _is_view(result: Any) -> bool:
    return result.alias_info is not None and not result.alias_info.is_write
