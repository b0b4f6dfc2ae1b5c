"""Mutants: right kernels with one change, made by the table of operators (mutation_operators.toml)."""

import difflib
import hashlib
import json
import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

import _bench
from pydantic import BaseModel, ConfigDict

from kernel_assay.corpus.model.subject import Subject
from kernel_assay.kernels.backends.support.edits import CUDA, Edit, apply, read_source, times

TABLE = Path(__file__).with_name("mutation_operators.toml")
LANGUAGES = ("cuda", "triton", "numpy", "torch")
"""Backends whose kernels are changed."""
UNCHANGED = "none"
"""The operator of what is no change."""
HEADS = {
    "cuda": re.compile(r"/\*.*?\*/", re.DOTALL),
    "python": re.compile(r'""".*?"""|^[A-Z_]+ = (?:[^\n]*\n(?:[ )\]}][^\n]*\n)*)', re.DOTALL | re.MULTILINE),
}
"""What says something of the subject: only operators of launches change it, and only in CUDA."""
COMMENTS = {
    "cuda": re.compile(r"//[^\n]*|^#[^\n]*|^\s*static_assert[^\n]*", re.MULTILINE),
    "python": re.compile(r"#[^\n]*|^(?:import|from) [^\n]*", re.MULTILINE),
}
Rules = tuple[tuple[str, str], ...]


class Operator(BaseModel):
    """A kind of change, with the public bug or study that it stands for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    family: str
    source: str
    about: Literal["places", "values", "threads", "sizes"] = "places"
    head: bool = False
    cuda: Rules = ()
    triton: Rules = ()
    python: Rules = ()

    def places(self, text: str, language: str) -> Iterator[tuple[int, int, str]]:
        """Every change: where it begins and ends, and what comes there."""
        syntax = "cuda" if language == "cuda" else "python"
        heads = [m.span() for m in HEADS[syntax].finditer(text)]
        quiet = heads + [m.span() for m in COMMENTS[syntax].finditer(text)]
        for pattern, instead in getattr(self, language):
            for m in re.finditer(pattern, text, re.MULTILINE):
                new = str(int(m[0]) + 1) if instead == "<next>" else m.expand(instead)
                if new != m[0] and (
                    any(b <= m.start() and m.end() <= e for b, e in heads)
                    if self.head and syntax == "cuda"
                    else not any(b < m.end() and m.start() < e for b, e in quiet)
                ):
                    yield m.start(), m.end(), new


@cache
def operators() -> dict[str, Operator]:
    """The table, by name."""
    found = [Operator.model_validate(one) for one in tomllib.loads(TABLE.read_text("utf-8"))["operator"]]
    return {one.name: one for one in found}


def language_of(subject: Subject) -> str:
    """Which patterns of an operator are for a subject."""
    return subject.backend if subject.backend in {"cuda", "triton"} else "python"


def source_of(subject: Subject) -> str:
    return read_source(Path(_bench.ROOT, subject.path)).text


@dataclass(frozen=True)
class Mutant:
    """A kernel with one change, in a file that is written when its turn comes: of a CUDA kernel, one of edits."""

    of: Subject
    operator: str
    path: Path
    begin: int = 0
    end: int = 0
    instead: str = ""

    @property
    def id(self) -> str:
        """A name for the kernel as it is with this change."""
        said = [self.of.key, self.of.source_digest, self.operator, self.begin, self.end, self.instead]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:12]

    @cached_property
    def sources(self) -> tuple[str, str]:
        """The text before and after."""
        text = source_of(self.of)
        return text, text if self.operator == UNCHANGED else apply(text, [self.edit])

    @cached_property
    def edit(self) -> Edit:
        """The change, with as many of the lines around it as make it the only one of its kind."""
        return edit_of(source_of(self.of), self.begin, self.end, self.instead)

    def write(self) -> None:
        """Put it where its path says."""
        if self.operator != UNCHANGED:
            write(self.of, self.path, self.edit)

    @property
    def difference(self) -> tuple[str, str]:
        """The lines that go, and those that come."""
        before, after = (text.splitlines() for text in self.sources)
        lines = list(difflib.unified_diff(before, after, lineterm="", n=0))[3:]
        old, new = (" ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")
        return old, new


def edit_of(text: str, begin: int, end: int, instead: str) -> Edit:
    """The edit that puts something in a place of a text."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    first, last = text.count("\n", 0, begin), text.count("\n", 0, end) + 1
    while times(text, old := "".join(lines[first:last])) > 1:
        first, last = max(first - 1, 0), last + 1
    at = begin - len("".join(lines[:first]))
    return Edit(old=old, new=old[:at] + instead + old[at + end - begin :])


def write(of: Subject, path: Path, edit: Edit) -> None:
    """Write a changed kernel: the whole of one in Python, of one in CUDA a file of edits."""
    if path.suffix not in CUDA:
        path.write_text(apply(source_of(of), [edit]), "utf-8")
        return
    words = {"base": str(Path(_bench.ROOT, of.path)), "old": edit.old, "new": edit.new}
    said = {key: json.dumps(value, ensure_ascii=False) for key, value in words.items()}
    path.write_text("base = {base}\n\n[[edit]]\nold = {old}\nnew = {new}\n".format(**said), "utf-8")


def mutants(
    subjects: Sequence[Subject], folder: Path, seed: int, table: Mapping[str, Operator] | None = None
) -> Iterator[Mutant]:
    """All of them in random order: an operator is drawn, then a language, then a kernel, then the place.

    So none is drowned by those that fit everywhere, and neither is a language by the one with most kernels.
    """
    draw = random.Random(seed)
    left: dict[str, dict[str, dict[str, list[Mutant]]]] = {}
    for subject in subjects:
        language, text = language_of(subject), source_of(subject)
        suffix = ".toml" if language == "cuda" else Path(subject.path).suffix
        path = folder / subject.op / f"{Path(subject.path).stem}{suffix}"
        for operator in (table or operators()).values():
            for begin, end, instead in dict.fromkeys(operator.places(text, language)):
                of = left.setdefault(operator.name, {}).setdefault(language, {}).setdefault(subject.key, [])
                of.append(Mutant(subject, operator.name, path, begin, end, instead))
    while left:
        mutant = _drawn(left, draw)
        name = f"m{mutant.id}_{mutant.path.name}"
        yield Mutant(mutant.of, mutant.operator, mutant.path.with_name(name), mutant.begin, mutant.end, mutant.instead)


def _drawn(left: dict[str, dict[str, dict[str, list[Mutant]]]], draw: random.Random) -> Mutant:
    """Take one out; what is empty then goes, too."""
    operator = draw.choice(list(left))
    language = draw.choice(list(left[operator]))
    key = draw.choice(list(left[operator][language]))
    alike = left[operator][language][key]
    mutant = alike.pop(draw.randrange(len(alike)))
    if not alike:
        del left[operator][language][key]
    if not left[operator][language]:
        del left[operator][language]
    if not left[operator]:
        del left[operator]
    return mutant
