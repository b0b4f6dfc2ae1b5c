"""What a tool answers: how it is asked, timed and believed; the same for all of them."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from pydantic import ConfigDict, Field, ValidationError

from kernel_assay import __version__
from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.process.parent_death import die_with_parent
from kernel_assay.kernels.backends.support.edits import read_source

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {".py", ".cu", ".cuh", ".toml", ".h", ".cpp"}
GRACE = 1.1
"""Of its seconds, until when a tool's answer counts: clocks and pipes are not exact, least on a busy machine."""
PATIENCE = 90.0
"""Seconds that a tool has to start."""
ALLOWANCE = 20.0
"""Seconds before the line that says that the search begins which no tool is charged for; what is more, all are."""
OVERTIME = 10.0
"""Seconds beyond the grace that a tool has to come back, before it is ended."""
LONGEST = 200_000
"""Characters of a case that are kept."""
CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP}
)  # fmt: skip
"""Signals by which a wrong kernel ends a tool; of others, as of the one sent when memory is short, it is innocent."""


class Kernel(NamedTuple):
    """A kernel, and what is known of it."""

    name: str
    op: str
    path: str
    kind: str
    """seeded, mutant or right."""
    claims: str = ""
    """Why only this project can know that it is right; empty: anybody can."""


class Said(Record):
    """The last line of a tool, as it must be."""

    model_config = ConfigDict(strict=True, extra="ignore")

    found: bool
    seconds: float = Field(ge=0, allow_inf_nan=False)
    tests: int = Field(default=0, ge=0)
    said: str = ""
    case: str = ""
    """A word for the test that failed (`case:...`), by which the duel runs it again."""


class Answer(Record):
    """What a tool has answered about a kernel, as it counts."""

    key: str
    """Digest of all that it depends on."""
    tool: str
    kernel: str
    op: str
    kind: str
    seed: int
    found: bool
    """It was found, and in time."""
    late: bool = False
    """It was found, or the tool was still searching, when the time and the grace were over."""
    seconds: float
    """From the line that says that the search begins (without one: from the start) to the answer, and what it took
    before that line beyond the allowance."""
    start: float | None = None
    """Seconds until that line; None: there was none, or nobody has kept them."""
    wall: float
    """With the start and the end."""
    tests: int = 0
    said: str = ""
    case: str = ""
    claims: str = ""
    error: str = ""


def key_of(command: Sequence[str], kernel: Kernel, seconds: float, seed: int) -> str:
    """A digest of all that an answer depends on: the kernel's text, the command and its files, time, our sources."""
    text = hashlib.sha256(read_source(Path(kernel.path)).text.encode()).hexdigest()
    said = [*command, files_of(command), kernel.name, kernel.op, text, seconds, seed, sources()]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def files_of(command: Sequence[str]) -> list[str]:
    """Digests of the files that a command names, the program itself among them."""
    paths = [Path(shutil.which(word) or word if not n else word) for n, word in enumerate(command)]
    return [_digest(path, path.stat().st_mtime_ns) for path in paths if path.is_file()]


@cache
def _digest(path: Path, changed: int) -> str:
    del changed
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def sources() -> str:
    """A digest of the version, and of every source of this package and of the duel."""
    folders = ("corpus", "fuzz", "kernels", "oracles", "reports", "scripts/bench", "scripts/duel_tools")
    files = sorted(f for folder in folders for f in (ROOT / folder).rglob("*") if f.suffix in SOURCES)
    whole = hashlib.sha256(__version__.encode())
    for file in files:
        whole.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return whole.hexdigest()[:16]


def known(lines: Sequence[dict[str, Any]]) -> dict[str, Answer]:
    """Those that were kept, by key; an error, or what is no answer, is asked again."""
    found = {}
    for line in lines:
        with suppress(ValidationError):
            answer = Answer.model_validate(line)
            if not answer.error:
                found[answer.key] = answer
    return found


