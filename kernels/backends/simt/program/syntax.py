"""The text of a CUDA program's file as g++ takes it: launches become calls; lines stay where they are.

As under nvcc a launch is an ordinary call of a function that takes the kernel's parameters, and C++ says what that
means: which overload, which template arguments, which conversions. `k<<<grid, block>>>(x)` becomes
`(simt_launch(SIMT_NAME(k), grid, block), k(x), simt_run())`, and `__global__ void k(int* x) { BODY }` becomes
`__global__ void k(int* x) { simt_kernel([](int* x) -> void { BODY }, x); }`, which only notes the body and the values
of the parameters. `simt_run` then runs the body in each thread.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
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


def _template_opening(tokens: list[_Token], closing: int, kernels: Collection[str]) -> int:
    """The `<` of template arguments, from their last `>`.

    As only a compiler knows what a name before `<` is, one may be less than something: a kernel's `<` further out in
    the statement is the one then.
    """
    depth, at, found = 0, closing, 0
    while at > 0 and tokens[at].text not in {*_OPEN, ";", "<<<"}:
        text, before = tokens[at].text, tokens[at - 1]
        if text in _CLOSE:
            at = _opening(tokens, at)
        elif set(text) == {">"}:
            depth += len(text) if text + tokens[at + 1].text != ">=" else 0
        elif text == "<" and before.text == "<" and before.end == tokens[at].begin:
            at -= 1  # of a shift
        elif text == "<" and depth > 1:
            depth -= 1
        elif text == "<" and _is_name(before.text):
            found = found or at
            if before.text in kernels:
                return at
        at -= 1
    return found or closing


_NO_CALLEES = frozenset(("return", "else", "do", "if", "while", "for", "switch"))


def _is_called(tokens: list[_Token], opening: int) -> bool:
    """Whether brackets that are launched, or stand before what is, are arguments or subscripts of what is before."""
    before = tokens[opening - 1].text if opening else ""
    if before == ")":
        return tokens[_opening(tokens, opening - 1) - 1].text not in _NO_CALLEES
    return before in {"]", ">"} or (_is_name(before) and before not in _NO_CALLEES)


def _callee(tokens: list[_Token], at: int, kernels: Collection[str]) -> int:
    """The first token of what is launched, from its last one."""
    while at > 0:
        text = tokens[at].text
        if set(text) == {">"}:
            at = _template_opening(tokens, at, kernels) - 1
        elif text in _CLOSE:
            at = _opening(tokens, at)
            if _is_called(tokens, at):
                at -= 1
                continue
        before = tokens[at - 1].text if at else ""
        if before == "#" == tokens[at - 2].text:  # the words are pasted together
            at -= 3
            continue
        if before == "template":
            at, before = at - 1, tokens[at - 2].text
        if before not in {"::", ".", "->"}:
            return at
        is_global = at < 2 or not (_is_name(tokens[at - 2].text) or tokens[at - 2].text in {")", "]", ">"})
        if is_global:
            return at - 1
        at -= 2
    return at


class Known(NamedTuple):
    """What the files of a program say together of its kernels."""

    words: frozenset[str]
    """`__global__`, and macros that stand for it."""
    bounds: Mapping[str, tuple[list[str], list[str]]]
    """Macros that stand for launch bounds: their parameters, and the bounds."""
    macros: frozenset[str]
    """All macros."""
    outer: frozenset[str]
    """Kernels to name from outside of namespaces: std, which is used, may have functions that are called the same."""
    kernels: frozenset[str]
    """All kernels."""
    configurations: Mapping[str, tuple[list[str], str]]
    """Macros that stand for `<<<...>>>`, or for `kernel<<<...>>>`: their parameters, and what they stand for."""


_OF_DIRECTIVES = frozenset(("define", "undef", "ifdef", "ifndef"))
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\(([^()\n]*)\))?((?:\\\n|[^\n])*)", re.MULTILINE)
_BOUNDS = "__launch_bounds__"


def known_of(texts: Collection[str]) -> Known:
    """Read what the files of a program say of its kernels."""
    found = [m for text in texts for m in _DEFINE.finditer(text)]
    defined = [(m[1], re.findall(r"\w+", (m[2] or "").replace("...", "__VA_ARGS__")), _tokens(m[3])) for m in found]
    macros = {name: (its, body) for name, its, body in defined}
    heads = {name: {t.text for t in body} for name, (_, body) in macros.items()}
    words = {"__global__"}
    while more := {name for name, its in heads.items() if its & words and not its & {"{", ";"}} - words:
        words |= more
    bounds: dict[str, tuple[list[str], list[str]]] = {}
    for _ in range(4):  # macros that stand for macros
        bounded = {
            name: (its, _bounds_in(body, bounds)) for name, (its, body) in macros.items() if "{" not in heads[name]
        }
        bounds = {name: it for name, it in bounded.items() if it[1]}
    outer, inner = _kernels_of(texts, words)
    alone = outer - inner if any("using namespace" in text for text in texts) else frozenset[str]()
    launching = [it for it in defined if it[2] and it[2][-1].text == ">>>" and "<<<" in {t.text for t in it[2]}]
    configurations = {name: (its, _joined(body)) for name, its, body in launching}
    return Known(frozenset(words), bounds, frozenset(macros), alone, outer | inner, configurations)


def _bounds_in(tokens: list[_Token], bounds: Mapping[str, tuple[list[str], list[str]]]) -> list[str]:
    """The words of launch bounds; none if there are none. bounds: macros that stand for some."""
    at = next((n for n, t in enumerate(tokens) if t.text == _BOUNDS or t.text in bounds), None)
    if at is None:
        return []
    given = [t.text for t in tokens[at + 2 : _closing(tokens, at + 1)]]
    if tokens[at].text == _BOUNDS:
        return given
    parameters, words = bounds[tokens[at].text]
    values = dict(zip(parameters, map(" ".join, _parted(given)), strict=False))
    return [values.get(word, word) for word in words]


def _kernels_of(texts: Iterable[str], words: set[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Names of kernels outside of braces, and within."""
    found: tuple[set[str], set[str]] = (set(), set())
    for tokens in map(_tokens, texts):
        for number, depth in _depths(tokens, 0):
            if tokens[number].text in words:
                found[depth > 0].add(tokens[_parameters(tokens, number) - 1].text)
    return frozenset(found[0]), frozenset(found[1])


