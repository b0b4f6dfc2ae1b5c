"""The headers of a CUDA kernel's own: which ones it includes from beside it, and its source with them in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kernel_assay.kernels.backends.support.edits import read_source

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"[^\n]*$', re.MULTILINE)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b[^\n]*\n", re.MULTILINE)


def included(path: Path) -> list[Path]:
    """Files beside a kernel's that it includes, and those that they include."""
    source, itself = read_source(path), path.resolve()
    found: list[Path] = []
    waiting = list(_included_by(source.text, source.home))
    while waiting:
        file = waiting.pop()
        if file not in found and file != itself and file.is_file():
            found.append(file)
            waiting += _included_by(file.read_text("utf-8", "replace"), file.parent)
    return found


def standalone(path: Path) -> str:
    """The source that a kernel's file stands for, with its own headers in it, each where it is first included."""
    source, done = read_source(path), {path.resolve()}

    def inlined(text: str, folder: Path) -> str:
        def content(match: re.Match[str]) -> str:
            header = _header(match[1], folder)
            if not header.is_file():
                return match[0]
            if header in done:
                return ""
            done.add(header)
            return inlined(_ONCE.sub("", header.read_text("utf-8-sig")), header.parent).strip("\n")

        return _INCLUDE.sub(content, text)

    return inlined(source.text, source.home) if path.suffix != ".py" else source.text


def _included_by(text: str, folder: Path) -> Iterator[Path]:
    return (_header(name, folder) for name in _INCLUDE.findall(text))


def _header(name: str, folder: Path) -> Path:
    return (folder / name).resolve()