class _Listener(threading.Thread):
    """Reads what a tool prints, and notes when it began, and when it said its last."""

    def __init__(self, pipe: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self.began: float | None = None
        self.last, self.ended, self.heard = b"", time.monotonic(), threading.Event()

    def run(self) -> None:
        for line in self._pipe:
            if self.began is None and line.strip() == b'{"began": true}':
                self.began = time.monotonic()
                self.heard.set()
            elif line.strip():
                self.last, self.ended = line.strip(), time.monotonic()
        self.heard.set()


def asked_of(tool: str, command: Sequence[str], kernel: Kernel, seconds: float, seed: int) -> Answer:
    """Ask a tool, and wait for it as long as its answer may count, and a little longer."""
    words = [*command, "--kernel", kernel.path, "--op", kernel.op, "--seconds", str(seconds).removesuffix(".0")]
    words += ["--seed", str(seed)]
    about = {"key": key_of(command, kernel, seconds, seed), "tool": tool, "kernel": kernel.name, "op": kernel.op}
    about |= {"kind": kernel.kind, "claims": kernel.claims}
    begin = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        try:
            ran = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509  it takes no lock
            )  # fmt: skip
        except OSError as error:
            said = f"{command[0]} cannot be started ({error.strerror})"
            return Answer(**about, seed=seed, found=False, seconds=0.0, wall=0.0, error=said)
        listener, in_time = _heard(ran, seconds)
        wall = time.monotonic() - begin
        errors.seek(0)
        last_words = errors.read()[-4000:].decode("utf-8", "replace").strip().splitlines()
    began = listener.began
    answer = answer_of(listener.last)
    end = begin + wall if isinstance(answer, str) else listener.ended
    spent = max(0.0, end - (began or begin)) + (max(0.0, began - begin - ALLOWANCE) if began else 0.0)
    start = None if began is None else began - begin
    counted = _weighed(ran.returncode if in_time else None, answer, start, spent <= GRACE * seconds, last_words)
    if kernel.kind != "mutant":
        counted["case"] = ""
    return Answer(**about, seed=seed, seconds=spent, start=start, wall=wall, **counted)


def answer_of(line: bytes) -> Said | str:
    """The answer that a tool's last line is, or why it is none."""
    try:
        return Said.model_validate_json(line)
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"]))
        return f"its last line is no answer: {where + ': ' if where else ''}{wrong['msg']}"


def _heard(ran: "subprocess.Popen[bytes]", seconds: float) -> tuple[_Listener, bool]:
    """Wait for a tool; and whether it ended by itself."""
    assert ran.stdout is not None
    listener, in_time = _Listener(ran.stdout), False
    listener.start()
    try:
        if listener.heard.wait(PATIENCE + seconds):
            ran.wait(GRACE * seconds + OVERTIME)
            in_time = True
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(ran.pid, signal.SIGKILL)  # and whatever it has left behind
        ran.wait()
    listener.join(1.0)
    return listener, in_time


def _weighed(
    code: int | None, said: Said | str, start: float | None, in_time: bool, last_words: list[str]
) -> dict[str, Any]:
    """What an end counts for: found, late or an error. code: None is one that had to be ended.

    A tool that has answered is believed, however it ends.
    """
    if isinstance(said, Said):
        case = said.case if len(said.case) <= LONGEST else ""
        return {"found": said.found and in_time, "late": said.found and not in_time, "tests": said.tests,
                "said": said.said[:300], "case": case}  # fmt: skip
    if code is None:
        gone = _error("it never began")
        return gone if start is None else {"found": False, "late": True, "said": "it was not back"}
    if code < 0:
        died = f"it died of {_name(-code)}"
        if -code not in CRASHES or start is None:
            return _error(died + (" before it began" if start is None else ""))
        return {"found": in_time, "late": not in_time, "said": died}
    return _error((last_words or [f"it ended with code {code}, and said nothing"])[-1] if code else said)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _error(text: str) -> dict[str, Any]:
    return {"found": False, "error": text[:300]}