def kernel_parameters(texts: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Names of the parameters of each kernel that is defined once; empty where one has none."""
    known, words = dict[str, set[tuple[str, ...]]](), known_of(texts).words
    for text in texts:
        tokens = _tokens(text)
        for _, opening, closing, _ in _definitions(text, tokens, words):
            inside = tuple(map(_name_of, _parted([t.text for t in tokens[opening + 1 : closing]])))
            known.setdefault(tokens[opening - 1].text, set()).add(inside)
    return {name: next(iter(found)) for name, found in known.items() if len(found) == 1}


class _Definition(NamedTuple):
    """Tokens of a kernel's definition: its first, the brackets of its parameters, the brace of its body."""

    first: int
    opening: int
    closing: int
    brace: int


def _definitions(text: str, tokens: list[_Token], words: frozenset[str]) -> Iterator[_Definition]:
    directives = [m.span() for m in _DEFINE.finditer(text)]
    for number, token in enumerate(tokens):
        if token.text in words and tokens[number - 1].text not in _OF_DIRECTIVES:
            end = next((end for begin, end in directives if begin <= token.begin < end), len(text))
            if found := _definition(tokens, number, words, end):
                yield found


def _definition(tokens: list[_Token], first: int, words: frozenset[str], end: int) -> _Definition | None:
    """The definition that a word of a kernel begins, if one begins before the end."""
    at, opening, closing = first, 0, 0
    while at < len(tokens) - 1 and tokens[at + 1].begin < end:
        at += 1
        word = tokens[at].text
        if word == "(":
            after = _closing(tokens, at)
            if tokens[at - 1].text not in _ATTRIBUTES:
                opening, closing = at, after
            at = after
        elif word == "{" and opening:
            return _Definition(first, opening, closing, at)
        elif word in words or word in {";", "{", "}"}:
            break
    return None


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
    """The name of a parameter, which stands last, behind a type, but for brackets and a default."""
    words = parameter[: next((n for n, word in enumerate(parameter) if word in {"[", "="}), None)]
    kind = [word for word in words[:-1] if word not in _NO_TYPES]
    return words[-1] if kind and kind[-1] != "::" and _is_name(words[-1]) and words[-1] not in _NO_NAMES else ""


_NO_TYPES = frozenset(("const", "volatile", "restrict", "__restrict__", "__restrict", "typename", "struct", "enum"))
_NO_NAMES = _NO_TYPES | {"int", "float", "double", "char", "short", "long", "unsigned", "signed", "bool"}


def _parameters(tokens: list[_Token], at: int) -> int:
    """The bracket that opens a function's parameters, from its first word on."""
    while at < len(tokens) - 1:
        at += 1
        if tokens[at].text == "(":
            if tokens[at - 1].text not in _ATTRIBUTES:
                return at
            at = _closing(tokens, at)
    return at


_Edit = tuple[int, int, str]
"""Begin, end, and the text to put there."""


def rewrite_launches(text: str, known: Known) -> str:
    """Make calls of launches, and let kernels note their launch."""
    text = _CAST.sub(lambda m: m[1] + "\n" * m[0].count("\n", len(m[1])), text)
    text = _with_configurations(_PRAGMA.sub(r'\1_Pragma("\2")', text), known.configurations)
    tokens = _tokens(text)
    for begin, end, new in sorted((*_launches(text, tokens, known), *_kernels(text, tokens, known)), reverse=True):
        text = f"{text[:begin]}{new}{text[end:]}"
    return text


def _with_configurations(text: str, macros: Mapping[str, tuple[list[str], str]]) -> str:
    """Expand macros that stand for `<<<...>>>`, and so for no expression."""
    tokens = _tokens(text) if any(name in text for name in macros) else []
    for number in range(len(tokens) - 2, 0, -1):
        (parameters, stands), last = macros.get(tokens[number].text, ([], "")), number
        is_used = stands and tokens[number - 1].text not in _OF_DIRECTIVES
        if not is_used or (parameters and tokens[number + 1].text != "("):
            continue
        if parameters:
            last = _closing(tokens, number + 1)
            inside = text[tokens[number + 1].end : tokens[last].begin]
            given = dict(zip(parameters, _arguments(inside, len(parameters)), strict=False))
            stands = "".join(given.get(word, word) for word in re.split(r"\s*##\s*|\b", stands))
        text = f"{text[: tokens[number].begin]}{stands}{text[tokens[last].end :]}"
    return text


def _arguments(inside: str, most: int) -> list[str]:
    """Arguments of a macro; the last takes what is left."""
    tokens = _tokens(inside)
    depths = accumulate((t.text == "(") - (t.text == ")") for t in tokens)
    commas = [t for t, depth in zip(tokens, depths, strict=True) if t.text == "," and not depth][: most - 1]
    edges = [(0, 0), *((t.begin, t.end) for t in commas), (len(inside), 0)]
    return [inside[begin:end] for (_, begin), (end, _) in pairwise(edges)]


def _launches(text: str, tokens: list[_Token], known: Known) -> Iterator[_Edit]:
    for number, token in enumerate(tokens):
        if token.text != "<<<" or not number:
            continue
        opening, end = _configuration_end(tokens, number)
        if not end or end + 1 >= len(tokens) or tokens[end + 1].text != "(":
            continue
        callee = tokens[_callee(tokens, number - 1, known.kernels) : number]
        is_outer = callee[0].text in known.outer and (len(callee) == 1 or callee[1].text == "<")
        how, what = text[token.end : tokens[opening].begin], text[callee[0].begin : token.begin]
        call = f"(::simt_launch(SIMT_NAME({_joined(callee)}), {how}), {'::' * is_outer}{what}"
        yield (callee[0].begin, tokens[end].end, call)
        arguments = tokens[_closing(tokens, end + 1)].end
        yield (arguments, arguments, ", ::simt_run())")


def _kernels(text: str, tokens: list[_Token], known: Known) -> Iterator[_Edit]:
    for first, opening, closing, brace in _definitions(text, tokens, known.words):
        end, inside = _body_end(tokens, brace), tokens[opening + 1 : closing]
        words = [t.text for t in inside]
        parameters = [] if words in ([], ["void"]) else _parted(words)
        names = [_name_of(its) for its in parameters]
        bounds, begin, behind = _bounded(tokens[first:opening], names, known.bounds), "::simt_kernel(", ""
        if all(names) and "#" not in words and not known.macros.intersection(names):
            begin += f"[]({_joined(inside)}) -> void {{"
            behind = "".join(f", {name}" for name in map(_with_pack, parameters, names))
        else:  # some parameter has no name, or is chosen by the preprocessor
            begin = f"if (::simt_is_asked()) return; {begin}[=]() mutable -> void {{"
        yield (tokens[brace].end, tokens[brace].end, f" {bounds}{begin}")
        yield (tokens[end].begin, tokens[end].begin, f"}}{behind}); ")
        name = tokens[opening - 1].text
        named = [t for t in tokens[brace:end] if t.text in {"__func__", "__FUNCTION__"} and _is_name(name)]
        yield from ((t.begin, t.end, f'"{name}"') for t in named)


def _with_pack(parameter: list[str], name: str) -> str:
    at = parameter.index(name)
    return f"{name}..." if parameter[max(at - 3, 0) : at] == ["."] * 3 else name


def _joined(tokens: Sequence[_Token]) -> str:
    words = [" " * (t.begin > before.end) + t.text for before, t in pairwise(tokens)]
    return "".join((*(t.text for t in tokens[:1]), *words))


def _bounded(head: list[_Token], names: Sequence[str], bounds: Mapping[str, tuple[list[str], list[str]]]) -> str:
    """The statement that tells a kernel's launch bounds, if a macro in its head stands for them (else bounds.py's)."""
    words = [] if {"#", _BOUNDS} & {t.text for t in head} else _bounds_in(head, bounds)
    return f"::simt::launch_bounds({' '.join(words)}); " if words and not set(names) & set(words) else ""


def _body_end(tokens: list[_Token], opening: int) -> int:
    """The brace that closes one; the last token if none does."""
    return next((at for at, depth in _depths(tokens, opening) if not depth), len(tokens) - 1)


def _depths(tokens: list[_Token], begin: int) -> Iterator[tuple[int, int]]:
    """Each token, and how many braces are open behind it; of what directives choose between, the first counts."""
    depth, before = 0, list[int]()
    for at in range(begin, len(tokens)):
        depth += (tokens[at].text == "{") - (tokens[at].text == "}")
        directive = tokens[at + 1].text if tokens[at].text == "#" and at + 1 < len(tokens) else ""
        if directive.startswith("if"):
            before.append(depth)
        elif directive.startswith("el") and before:
            depth = before[-1]
        elif directive == "endif" and before:
            before.pop()
        yield at, depth


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
