"""A page of docs/ as a machine reads it: files to write, commands to run, and lines that the commands must print.

A ```python, ```cpp, ```json or ```yaml block whose first line is a comment with the name of a file is that file. The
lines of an ```sh block are run one after the other, in the folder of the files; those of the ```text block behind it
must occur in what they print, in this order.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest

from kernel_assay.fuzz.__main__ import main
from kernel_assay.oracles.catalog import forget_contracts

ROOT = Path(__file__).resolve().parents[2]
HOME = "/home/you"
"""What the pages write for the folder in which their commands are run."""
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:#|//) ([\w-]+\.(?:py|cu|json|yaml))\n")
_BUDGET = ("--cases", "64", "--seed", "1")
"""Instead of `--budget 10s` in a search: the same cases each time, and few of them."""


@dataclass
class Block:
    """A fenced block; output: of a command block, what its lines printed."""

    language: str
    text: str
    output: str = ""

    @property
    def file(self):
        """The file that it is, or an empty string."""
        head = _FILE.match(self.text)
        return head[1] if head and self.language != "sh" else ""

    @property
    def commands(self):
        return [shlex.split(line, comments=True) for line in self.text.splitlines()]


@dataclass
class Page:
    """A document, and the folder in which it is acted out."""

    path: Path
    folder: Path
    heading: str = ""
    """Of the only section that is acted out; all of them if empty."""
    codes: list[int] = field(default_factory=list)
    """Exit codes of its commands, in order."""

    def blocks(self):
        text = self.path.read_text("utf-8")
        if self.heading:
            text = text.partition(f"## {self.heading}\n")[2].partition("\n## ")[0]
        return [Block(*found) for found in _BLOCK.findall(text)]

    def act(self):
        """Write its files and run its commands, in order; the blocks, with what was printed."""
        acted = self.blocks()
        for block in acted:
            if block.file:
                (self.folder / block.file).write_text(block.text, "utf-8")
            elif block.language == "sh":
                block.output = "".join(self._run(words) for words in block.commands)
        return acted

    def _run(self, words):
        if words[0] == "kassay":
            code, printed = in_process(self.folder, within_reach(words[1:]))
        else:
            code, printed = outside(self.folder, words)
        self.codes.append(code)
        return printed.replace(str(self.folder), HOME)


def within_reach(words):
    """A search without its length of time."""
    if "--budget" not in words or words[0] != "run":
        return words
    at = words.index("--budget")
    return [*words[:at], *_BUDGET, *words[at + 2 :]]


def in_process(folder, words):
    """Run `kassay`; its exit code and all it prints."""
    printed = io.StringIO()
    here = mock.patch.dict(os.environ, PATH=python_first())
    with contextlib.chdir(folder), here, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = main(words)
    return code, printed.getvalue()


def python_first():
    """The path on which `python` is the interpreter of this process."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def outside(folder, words):
    """Run anything else, with the interpreter of this process in front of others."""
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, "PATH": python_first()}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def page(tmp_path):
    """Open a page of docs/ by its name, or one that lies elsewhere by its path, and maybe one section only."""
    yield lambda name, heading="": Page(ROOT / "docs" / name, tmp_path, heading)
    forget_contracts()


@pytest.fixture
def fuzz(tmp_path):
    """Run a command in a folder of its own; its exit code and what it prints."""
    yield lambda words: in_process(tmp_path, words)
    forget_contracts()
