"""The words by which an author says what an input is: `float32[rows, cols] 0..1`, `int64[n] < vocab`, `bool[n]`, ...

An input is `DTYPE[AXES]`, behind it a range, `< DIM` for indices or `offsets of DIM`, the structure of a matrix
(`lower`, `upper`, `diagonal` or `symmetric`), and `inout` if it is changed in place. `list[...]` around one is a list
of such tensors; an axis that ends in `_i` has an extent of its own in each.
A number is `float 0..1` or `int 0..4`, a truth value `bool`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.corpus.inputs.arguments import Argument
from kernel_assay.corpus.inputs.structures import STRUCTURES
from kernel_assay.oracles.references.description import Tensor

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"
_TEXT = re.compile(
    rf"(?P<list>list\s*\[)?\s*(?P<dtype>\w+)\s*\[(?P<axes>[^\]]*)\]\s*"
    rf"(?:(?P<low>{_NUMBER})\s*\.\.\s*(?P<high>{_NUMBER})|<\s*(?P<below>\w+)|offsets\s+of\s+(?P<end>\w+))?\s*"
    rf"(?P<structure>{'|'.join(STRUCTURES)})?\s*(?(list)\]\s*)(?P<inout>inout)?"
)
_AXIS = re.compile(r"([A-Za-z_]\w*|\d+)(\*([A-Za-z_]\w*|\d+))*")
_ENDS = re.compile(r"([A-Za-z_]\w*)\s*\+\s*1")
_SCALAR = re.compile(rf"(?P<kind>float|int)\s+(?P<low>{_NUMBER})\s*\.\.\s*(?P<high>{_NUMBER})")
LONGEST = 3
"""Tensors of a list, at most; there is one at least."""


@dataclass
class Said:
    """What the words about one input mean."""

    tensors: list[Tensor]
    argument: Argument | None = None
    """None: the input is the tensor itself."""
    divides: str = ""
    """Of offsets: the dimension that they divide."""
    optional: set[str] = field(default_factory=set)
    """Tensors that a case need not have."""


def is_tensor(text: str) -> bool:
    """Whether words are about a tensor, or a list of them."""
    return _TEXT.fullmatch(text.strip()) is not None


def tensors_of(place: str, name: str, text: str) -> Said:
    """The tensors of an input. Raises UsageError for words that are not understood."""
    match = _TEXT.fullmatch(text.strip())
    if match is None or match["dtype"] not in {*FORMATS, "float", "bool"}:
        raise UsageError(
            f"{place}: {name} = {text!r} is not understood; write a dtype and axes, as 'float32[rows, cols]', and a "
            "range if there is one, as 'float32[n] 0..1' or 'int64[n] < rows'"
        )
    axes = [re.sub(r"\s*\*\s*", "*", axis.strip()) for axis in match["axes"].split(",") if axis.strip()]
    if match["end"]:
        return _offsets(place, name, axes, match)
    if odd := [axis for axis in axes if not _AXIS.fullmatch(axis)]:
        raise UsageError(f"{place}: the axis {odd[0]!r} of {name} must be a name, a number, or a product, as half*2")
    ends = (None, None) if match["low"] is None else _range(place, name, match)
    if any("0" in axis.split("*") for axis in axes):
        raise UsageError(f"{place}: {name} = {text!r} is not possible: an axis of 0 leaves it empty in every case")
    dtype = "float32" if match["dtype"] == "float" else match["dtype"]
    _must_hold(place, name, text, dtype, ends)
    structure = match["structure"] or ""
    if structure and (match["below"] or dtype == "bool" or len(axes) < 2 or axes[-1] != axes[-2]):
        raise UsageError(
            f"{place}: {name} = {text!r} is not possible: {structure} are numbers whose last two axes are one"
        )
    tensor = Tensor(name, axes, dtype, ends[0], ends[1], match["below"] or "", structure=structure)
    if dtype == "bool":
        if match["list"] or match["inout"] or match["low"] or match["below"]:
            raise UsageError(f"{place}: {name} = {text!r} is not possible: of bool only plain inputs can be")
        return mask(tensor)
    if match["list"]:
        if match["inout"]:
            raise UsageError(f"{place}: {name} = {text!r} is not possible: a list cannot be changed in place")
        return _list(tensor)
    return Said([tensor], Argument(name, "tensor", (name,), inout=True) if match["inout"] else None)


def mask(tensor: Tensor) -> Said:
    """An input of truth values, which a case has as bytes."""
    return Said([replace(tensor, dtype="uint8", low=0.0, high=1.0)], Argument(tensor.name, "mask", (tensor.name,)))


def _list(tensor: Tensor) -> Said:
    """Several tensors; all but the first may be missing."""
    made = []
    for i in range(LONGEST):
        axes = ["*".join(f"{x[:-2]}_{i}" if x.endswith("_i") else x for x in axis.split("*")) for axis in tensor.axes]
        made.append(replace(tensor, name=f"{tensor.name}_{i}", axes=axes))
    names = tuple(one.name for one in made)
    return Said(made, Argument(tensor.name, "list", names), optional={*names[1:]})


def _offsets(place: str, name: str, axes: list[str], match: re.Match[str]) -> Said:
    """Offsets, which a case has as cuts that stand in any order: one fewer, as it begins and ends where it must."""
    ends = _ENDS.fullmatch(axes[0]) if len(axes) == 1 else None
    if ends is None or match["list"] or match["inout"] or match["dtype"] not in {"int32", "int64"}:
        raise UsageError(
            f"{place}: {name} = {match.string!r} is not understood; write offsets as 'int64[b+1] offsets of n'"
        )
    tensor = Tensor(name, [ends[1]], match["dtype"], upto=match["end"])
    return Said([tensor], Argument(name, "offsets", (name,)), divides=match["end"])


def _range(place: str, name: str, match: re.Match[str]) -> tuple[float, float]:
    """The ends of a range. Raises UsageError for one in which no number lies, or no last one."""
    low, high = float(match["low"]), float(match["high"])
    if low > high:
        raise UsageError(f"{place}: {name} = {match.string!r} is not possible: the range ends before it begins")
    if not math.isfinite(high - low):
        raise UsageError(f"{place}: {name} = {match.string!r} is not possible: the range is wider than any number")
    return low, high


def _must_hold(place: str, name: str, text: str, dtype: str, ends: tuple[float | None, float | None]) -> None:
    """Raise UsageError for whole numbers whose range goes beyond their dtype."""
    if dtype == "bool" or format_of(dtype).is_float or ends[0] is None or ends[1] is None:
        return
    least, most = np.iinfo(format_of(dtype).dtype).min, format_of(dtype).max
    if ends[0] < least or ends[1] > most:
        raise UsageError(f"{place}: {name} = {text!r} is not possible: {dtype} ends at {least} and {most:g}")


def numbers_of(place: str, name: str, text: str) -> list[Any]:
    """The values with which a number is tried, plainest first; none, if the words are about something else.

    Raises UsageError for a range that is not possible.
    """
    if text.strip() == "bool":
        return [False, True]
    match = _SCALAR.fullmatch(text.strip())
    if match is None:
        return []
    low, high = _range(place, name, match)
    tried = [low, high, low / 2 + high / 2, low + (high - low) / 4]
    return list(dict.fromkeys(round(x) if match["kind"] == "int" else x for x in tried))
