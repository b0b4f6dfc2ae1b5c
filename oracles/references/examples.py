"""Examples of a reference's inputs in words, `(float32[4, 8], int64[5] 0..9, 0.5)`: extents stand for a tensor."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernel_assay.corpus.errors import UsageError

_TENSOR = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[\d,\s]*)\](?:\s*(?P<low>-?\d+)\.\.(?P<high>-?\d+))?")
_COMMA = re.compile(r",\s*(?![^\[]*\])")


@dataclass(frozen=True, slots=True)
class Example:
    """What is asked of a tensor that is an example."""

    dtype: str
    shape: tuple[int, ...]
    low: int = 0
    high: int = 0

    def min(self) -> int:
        """The least of its elements, of whole numbers."""
        return self.low

    def max(self) -> int:
        """The largest of them."""
        return self.high


def examples_in(place: str, words: str) -> tuple[Any, ...]:
    """The examples in words; place: of which reference. Raises UsageError for what is none."""
    return tuple(_read(place, one.strip()) for one in _COMMA.split(words[1:-1]) if one.strip())


def _read(place: str, words: str) -> Any:
    match = _TENSOR.fullmatch(words)
    if match is not None:
        shape = tuple(int(n) for n in match["shape"].split(",") if n.strip())
        return Example(match["dtype"], shape, int(match["low"] or 0), int(match["high"] or 0))
    try:
        return ast.literal_eval(words)
    except (SyntaxError, ValueError) as error:
        raise UsageError(
            f"{place}: the example {words!r} is not understood; write a dtype and extents, as 'float32[4, 8]' or "
            "'int64[5] 0..9', or a number"
        ) from error


def words_of(examples: Sequence[Any]) -> str:
    """The words for some examples: tensors, arrays, and what is no tensor."""
    return f"({', '.join(map(_words, examples))})"


def _words(value: Any) -> str:
    if not (hasattr(value, "dtype") and hasattr(value, "shape")):
        return repr(value)
    dtype = str(value.dtype).removeprefix("torch.")
    words = f"{dtype}[{', '.join(map(str, value.shape))}]"
    whole = dtype.startswith(("int", "uint")) and 0 not in value.shape
    return f"{words} {int(value.min())}..{int(value.max())}" if whole else words
