"""Elements of arrays that a kernel's source takes by their names: an index that is too large is a bug there.

g++ reports every index beyond the extent of a type (-fsanitize=bounds-strict), and where it stands. Many of them do no
harm: `tile[0][i]` walks through all rows of `tile`, and `&tile[i]` is only an address. So a report counts only if one
of the brackets found here stands in its place; nothing else is sure: neither what a macro makes, for g++ places that
where the macro is used, nor what is indexed by another expression than a name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple


class Subscript(NamedTuple):
    """A name with an index behind it; runtime.h has the same.

    Lines and columns count from 1, columns in bytes, as g++ does: it means the opening bracket in templates, and the
    closing one elsewhere.
    """

    file: str
    """Without folders."""
    name: str
    line: int
    column: int
    closing_line: int
    closing_column: int
    further: int
    """Subscripts that follow at once: an array of two dimensions with one of them is no access yet."""


class _Token(NamedTuple):
    text: str
    line: int
    column: int


_TOKEN = re.compile(
    rb"""//[^\n]* | /\*.*?\*/                           # comments
    | R"(?P<end>[^()\\\s]*)\(.*?\)(?P=end)"             # strings and characters
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | \.?\d(?:[eEpP][+-]|'?[\w.])*                      # numbers
    | \w+ | -> | :: | && | &= | [^\s]""",
    re.DOTALL | re.VERBOSE,
)
_MEMBER = (".", "->", "::")


def subscripts(sources: Mapping[str, str], watched: Collection[str] = ()) -> list[Subscript]:
    """Those of all sources, by the names of their files. watched: variables of which every access is judged anyway."""
    return [found for file, text in sources.items() for found in _of_source(file, text, watched)]


def _of_source(file: str, text: str, watched: Collection[str]) -> Iterator[Subscript]:
    tokens = list(_tokens(text.encode()))
    closings = _closings(tokens)
    unsure = {*watched, *_references(tokens, closings)}
    for opening, closing in closings.items():
        name = tokens[opening - 1].text if opening else ""
        is_unsure = name in unsure and tokens[max(opening - 2, 0)].text not in (".", "->")
        if not _is_name(name) or is_unsure or _has_address_taken(tokens, opening - 1):
            continue
        begin, end = tokens[opening], tokens[closing]
        yield Subscript(file, name, *begin[1:], *end[1:], _further(closing, closings))


def _tokens(text: bytes) -> Iterator[_Token]:
    line, begin, seen = 1, 0, 0
    for match in _TOKEN.finditer(text):
        if lines := text.count(b"\n", seen, match.start()):
            line, begin = line + lines, text.rindex(b"\n", seen, match.start()) + 1
        seen = match.start()
        if not match[0].startswith((b"//", b"/*")):
            yield _Token(match[0].decode("utf-8", "replace"), line, match.start() - begin + 1)


def _closings(tokens: list[_Token]) -> dict[int, int]:
    """The closing bracket of each opening one, by their numbers."""
    found, waiting = {}, []
    for number, token in enumerate(tokens):
        if token.text == "[":
            waiting.append(number)
        elif token.text == "]" and waiting:
            found[waiting.pop()] = number
        elif token.text in ("{", "}", ";"):  # brackets of two branches of the preprocessor need not match
            waiting.clear()
    return found


def _references(tokens: list[_Token], closings: Mapping[int, int]) -> Iterator[str]:
    """Variables that may be rows: `auto& row = tile[0]`, `float (&row)[4] = tile[0]`, `auto& row : tile`."""
    for at in range(len(tokens) - 2):
        after = at + 2
        if tokens[at].text != "&" or not _is_name(tokens[at + 1].text):
            continue
        if tokens[after].text == ")" and after + 1 in closings:
            after = min(closings[after + 1] + 1, len(tokens) - 1)
        if tokens[after].text in ("=", ":"):
            yield tokens[at + 1].text


def _further(closing: int, closings: Mapping[int, int]) -> int:
    count = 0
    while closing + 1 in closings:
        closing, count = closings[closing + 1], count + 1
    return count


def _is_name(text: str) -> bool:
    return bool(re.match(r"[^\W\d]\w*$", text))


def _has_address_taken(tokens: list[_Token], at: int) -> bool:
    """Whether `&` stands before the whole of what ends with a name, as before `a.b[1].c`."""
    begin = _begin(tokens, at)
    if begin < 1 or tokens[begin - 1].text != "&":
        return False
    before = tokens[begin - 2].text if begin > 1 else ""
    is_value = (_is_name(before) and before != "return") or before[:1].isdigit() or before == "]"
    return not is_value  # of `)` nobody knows whether a cast ends there


def _begin(tokens: list[_Token], at: int) -> int:
    while True:
        if tokens[at].text in ("]", ")"):
            at = _opening(tokens, at)
            if at and (_is_name(tokens[at - 1].text) or tokens[at - 1].text in ("]", ")")):
                at -= 1
                continue
        if at < 2 or tokens[at - 1].text not in _MEMBER:
            return at
        at -= 2


def _opening(tokens: list[_Token], closing: int) -> int:
    depth = 0
    for at in range(closing, -1, -1):
        depth += (tokens[at].text in ("]", ")")) - (tokens[at].text in ("[", "("))
        if not depth:
            return at
    return 0
