"""Inline PTX in a source, as calls that the emulator interprets (assembly.h, ptx/); lines stay where they are.

`asm volatile("add.u32 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b) : "memory");` becomes
`SIMT_ASM(("add.u32 %0, %1, %2;") ,simt::asm_output("=r",(c)) ,simt::asm_input("r",(a)) ,simt::asm_input("r",(b)) );`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_TOKEN = re.compile(
    r"""//(?:\\\n|[^\n])* | /\*.*?\*/ | \\\n              # comments, and lines that go on
    | R"(?P<end>[^()\\\s]*)\(.*?\)(?P=end)"              # strings and characters
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | \.?\d(?:[eEpP][+-]|'?[\w.])* | \w+ | [^\s]""",
    re.DOTALL | re.VERBOSE,
)
_WORD = re.compile(r"\b(?:asm|__asm__|__asm)\b")
_QUALIFIERS = frozenset(("volatile", "__volatile__", "__volatile", "inline"))
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


class Token(NamedTuple):
    """A word, number, string or sign of a source, and where it stands."""

    text: str
    begin: int
    end: int


class _Edit(NamedTuple):
    begin: int
    end: int
    text: str


def without_assembly(text: str) -> str:
    """Make calls of asm statements."""
    if not _WORD.search(text):
        return text
    for edit in sorted(_edits(tokens_of(text)), reverse=True):
        text = f"{text[: edit.begin]}{edit.text}{text[edit.end :]}"
    return text


def tokens_of(text: str) -> list[Token]:
    """All of a source but its comments."""
    return [Token(m[0], *m.span()) for m in _TOKEN.finditer(text) if not m[0].startswith(("//", "/*", "\\\n"))]


def _edits(tokens: Sequence[Token]) -> Iterator[_Edit]:
    at = 0
    while at < len(tokens):
        if _WORD.fullmatch(tokens[at].text):
            opening = at + 1
            while opening < len(tokens) and tokens[opening].text in _QUALIFIERS:
                opening += 1
            if opening < len(tokens) and tokens[opening].text == "(":
                yield _Edit(tokens[at].begin, tokens[at].end, "SIMT_ASM")
                yield from (_Edit(t.begin, t.end, "") for t in tokens[at + 1 : opening])
                yield from _statement(tokens, opening)
        at += 1


def _statement(tokens: Sequence[Token], opening: int) -> Iterator[_Edit]:
    """Edit what stands in an asm statement's brackets: its text, outputs, inputs and clobbers, with colons between."""
    yield _Edit(*tokens[opening][1:], "((")
    depth, section, first = 1, 0, opening + 1
    for at in range(opening + 1, len(tokens)):
        token = tokens[at]
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if depth > 1 or (depth == 1 and token.text not in {":", ","}):
            continue
        if section:
            yield from _operand(tokens[first:at], section)
        if not depth:
            yield _Edit(token.begin, token.end, ")" if section else "))")
            return
        if section or token.text == ":":
            yield _Edit(token.begin, token.end, " " if section else ")")
        section, first = section + (token.text == ":"), at + 1


def _operand(tokens: Sequence[Token], section: int) -> Iterator[_Edit]:
    """Edit one: `"=r"(x)` becomes `,simt::asm_output("=r",(x))`; what is clobbered goes."""
    if section > _CLOBBERS - 1:
        yield from (_Edit(t.begin, t.end, "") for t in tokens)
    elif tokens:
        opening = next((n for n, t in enumerate(tokens) if t.text == "("), 0)
        call = "simt::asm_output(" if section == 1 else "simt::asm_input("
        yield _Edit(tokens[0].begin, tokens[0].begin, f",{call}")
        yield _Edit(tokens[opening].begin, tokens[opening].begin, ",")
        yield _Edit(tokens[-1].end, tokens[-1].end, ")")


_CLOBBERS = 3
"""The section of what is clobbered."""
