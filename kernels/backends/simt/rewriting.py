"""What is done to a kernel's source that no macro can do."""

from __future__ import annotations

import re
from pathlib import Path

from kernel_assay.kernels.backends.simt.assembly import without_assembly
from kernel_assay.kernels.backends.simt.bounds import with_bounds

_ALIGNMENT = r"(?:__align__|alignas|__attribute__)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_DYNAMIC = re.compile(
    rf"\b(?P<words>(?:extern|__shared__)\b(?:{_ALIGNMENT}|[^;{{}}()=\[\]])*?)\b(?P<name>\w+)\s*\[\s*0?\s*\]\s*;"
)
_NO_TYPE = re.compile(rf"\b(?:extern|__shared__)\b|{_ALIGNMENT}")
_STATIC = re.compile(r"\bstatic\b((?:\s+(?:const|volatile|__device__))*\s+__shared__\b)|(\b__shared__\s+)static\b")
_ALIGNED = re.compile(r"\b(__shared__)\s+(alignas\s*\([^()]*(?:\([^()]*\))?[^()]*\))")
_NOINLINE = re.compile(r"(?<![(,:\w])(?<![(,:] )(?<!def )(?<!define )(?<!defined )__noinline__\b")


def rewritten(text: str) -> str:
    """Make dynamic shared memory a pointer to it, and bring the words around __shared__ in the order of g++.

    __noinline__ becomes an attribute here: a macro would spoil `__attribute__((__noinline__))`, which g++ has, too.
    """

    def pointer(match: re.Match[str]) -> str:
        if not {"extern", "__shared__"} <= set(match["words"].split()):
            return match[0]
        kind, lines = " ".join(_NO_TYPE.sub(" ", match["words"]).split()), "\n" * match[0].count("\n")
        if _is_outside(match.string, match.start()):  # each processor has its own: none can be taken before main
            return f'extern SIMT_API SIMT_EACH {kind}* const {match["name"]} __asm__("simt_dynamic_shared");{lines}'
        return f"{kind}* const {match['name']} = ({kind}*)simt::dynamic_shared;{lines}"

    text = _NOINLINE.sub("__attribute__((noinline))", with_bounds(without_assembly(text)))
    return _ALIGNED.sub(r"\2 \1", _DYNAMIC.sub(pointer, _STATIC.sub(r"\1\2", text)))


_BRACE = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | (?P<opens>(?P<outer>\bnamespace\b[^;{}()]* | \bextern\s*"C(?:\+\+)?"\s*)?\{) | \}""",
    re.DOTALL | re.VERBOSE,
)


def _is_outside(text: str, at: int) -> bool:
    """Whether no braces are open there but those of namespaces."""
    outer: list[bool] = []
    for match in _BRACE.finditer(text, 0, at):
        if match["opens"]:
            outer.append(bool(match["outer"]))
        elif match[0] == "}" and outer:
            outer.pop()
    return all(outer)


def placed(text: str, path: Path) -> str:
    """A source with its own name before it, which faults and the compiler's errors tell."""
    place = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'#line 1 "{place}"\n{rewritten(text)}'
