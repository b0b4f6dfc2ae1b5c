"""The text of a CUDA program's file as g++ takes it: launches become calls; lines stay where they are.

`k<<<grid, block>>>(x)` becomes `simt::kernel(k, "k").on(grid, block)(x)`: arguments are converted to the types of the
kernel's parameters. Templates, overloads and kernels with default arguments are called by a lambda instead, for their
parameters are known only where they are called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_TOKEN = re.compile(
    r"""//(?:\\\n|[^\n])* | /\*.*?\*/ | \\\n              # comments, and lines that go on
    | R"(?P<end>[^()\\\s]*)\(.*?\)(?P=end)"              # strings and characters
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | <<\s*< | >>> | :: | -> | \.?\d(?:[eEpP][+-]|'?[\w.])* | \w+ | [^\s]""",
    re.DOTALL | re.VERBOSE,
)
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_ATTRIBUTES = frozenset(
    ("__launch_bounds__", "__attribute__", "__cluster_dims__", "__maxnreg__", "__align__", "alignas", "decltype")
)
_CAST = re.compile(
    r"\b(cudaLaunch(?:Cooperative)?Kernel\s*\(\s*)"
    r"(?:\(\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*\)|reinterpret_cast\s*<\s*(?:const\s+)?void\s*\*\s*>)"
)
_PRAGMA = re.compile(r"^([ \t]*#[ \t]*define[ \t]+\w+[ \t]+)#[ \t]*pragma[ \t]+([^\n\"]*)$", re.MULTILINE)
"""A macro that stands for a directive, which nvcc takes."""
_QUALIFIERS = {"__constant__": "constant", "__managed__": "managed", "__device__": "variable"}


class _Token(NamedTuple):
    text: str
    begin: int
    end: int


class Variable(NamedTuple):
    """A variable of the device: its kind (variable, constant or managed) and the line it is declared in."""

    name: str
    kind: str
    line: int


def _tokens(text: str) -> list[_Token]:
    found = (_Token("<<<" if m[0][:2] == "<<" else m[0], m.start(), m.end()) for m in _TOKEN.finditer(text))
    return [t for t in found if not t.text.startswith(("//", "/*", "\\\n"))]


def _is_name(text: str) -> bool:
    return text[:1].isidentifier()


def _closing(tokens: list[_Token], opening: int) -> int:
    """The bracket that closes one; the last token if none does."""
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].text in _OPEN) - (tokens[at].text in _CLOSE)
        if not depth:
            return at
    return len(tokens) - 1


def _opening(tokens: list[_Token], closing: int) -> int:
    depth = 0
    for at in range(closing, -1, -1):
        depth += (tokens[at].text in _CLOSE) - (tokens[at].text in _OPEN)
        if not depth:
            return at
    return 0


def _template_opening(tokens: list[_Token], closing: int) -> int:
    """The `<` of template arguments, from their last `>`."""
    depth, at = 0, closing
    while at > 0:
        text = tokens[at].text
        if text in _CLOSE:
            at = _opening(tokens, at)
        elif set(text) == {">"}:
            depth += len(text)
        elif text == "<":
            depth -= 1
        if depth <= 0:
            return at
        at -= 1
    return 0


def _callee(tokens: list[_Token], at: int) -> int:
    """The first token of what is launched, from its last one."""
    while at > 0:
        text = tokens[at].text
        if set(text) == {">"}:
            at = _template_opening(tokens, at) - 1
        elif text in _CLOSE:
            at = _opening(tokens, at)
            if at and (_is_name(tokens[at - 1].text) or tokens[at - 1].text in ")]"):
                at -= 1
                continue
        before = tokens[at - 1].text if at else ""
        if before == "template":
            at, before = at - 1, tokens[at - 2].text
        if before not in {"::", ".", "->"}:
            return at
        is_global = at < 2 or not (_is_name(tokens[at - 2].text) or tokens[at - 2].text in {")", "]", ">"})
        if is_global:
            return at - 1
        at -= 2
    return at


