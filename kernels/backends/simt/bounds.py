"""`__launch_bounds__` of a kernel, told in its first statement: there the compiler knows what the bound is.

`__global__ void __launch_bounds__(N) k(int* x) {` becomes `... { ::simt::launch_bounds(N);`. A bound is ignored where
its words may mean something else in the body, where the preprocessor chooses between bounds, and in a declaration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from kernel_assay.kernels.backends.simt.assembly import Token, tokens_of

_WORD = "__launch_bounds__"
_ENDS = frozenset(";{}#")
_ATTRIBUTES = frozenset((_WORD, "__attribute__", "__cluster_dims__", "__maxnreg__", "__align__", "alignas"))


def with_bounds(text: str) -> str:
    """Let kernels that are defined with a bound begin with it; lines stay where they are."""
    if _WORD not in text:
        return text
    for at, statement in sorted(_statements(text, tokens_of(text)), reverse=True):
        text = f"{text[:at]}{statement}{text[at:]}"
    return text


def _statements(text: str, tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    for number, token in enumerate(tokens[:-1]):
        if token.text == _WORD and tokens[number + 1].text == "(":
            first, opening = _first(tokens, number), _parameters(tokens, number)
            body = _closing(tokens, opening) + 1
            words = [t.text for t in tokens[first:body]]
            if "__global__" not in words or "#" in words or not _begins(text, tokens, first, body):
                continue
            bound = tokens[number + 2 : _closing(tokens, number + 1)]
            if bound and not {t.text for t in bound} & _names(tokens[opening:body]):
                words = [" " * (t.begin > before.end) + t.text for before, t in pairwise(bound)]
                yield tokens[body].end, f" ::simt::launch_bounds({bound[0].text}{''.join(words)});"


def _first(tokens: Sequence[Token], at: int) -> int:
    """The first token of what is declared, or of what a directive says of it."""
    while at and tokens[at - 1].text not in _ENDS and tokens[at].text != "__global__":
        at -= 1
    return at


def _parameters(tokens: Sequence[Token], at: int) -> int:
    """The bracket that opens the parameters; the last token if there are none."""
    while at < len(tokens) - 1 and tokens[at].text not in _ENDS:
        if tokens[at + 1].text == "(":
            if tokens[at].text not in _ATTRIBUTES:
                return at + 1
            at = _closing(tokens, at + 1)
        else:
            at += 1
    return len(tokens) - 1


def _closing(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].text == "(") - (tokens[at].text == ")")
        if not depth:
            return at
    return len(tokens) - 1


def _begins(text: str, tokens: Sequence[Token], first: int, body: int) -> bool:
    """Whether a body stands there, and a directive that the declaration begins in goes on until there."""
    if body >= len(tokens) or tokens[body].text != "{":
        return False
    begin = tokens[first].begin
    line = text.rfind("\n", 0, begin) + 1
    while text[: line - 1].endswith("\\"):
        line = text.rfind("\n", 0, line - 1) + 1
    inside = text[begin : tokens[body].begin].replace("\\\n", "")
    return not (text[line:begin].lstrip().startswith("#") and "\n" in inside)


def _names(parameters: Sequence[Token]) -> set[str]:
    """Words that may be the names of parameters."""
    return {t.text for t, after in pairwise(parameters) if after.text in {",", ")", "=", "["}}
