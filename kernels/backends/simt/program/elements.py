"""The elements that a variable of a program has, as its source declares them."""

from __future__ import annotations

import re
from functools import lru_cache

_SIZES = {
    1: r"(?:unsigned |signed )?char|bool|u?int8_t|uchar",
    2: r"(?:unsigned )?short(?: int)?|u?int16_t|(?:__)?half|(?:__)?nv_bfloat16",
    4: r"(?:unsigned |signed )?int|unsigned|float|u?int32_t|uint|(?:__)?half2|(?:__)?nv_bfloat162|u?char4",
    8: r"(?:unsigned )?long(?: long)?(?: int)?|double|u?int64_t|size_t|u?int2|float2",
    12: r"u?int3|float3",
    16: r"u?int4|float4|double2",
}
_TYPE = "|".join(_SIZES.values())
_OTHERS = re.compile(r"\b(?:struct|class|union|enum|typename|using)\s+(\w+)|\btypedef\b[^;]*?(\w+)\s*;")
_BETWEEN = r"(?:[\s*]|const\b|__restrict__|restrict\b|\w+(?:\s*\[[^\]]*\])*(?:\s*=[^,;(){}]*)?,\s*(?=[*\w]))*"
"""Between a type and a variable: other variables of the same declaration."""


@lru_cache(maxsize=64)
def element_bytes(name: str, before: str, text: str, *, is_array: bool) -> int:
    """Bytes of an element by the last declaration of a variable, or by all, if they agree; 0: not known.

    name: as an allocating call has it, `x` or `a.x[2]`. before: what comes before the call; text: the whole program.
    is_array: the variable is the memory, and points to none.
    """
    last, *indices = re.split(r"\.|->", name)[-1].split("[")
    types = "|".join([_TYPE, *{m[1] or m[2] for m in _OTHERS.finditer(text)}])
    declared = re.compile(rf"\b({types})\b(?=[\s*]){_BETWEEN}(?<!\w){re.escape(last)}\s*([;,=)\[{{])")

    def sizes(where: str) -> list[int]:
        found = declared.finditer(re.sub(r"//[^\n]*", "", where))
        return [_bytes_of(m, len(indices), is_array=is_array) for m in found]

    found = sizes(before)[-1:] or sizes(text)
    return found[0] if len(set(found)) == 1 else 0


def _bytes_of(declared: re.Match[str], indices: int, *, is_array: bool) -> int:
    depth = declared[0].rpartition(",")[2].count("*")
    is_pointer = depth > 0 if is_array else depth + (declared[2] == "[") - indices > 1
    if is_pointer:
        return 8
    return next((size for size, words in _SIZES.items() if re.fullmatch(words, declared[1])), 0)