def plain_kernels(texts: Iterable[str]) -> dict[str, str]:
    """Kernels that are one function each, and the name to take: no template, no overload, no default argument.

    Those outside of namespaces are named from there: std may have functions that are called the same.
    """
    known: dict[str, set[int]] = {}
    names: dict[str, str] = {}
    for text in texts:
        for name, parameters, depth in _kernels(_tokens(text)):
            known.setdefault(name, set()).add(parameters)
            names[name] = name if depth or names.get(name) == name else f"::{name}"
    return {name: names[name] for name, counts in known.items() if len(counts) == 1 and counts != {-1}}


def kernel_parameters(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Names of the parameters of each kernel that is defined once; empty where one has none."""
    known: dict[str, set[tuple[str, ...]]] = {}
    for text in texts:
        tokens = _tokens(text)
        for number in (n for n, token in enumerate(tokens) if token.text == "__global__"):
            opening = _parameters(tokens, number)
            closing = _closing(tokens, opening)
            if closing + 1 < len(tokens) and tokens[closing + 1].text == "{":
                inside = tuple(map(_name_of, _parted([t.text for t in tokens[opening + 1 : closing]])))
                known.setdefault(tokens[opening - 1].text, set()).add(inside)
    return {name: next(iter(found)) for name, found in known.items() if len(found) == 1}


def _parted(words: list[str]) -> list[list[str]]:
    """Make parts of what stands between brackets, at its commas."""
    parts, depth = [list[str]()], 0
    for word in words:
        depth += (word in {*_OPEN, "<"}) - (word in _CLOSE) - (len(word) if set(word) == {">"} else 0)
        if word == "," and not depth:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _name_of(parameter: list[str]) -> str:
    """The name of a parameter, which stands last but for brackets and a default."""
    words = parameter[: next((n for n, word in enumerate(parameter) if word in {"[", "="}), None)]
    return words[-1] if len(words) > 1 and _is_name(words[-1]) and words[-1] not in _NO_NAMES else ""


_NO_NAMES = frozenset(("const", "volatile", "restrict", "__restrict__", "__restrict"))


def _kernels(tokens: list[_Token]) -> Iterator[tuple[str, int, int]]:
    """Names of kernels, how many parameters they have (-1: a pointer to it tells not all of it), braces around them."""
    depth = 0
    for number, token in enumerate(tokens):
        depth += (token.text == "{") - (token.text == "}")
        if token.text != "__global__":
            continue
        opening = _parameters(tokens, number)
        inside = [t.text for t in tokens[opening + 1 : _closing(tokens, opening)]]
        before = number
        while before and tokens[before - 1].text not in {";", "}", "{"}:
            before -= 1
        is_template = any(t.text == "template" for t in tokens[before:number])
        unclear = is_template or "=" in inside
        yield tokens[opening - 1].text, -1 if unclear else inside.count(",") + bool(inside), depth


def _parameters(tokens: list[_Token], at: int) -> int:
    """The bracket that opens a function's parameters, from its first word on."""
    while at < len(tokens) - 1:
        at += 1
        if tokens[at].text == "(":
            if tokens[at - 1].text not in _ATTRIBUTES:
                return at
            at = _closing(tokens, at)
    return at


def rewrite_launches(text: str, plain: Mapping[str, str]) -> str:
    """Make calls of launches."""
    text = _CAST.sub(lambda m: m[1] + "\n" * m[0].count("\n", len(m[1])), text)
    text = _PRAGMA.sub(r'\1_Pragma("\2")', text)
    if "<<" not in text:
        return text
    tokens, edits = _tokens(text), list[tuple[int, int, str]]()
    for number, token in enumerate(tokens):
        if token.text != "<<<" or not number:
            continue
        opening, end = _configuration_end(tokens, number)
        first = _callee(tokens, number - 1)
        if not end or end + 1 >= len(tokens) or tokens[end + 1].text != "(":
            continue
        callee = tokens[first:number]
        name = "".join(t.text for t in callee).replace("\\", "\\\\").replace('"', '\\"')
        is_plain = callee[-1].text in plain and all(_is_name(t.text) or t.text == "::" for t in callee)
        begin, middle = _CALLS[is_plain]
        prefix = "::" * (is_plain and len(callee) == 1 and plain[name].startswith("::"))
        edits.append((tokens[first].begin, tokens[first].begin, begin + prefix))
        edits.append((token.begin, token.end, middle.format(name=name)))
        edits.append((tokens[opening].begin, tokens[end].end, ")"))
    for start, stop, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[stop:]
    return text


_CALLS = {
    True: ("::simt::kernel(", ', "{name}").on('),
    False: (
        "::simt::kernel_template([&](auto&&... simt_a) SIMT_UNSEEN {{ ".replace("{{", "{"),
        '(simt_a...); }}, "{name}").on(',
    ),
}


def _configuration_end(tokens: list[_Token], opening: int) -> tuple[int, int]:
    """The first and last token of a launch's `>>>`; nvcc takes `>> >`, too, which some editors make of it. 0: none."""
    depth, split = 0, tokens[opening].end - tokens[opening].begin > len("<<<")
    for at in range(opening + 1, len(tokens)):
        text = tokens[at].text
        if text == ">>>" and not depth:
            return at, at
        if split and not depth and [t.text for t in tokens[at : at + 4]] == [">", ">", ">", "("]:
            return at, at + 2
        depth += (text in _OPEN) - (text in _CLOSE)
        if depth < 0 or text == ";":
            return 0, 0
    return 0, 0


_ALIAS = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+[^\n]*?(__(?:device|constant|managed)__)", re.MULTILINE)


def variables(text: str) -> list[Variable]:
    """Variables of the device that a file declares, also by macros of its own that stand for a qualifier."""
    kinds = {**_QUALIFIERS, **{m[1]: _QUALIFIERS[m[2]] for m in _ALIAS.finditer(text)}}
    tokens, found = _tokens(text), list[Variable]()
    for number, token in enumerate(tokens):
        if token.text in kinds and (not number or tokens[number - 1].text not in {*kinds, "define"}):
            found += _declared(text, tokens, number, kinds)
    return found


def device_functions(texts: Iterable[str]) -> set[str]:
    """Names of functions that are declared `__device__`, members among them."""
    found = set[str]()
    for tokens in map(_tokens, texts):
        for number in (n for n, token in enumerate(tokens) if token.text == "__device__"):
            at = _parameters(tokens, number)
            if _is_name(tokens[at - 1].text) and not {t.text for t in tokens[number:at]} & {";", "=", "{", "[", "("}:
                found.add(tokens[at - 1].text)
    return found - {"__device__"}


def _declared(text: str, tokens: list[_Token], at: int, kinds: Mapping[str, str]) -> Iterator[Variable]:
    kind, names = kinds[tokens[at].text], list[int]()
    while at < len(tokens) - 1:
        at += 1
        word, before = tokens[at].text, tokens[at - 1].text
        if word in kinds:
            kind = min(kind, kinds[word])  # constant, or managed, says more than variable
        if word == "(" and before in _ATTRIBUTES:
            at = _closing(tokens, at)
        elif word in {"(", "operator", "__global__", "#"}:
            return
        elif word == "<":
            at = _template_closing(tokens, at)
        elif word in {"[", "=", ";", "{", ","}:
            if not _is_name(before):
                return
            names.append(at - 1)
            at = _declarator_end(tokens, at)
            if tokens[at].text != ",":
                break
    for name in names:
        yield Variable(tokens[name].text, kind, text.count("\n", 0, tokens[name].begin) + 1)


def _declarator_end(tokens: list[_Token], at: int) -> int:
    """The comma or semicolon behind a declarator."""
    while at < len(tokens) - 1 and tokens[at].text not in {",", ";"}:
        at = _closing(tokens, at) + 1 if tokens[at].text in _OPEN else at + 1
    return min(at, len(tokens) - 1)


def _template_closing(tokens: list[_Token], at: int) -> int:
    depth = 0
    while at < len(tokens) - 1:
        text = tokens[at].text
        depth += (text == "<") - (len(text) if set(text) == {">"} else 0)
        if depth <= 0:
            return at
        at += 1
    return at
