"""A CUDA kernel that is another one with a few places changed: a TOML file that names them.

    # bug_no_barrier.toml
    base = "cuda_tiled.cu"
    planted = "race"
    summary = "Bug: the second barrier of the tile loop is gone."

    [[edit]]
    old = '''
        __syncthreads();
      }
    '''
    new = '''
      }
    '''

    base    the file that is changed, seen from this one; its headers are looked for beside it
    edit    `new` takes the place of `old`, which must stand in the base exactly once; else it is refused

Every other key is one of front matter (front_matter.py), and replaces the base's own. Compilers and messages
call the changed text by this file's name with `.cu` behind it in place of `.toml`: a file that does not exist.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.kernels.backends.support.head_comment import head_comment

CUDA = frozenset({".cu", ".toml"})
"""What files of CUDA kernels end with."""


class Edit(BaseModel):
    """One change of a text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    old: str = Field(min_length=1)
    new: str


class Edits(BaseModel):
    """The content of a file of edits: its base, the changes, and keys of front matter."""

    model_config = ConfigDict(frozen=True, extra="allow")

    base: str = Field(min_length=1)
    edit: tuple[Edit, ...] = ()

    @property
    def front(self) -> dict[str, Any]:
        """The keys of front matter."""
        return self.model_extra or {}


@dataclass(frozen=True, slots=True)
class Source:
    """The source that a kernel is compiled from."""

    text: str
    place: Path
    """The name that compilers have for it, absolute."""
    home: Path
    """The folder in which its own headers are looked for."""


def read_source(path: Path) -> Source:
    """The source that a kernel's file stands for: a .toml file its base with the edits made, any other file itself.

    Raises UsageError, one sentence, if it cannot be read, or if an edit does not fit.
    """
    if path.suffix != ".toml":
        return Source(_text(path), path.absolute(), path.resolve().parent)
    place = path.absolute().with_suffix(".cu")
    if place.exists():
        raise UsageError(f"{path} cannot lie beside {place.name}, which messages would call it; rename one of the two")
    edits = read_edits(path)
    base = path.absolute().parent / edits.base
    if base.suffix != ".cu" or not base.is_file():
        raise UsageError(f"{path}: base = {edits.base!r} must be a .cu file, seen from this one")
    with about(str(path)):
        return Source(_with_front(apply(_text(base), edits.edit), edits), place, base.resolve().parent)


def is_kernel(path: Path) -> bool:
    """Whether a file may hold a kernel: by its suffix, and for a .toml file by whether it names a base."""
    if path.suffix != ".toml":
        return path.suffix in {".py", *CUDA}
    try:
        return "base" in tomllib.loads(_text(path))
    except (tomllib.TOMLDecodeError, UsageError):
        return False


def source_bytes(path: Path) -> bytes:
    """Bytes that the digest of a kernel's file is made of."""
    return read_source(path).text.encode() if path.suffix == ".toml" else path.read_bytes()


def present(path: Path) -> Path:
    """A kernel's file, or the one that has taken its place since a record was written: edits that of a whole kernel."""
    other = {".cu": ".toml", ".toml": ".cu"}.get(path.suffix, path.suffix)
    twin = path.with_suffix(other) if path.suffix in CUDA else path
    return twin if twin.is_file() and not path.is_file() else path


def read_edits(path: Path) -> Edits:
    """The edits of a file. Raises UsageError, one sentence, if it is no such file."""
    try:
        return Edits.model_validate(tomllib.loads(_text(path)))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{path}: {where}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None


def apply(text: str, edits: Sequence[Edit]) -> str:
    """A text with all edits made. Raises UsageError if one has no place of its own in it, or changes nothing."""
    made, done, last = [], 0, 0
    for begin, number, edit in sorted((_begin(text, n, edit), n, edit) for n, edit in enumerate(edits, 1)):
        if begin < done:
            raise UsageError(f"edit {number} changes a place that edit {last} changes, too; make one of the two")
        made += [text[done:begin], edit.new]
        done, last = begin + len(edit.old), number
    return "".join([*made, text[done:]])


def _begin(text: str, number: int, edit: Edit) -> int:
    """The place where an edit begins."""
    shown = repr(edit.old if len(edit.old) <= 80 else f"{edit.old[:77]}...")
    if edit.new == edit.old:
        raise UsageError(f"edit {number}: old and new are the same, {shown}")
    if (found := times(text, edit.old)) != 1:
        raise UsageError(f"edit {number}: old must stand in the base once, and stands there {found} times: {shown}")
    return text.index(edit.old)


def times(text: str, part: str) -> int:
    """Count how often a part stands in a text, places that overlap among them."""
    return sum(text.startswith(part, m.start()) for m in re.finditer(re.escape(part[0]), text))


def _with_front(text: str, edits: Edits) -> str:
    """The text with the keys of front matter in place of the base's own."""
    if not edits.front:
        return text
    head = head_comment(text)
    if head is None or len(head.fences) == 1:
        raise UsageError(f"base = {edits.base!r} has no front matter, so there is none to be changed")
    try:
        said = tomllib.loads(head.inside)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the front matter of {edits.base} is not TOML: {error}") from error
    return head.replaced(text, [f"{_key(key)} = {_toml(value)}" for key, value in (said | edits.front).items()])


def _toml(value: Any) -> str:
    """A value as TOML has it, on one line."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(key)} = {_toml(item)}' for key, item in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool | int) else str(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else json.dumps(name, ensure_ascii=False)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from error
