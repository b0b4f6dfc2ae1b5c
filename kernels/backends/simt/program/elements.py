"""The elements that a variable of a program has, as its source declares them."""

from __future__ import annotations

import re
from functools import lru_cache

_SIZES = {
    1: r"(?:unsigned |signed )?char|bool|u?int8_t|uchar|(?:std::)?byte|__nv_fp8_e4m3|__nv_fp8_e5m2",
    2: r"(?:unsigned )?short(?: int)?|u?int16_t|ushort|(?:__)?half|(?:__)?nv_bfloat16",
    4: r"(?:unsigned |signed )?int|unsigned|float|u?int32_t|uint|(?:__)?half2|(?:__)?nv_bfloat162",
    8: r"(?:unsigned )?long(?: long)?(?: int)?|double|u?int64_t|(?:std::)?size_t|ptrdiff_t",
}
_VECTORS = {"char": 1, "short": 2, "int": 4, "float": 4, "long": 8, "longlong": 8, "double": 8}
_VECTOR = re.compile(r"u?(char|short|int|float|longlong|long|double)([1-4])")
_TYPE = "|".join([*_SIZES.values(), _VECTOR.pattern.replace("(", "(?:")])
_BETWEEN = (
    r"(?:\s|\*|const\b|__restrict__|restrict\b|volatile\b|\w+(?:\s*\[[^\]]*\])*(?:\s*=[^,;(){}]*)?,\s*(?=[*\w]))*"
)
"""Between a type and a variable: other variables of the same declaration."""
_ALIAS = re.compile(rf"\b(?:typedef\s+({_TYPE})\s+(\w+)\s*;|using\s+(\w+)\s*=\s*({_TYPE})\s*;)")
_OTHERS = re.compile(r"\b(?:struct|class|union|enum|typename|using)\s+(\w+)|\btypedef\b[^;]*?(\w+)\s*;")
_COMMENT = re.compile(r"//[^\n]*")


@lru_cache(maxsize=64)
def element_bytes(name: str, before: str, text: str, *, is_array: bool) -> int:
    """Bytes of an element by the last declaration of a variable, or by all, if they agree; 0: not known.

    name: as an allocating call has it, `x` or `a.x[2]`. before: what comes before the call; text: the whole program.
    is_array: the variable is the memory, and points to none.
    """
    last, *indices = re.split(r"\.|->", name)[-1].split("[")
    alike = {m[2] or m[3]: m[1] or m[4] for m in _ALIAS.finditer(text)}
    others = "|".join(sorted(alike.keys() | {m[1] or m[2] for m in _OTHERS.finditer(text)}, key=len, reverse=True))
    types = f"{_TYPE}|{others}" if others else _TYPE
    declared = re.compile(rf"\b({types})\b(?=[\s*]){_BETWEEN}(?<!\w){re.escape(last)}\s*([;,=)\[{{])")

    def sizes(where: str) -> list[int]:
        found = declared.finditer(_COMMENT.sub("", where))
        return [_bytes_of(m, alike.get(m[1], m[1]), len(indices), is_array=is_array) for m in found]

    if nearest := sizes(before):
        return nearest[-1]
    found = set(sizes(text))
    return found.pop() if len(found) == 1 else 0


def _bytes_of(declared: re.Match[str], word: str, indices: int, *, is_array: bool) -> int:
    depth = declared[0].rpartition(",")[2].count("*")
    is_pointer = depth > 0 if is_array else depth + (declared[2] == "[") - indices > 1
    if is_pointer:
        return 8
    vector = _VECTOR.fullmatch(word)
    if vector:
        return _VECTORS[vector[1]] * int(vector[2])
    return next((size for size, words in _SIZES.items() if re.fullmatch(words, word)), 0)
