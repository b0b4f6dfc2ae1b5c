"""Values and texts as Python source: exact, harmless, and short enough to read."""

from __future__ import annotations

import keyword
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kernel_assay.corpus.formats import Array, Format
from kernel_assay.corpus.model.base import Scalar

WIDTH = 110
"""Characters of a line."""
MARGIN = 12
"""Characters for what stands around an expression."""
Nested = str | list["Nested"]


def prose(text: str) -> str:
    """Foreign text as it may stand in a docstring: one line, nothing invisible, nothing that could end it."""
    clean = "".join(c if c.isprintable() else " " if c in "\n\t" else ascii(c)[1:-1] for c in text.strip())
    return clean.replace("\\", "\\\\").replace('"""', "'''")


def wrapped(text: str, indent: str = "") -> str:
    """Prose in lines; the first one is not indented."""
    lines = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def quoted(text: str) -> str:
    """A string literal, in double quotes unless that needs an escape."""
    plain = repr(text)
    return f'"{plain[1:-1]}"' if plain[0] == "'" and '"' not in plain and "\\'" not in plain else plain


def number(value: float) -> str:
    """A float exactly, NaN and Inf by name."""
    if math.isfinite(value):
        return repr(value)
    return "np.nan" if math.isnan(value) else "np.inf" if value > 0 else "-np.inf"


def literal(value: Scalar) -> str:
    """The value of an attribute."""
    if isinstance(value, str):
        return quoted(value)
    return number(value) if isinstance(value, float) else repr(value)


def variable(name: str, taken: Iterable[str] = ()) -> str:
    """A name of the case as a name of a variable; another one if it is none, or taken."""
    word = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
    word = f"_{word}" if word[0].isdigit() else word
    while keyword.iskeyword(word) or word in set(taken):
        word += "_"
    return word


def call(function: str, positional: Sequence[str], attrs: dict[str, Scalar]) -> str:
    """A call; attributes by name."""
    odd = {name: value for name, value in attrs.items() if not name.isidentifier() or keyword.iskeyword(name)}
    parts = [*positional, *(f"{n}={literal(v)}" for n, v in attrs.items() if n not in odd)]
    parts += [f"**{{{', '.join(f'{quoted(n)}: {literal(v)}' for n, v in odd.items())}}}"] if odd else []
    flat = f"{function}({', '.join(parts)})"
    return flat if len(flat) <= WIDTH - MARGIN else f"{function}(\n    " + ",\n    ".join(parts) + ",\n)"


def numbers(values: Array, fmt: Format) -> Nested | None:
    """Every element as the shortest decimal that gives its bits again; None if some has no such decimal."""
    if values.ndim:
        rows = [numbers(row, fmt) for row in values]
        return None if None in rows else [row for row in rows if row is not None]
    return decimal(values, fmt)


def decimal(value: Array, fmt: Format) -> str | None:
    """A scalar as the shortest decimal that gives its bits again; None for most NaN."""
    if not fmt.is_float:
        return str(int(value))
    real = float(value)
    short = str(value[()])
    for text in (short if set(short) & set(".en") else f"{short}.0", repr(real)):
        if np.array(float(text)).astype(fmt.dtype).tobytes() == value.tobytes():
            return text if math.isfinite(real) else number(real)
    return None


def patterns(values: Array, fmt: Format) -> Nested:
    """Every element as its bit pattern."""
    if values.ndim:
        return [patterns(row, fmt) for row in values]
    return f"0x{int.from_bytes(values.tobytes(), 'little'):0{fmt.bits // 4}x}"


def nested(items: Nested, room: int = WIDTH - 2 * MARGIN) -> str:
    """A list of lists as source; rows in lines of their own if all of it is too long for one."""
    flat = _flat(items)
    if isinstance(items, str) or len(flat) <= room:
        return flat
    if all(isinstance(item, str) for item in items):
        return filled(flat, room)
    rows = ",\n".join(nested(item, room - 4) for item in items)
    return f"[\n{textwrap.indent(rows, ' ' * 4)},\n]"


def filled(source: str, room: int = WIDTH - 2 * MARGIN) -> str:
    """Something in brackets, in several lines if it is long."""
    if len(source) <= room:
        return source
    opened = source.index("(" if source[-1] == ")" else "[") + 1
    inner = textwrap.fill(source[opened:-1], room, break_long_words=False, break_on_hyphens=False)
    return f"{source[:opened]}\n{textwrap.indent(inner, ' ' * 4)},\n{source[-1]}"


def braced(entries: Sequence[str]) -> str:
    """A dict, in several lines if it is long."""
    flat = f"{{{', '.join(entries)}}}"
    return flat if len(flat) <= WIDTH - 2 * MARGIN else "{\n    " + ",\n    ".join(entries) + ",\n}"


def _flat(items: Nested) -> str:
    return items if isinstance(items, str) else f"[{', '.join(map(_flat, items))}]"


def indented(lines: Iterable[str], by: int = 4) -> list[str]:
    """Lines, each of which may be several, further to the right."""
    return [f"{' ' * by}{line}" if line else "" for text in lines for line in text.split("\n")]


def subscript(indices: Sequence[int]) -> str:
    """Flat indices as what stands between brackets: a number, a slice or a list."""
    if len(indices) == 1:
        return str(indices[0])
    steps = set(np.diff(np.asarray(indices)).tolist())
    if len(steps) == 1 and (step := steps.pop()) > 0:
        return f"{indices[0]}:{indices[-1] + 1}" + (f":{step}" if step != 1 else "")
    return str(list(indices))


def parts(view: Sequence[tuple[int | None, int | None, int | None]]) -> str:
    """Slices as what stands between brackets."""
    return ", ".join(f"{_end(a)}:{_end(b)}{f':{step}' if step not in {None, 1} else ''}" for a, b, step in view)


def _end(index: int | None) -> str:
    return "" if index is None else str(index)


def entry(value: Any) -> str:
    """A tuple, a number, a text or None as source."""
    if isinstance(value, tuple):
        return f"({', '.join(map(entry, value))}{',' * (len(value) == 1)})"
    return literal(value) if isinstance(value, str | float) else repr(value)
