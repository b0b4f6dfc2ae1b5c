"""Complaints of a compiler about a kernel in CUDA C++, as one sentence each that names the kernel's own line."""

from __future__ import annotations

import re
from pathlib import Path

from kernel_assay.kernels.backends.cuda_support.front_matter import FrontMatter
from kernel_assay.kernels.backends.simt.toolchain import HOME


def complaint(front: FrontMatter, said: str) -> str:
    """One sentence of the compiler's. said: all that it wrote."""
    match = _ERROR.search(said)
    if match is None:
        return f"{front.path} does not compile: {_without_place(said)}"
    file, line, text = Path(match["file"]), int(match["line"]), match["text"]
    if needs := _needs_gpu(front, file, line, text, _included_from(front, said)):
        return needs
    if match["file"] == "entries" or file.is_relative_to(HOME):
        return f"{front.path}: entry = {front.entry!r} cannot be launched: {text}"
    if "<<<" in _line(front, file, line):
        return f"{front.path} launches a kernel with <<<>>> (line {line}), {_HOST}"
    where = f"line {line}" if file == front.source.place else f"{file}, line {line}"
    return f"{front.path} does not compile: {text} ({where})"


def _needs_gpu(front: FrontMatter, file: Path, line: int, text: str, included: tuple[str, int] | None) -> str:
    """A sentence if it uses what only a GPU can run; empty if the error is another. included: see `_included_from`."""
    if included and (_ASSEMBLY in text or included[0].startswith(_FOREIGN)):
        return _uses(front.path, *included)
    place = front.path if file == front.source.place else file
    if _ASSEMBLY in text:
        return _uses(place, _PTX, line)
    header = _MISSING.search(text)
    return _uses(place, header[1], line) if header and header[1].startswith(_FOREIGN) else ""


def _uses(place: Path, what: str, line: int) -> str:
    return f"{place} uses {what} (line {line}), which cannot run on the CPU"


_ERROR = re.compile(r"^(?P<file>[^\n]+?):(?P<line>\d+):\d+: (?:fatal )?error: (?P<text>.*)$", re.MULTILINE)
_ASSEMBLY = "SIMT_UNSUPPORTED_asm"
_PTX = "inline PTX"
_MISSING = re.compile(r"^(\S+): No such file")
_FOREIGN = ("cub/", "thrust/", "cute/", "cutlass/")
"""Headers of libraries that need inline PTX."""
_SYSTEM = re.compile(r"include\s*<([^>]+)>")
_HOST = "but only device code is wanted: put host code between #ifndef KERNEL_ASSAY and #endif"


def _included_from(front: FrontMatter, said: str) -> tuple[str, int] | None:
    """The header of CUDA's that the error is in, as the file includes it, and in which line; None if it is in none."""
    place = front.source.place
    match = re.search(rf"from {re.escape(str(place))}:(\d+)", said)
    name = _SYSTEM.search(_line(front, place, int(match[1]))) if match else None
    return (name[1], int(match[1])) if match and name else None


def _line(front: FrontMatter, file: Path, number: int) -> str:
    """A line of the kernel's source, or of a header."""
    if file == front.source.place:
        text = front.source.text
    else:
        text = file.read_text("utf-8", "replace") if file.is_file() else ""
    lines = text.split("\n")
    return lines[number - 1] if number <= len(lines) else ""


def _without_place(said: str) -> str:
    """The complaint of the assembler or the linker, who know no line of the source."""
    for pattern in (r"undefined reference to .*", r"Error: (.*)", r"error: (.*)"):
        if match := re.search(pattern, said):
            return match[0]
    return said.strip().rpartition("\n")[2] or "g++ failed and said nothing"
