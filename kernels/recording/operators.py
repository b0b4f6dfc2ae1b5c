"""What is known of torch's operators before they run, for watch.py, in programs that have none of our packages."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

_WITHOUT_INPUT = (
    "empty empty_like empty_strided new_empty new_empty_strided resize_ set_ lift_fresh zero_ fill_ normal_"
)
_ALIKE = "uniform_ random_ bernoulli_ ones_like zeros_like full_like rand_like randn_like new_zeros new_ones new_full"
SKIPPED = frozenset(f"{_WITHOUT_INPUT} {_ALIKE} _unsafe_view _reshape_alias".split())
"""Operators whose output depends on no element of an input; memory that nobody has written is among it."""
_SHUFFLE = "clone cat stack contiguous gather index_select embedding constant_pad_nd flip roll repeat"
_CHOOSE = "neg abs relu relu_ threshold_backward where masked_fill minimum maximum clamp hardtanh"
_BOUNDED = "sigmoid tanh erf"
MOVES = frozenset(f"{_SHUFFLE} {_CHOOSE} {_BOUNDED}".split())
"""Operators that give nothing that they did not get, or nothing larger. What they give is looked at if an input is
known not to be finite."""
SCALER = "_amp_foreach_non_finite_check_and_unscale_"
READS = "_local_scalar_dense"
NEAR = 16


class About(NamedTuple):
    """What is known of an operator before it runs."""

    name: str
    names: tuple[str, ...]
    skipped: bool
    """Whether its output is not looked at."""
    moves: bool
    writes: tuple[int, ...]
    """Positions of arguments that it changes."""
    overwrites: bool
    """Whether what they held before is not read."""


@functools.cache
def about_of(func: Any) -> About:
    """Look at the schema of an operator, once."""
    known = func._schema.arguments  # noqa: SLF001
    name = str(func).rpartition(".")[0]
    short = name.rpartition(".")[2]
    takes = any("Tensor" in str(one.type) for one in known)
    writes = tuple(i for i, one in enumerate(known) if one.alias_info is not None and one.alias_info.is_write)
    skipped = func.is_view or not takes or short in SKIPPED
    overwrites = short == "copy_" or "out" in str(func).rpartition(".")[2]
    return About(name, tuple(one.name for one in known), skipped, short in MOVES, writes, overwrites)


def only_scales(about: About, args: Sequence[Any]) -> bool:
    """Whether it multiplies or divides wide numbers, in place, by one that is near 1, as dropout does with its mask.

    Only at the very end of the range could that make an infinity; no copy of what it changes is needed.
    """
    if len(args) != 2 or not isinstance(args[1], (int, float)) or about.name not in {"aten.mul_", "aten.div_"}:
        return False
    wide = args[0].is_floating_point() and args[0].element_size() >= 4
    return wide and 1 / NEAR <= abs(args[1]) <= NEAR
