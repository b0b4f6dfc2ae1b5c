"""Extents far beyond the usual ones: those dimensions have them of which a reference takes that many in a moment.

Nothing is timed, so that each run of a reference finds the same: lines of Python and elements that are made are counted
at two extents, and what grows with the square of one, or goes through it in a loop, ends where others do.
"""

from __future__ import annotations

import math
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NamedTuple

from kernel_assay.oracles.references.description import FAR, Described
from kernel_assay.oracles.spec.axes import shape_of
from kernel_assay.oracles.spec.contract import Dim

TRIED = 512
"""The extent at which it is counted, and again at twice as much."""
FEW_LINES = 32
"""More lines than this for so many more elements are a loop over them."""
GROWTH = 2.25
"""How many times as much memory twice the extent may take, and something for n log n; a square takes four times."""
LIBRARIES = frozenset({"torch", "numpy", "kernel_assay"})
"""Whose lines are not counted."""
BESIDE, MOST = 2, 1 << 20
"""The other extents, and elements of the largest input with which it is tried."""


class Cost(NamedTuple):
    """What a run takes."""

    lines: int
    memory: int
    """Elements of all tensors that torch made, or bytes at the peak."""


def learn_reach(found: Described, takes: Callable[[Mapping[str, int]], bool], cost: Callable[..., Cost]) -> None:
    """Let dimensions of which the reference cannot have FAR end where they usually do. cost: raises what it raises."""
    for name, ends in found.dims.items():
        if Dim(*ends).far and not _reaches(found, name, takes, cost):
            found.dims[name] = ends[:4]


def _reaches(
    found: Described, name: str, takes: Callable[[Mapping[str, int]], bool], cost: Callable[..., Cost]
) -> bool:
    near, twice, far = (_long(found, name, extent) for extent in (TRIED, 2 * TRIED, FAR))
    if max(math.prod(shape_of(t.axes, far, {})) for t in found.tensors) > MOST:
        return False
    try:
        first, second = cost(near), cost(twice)
    except (Exception, SystemExit):  # noqa: BLE001  a user's own code
        return False
    is_light = second.lines - first.lines <= FEW_LINES and second.memory <= GROWTH * first.memory
    return is_light and takes(far)


def _long(found: Described, name: str, extent: int) -> dict[str, int]:
    """Extents that are small but for one."""
    wanted = {dim: extent if dim == name else min(BESIDE, found.example[dim]) for dim in found.dims}
    dims = {dim: Dim(*ends) for dim, ends in found.dims.items()}
    return {d: max(dims[d].least, n // dims[d].multiple * dims[d].multiple) for d, n in wanted.items()}


def cost_of(is_torch: bool, run: Callable[[], Any]) -> Cost:
    """Count what a run takes."""
    lines, before = [0], sys.gettrace()

    def traced(frame: FrameType, event: str, _of: Any) -> Any:
        lines[0] += event == "line"
        return traced if frame.f_globals.get("__name__", "").partition(".")[0] not in LIBRARIES else None

    sys.settrace(traced)
    try:
        memory = (_elements if is_torch else _peak)(run)
    finally:
        sys.settrace(before)
    return Cost(lines[0], memory)


def _elements(run: Callable[[], Any]) -> int:
    from kernel_assay.oracles.references.torch.sizes import Sizes  # noqa: PLC0415  not every reference needs torch

    with Sizes() as sizes:
        run()
        elements: int = sizes.elements
    return elements


def _peak(run: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
