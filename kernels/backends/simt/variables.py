"""Variables of the device: `__device__`, `__managed__` and `__constant__` ones, as they lie in a compiled library.

Of their sources it is known here, too, whether somebody may wait for one of them to change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


class Variable(NamedTuple):
    """A variable outside all functions, or a static one inside: its name, its place in the library in bytes."""

    name: str
    offset: int
    size: int
    is_constant: bool


_SECTION = re.compile(r"^\s*\[\s*(\d+)\] (\.(?:data|bss|rodata)\S*) ", re.MULTILINE)
_SYMBOL = re.compile(
    r"^\s*\d+: (?P<at>[0-9a-f]+)\s+(?P<size>\d+|0x[0-9a-f]+) OBJECT\s+\w+\s+\w+\s+(?P<section>\d+) (?P<name>.+)$",
    re.MULTILINE,
)
_OURS = re.compile(r"simt::|vtable for |typeinfo |VTT for |guard variable for |std::|__gnu|__dso_handle|completed\.")
_CONSTANT = re.compile(r"\b__constant__\b((?:[^;={]*?\b(?:struct|union|class)\s*\w*\s*\{[^{}]*\})?[^;={]*)")
_DECLARED = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?:,|$)")


def variables(symbols: str, constant: Iterable[str]) -> list[Variable]:
    """Read what readelf -SsW says of a library; constant: names of variables that kernels may only read."""
    sections = dict(_SECTION.findall(symbols))
    names, found = frozenset(constant), set()
    for match in _SYMBOL.finditer(symbols):
        section, size, name = sections.get(match["section"], ""), int(match["size"], 0), match["name"]
        if not section or not size or _OURS.match(name):
            continue
        plain = re.sub(r"<.*>$", "", name).rpartition("::")[2]
        is_constant = plain in names or section.startswith(".rodata")
        found.add(Variable(plain, int(match["at"], 16), size, is_constant))
    return sorted(found, key=lambda variable: variable.offset)


def constants(texts: Iterable[str]) -> set[str]:
    """Names of variables that are declared `__constant__` in sources."""
    return {
        name for text in texts for match in _CONSTANT.finditer(text) for name in _DECLARED.findall(match[1].rstrip())
    }


def counting(texts: Iterable[str]) -> tuple[str, ...]:
    """Give the flag by which basic blocks are counted, if a source has reads by which a thread may wait in a loop.

    Others must have their turn then.
    """
    return ("-fsanitize-coverage=trace-pc",) if any(map(_WAITING.search, texts)) else ()


_WAITING = re.compile(r"(?<!asm )(?<!asm__ )\bvolatile\b|\b__ldcv\b")
