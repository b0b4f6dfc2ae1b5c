"""Run a program as it is, and write what it asks of torch into a workload file, while it runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import ValidationError

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.workload import Call, text_of
from kernel_assay.corpus.storage.atomic_files import write_atomic
from kernel_assay.kernels.recording.hook import MOST_CALLS

LOOK_SECONDS = 1.0
"""How often the file is written anew while the program runs."""
OF_KEYS = (signal.SIGINT, signal.SIGQUIT)
OF_OTHERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that mean what the recorded program makes of them."""
HOOK = Path(__file__).with_name("hook.py")
UNCOMPILED = {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1"}
"""Has torch.compile compile nothing: what is compiled calls no functions, modules or operators any more."""
LOADS_HOOK = """\
import importlib.util
import pathlib
import sys

spec = importlib.util.spec_from_file_location("kassay_recording", {hook!r})
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
module.start(pathlib.Path({folder!r}))
"""
"""It must run in interpreters that have none of our packages."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The result of a recorded program."""

    calls: tuple[Call, ...]
    """Distinct ones, the most frequent first."""
    exit_code: int
    """Of the program; 128 and the signal's number, if one has ended it."""
    empty: str = ""
    """Why nothing was recorded."""
    warnings: tuple[str, ...] = ()


def record(
    command: Sequence[str], path: Path, *, functions: Sequence[str] = (), modules: Sequence[str] = ()
) -> Recording:
    """Run a command and write its calls to a file; which is not touched if there are none.

    functions: only those, as `module:name`; modules: only those of these classes. Raises UsageError for a command that
    cannot be started, and a file that cannot be written.
    """
    if odd := [one for one in functions if not all(part.strip() for part in one.partition(":"))]:
        raise UsageError(f"--function takes module:name, not {odd[0]!r}")
    if odd := [one for one in functions if one.startswith("__main__:")]:
        raise UsageError(f"{odd[0]} cannot be recorded: name a function of a module that the program imports")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} cannot be written: it is no file")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise UsageError(f"{path} cannot be written: {path.absolute().parent} is no folder that can be written to")
    with tempfile.TemporaryDirectory(prefix="kassay-record-") as name:
        folder = Path(name)
        (folder / "asked.json").write_text(json.dumps({"functions": [*functions], "modules": [*modules]}))
        (folder / "sitecustomize.py").write_text(LOADS_HOOK.format(hook=str(HOOK), folder=name))
        code = _run(command, folder, path)
        calls, troubles = _gathered(folder), _troubles(folder)
        _write(path, calls)
        found = Recording(calls, code, warnings=tuple(troubles))
        return found if calls else replace(found, empty=_why_empty(folder, command, [*functions, *modules]))


def _run(command: Sequence[str], folder: Path, path: Path) -> int:
    """The exit code of the command, during which the file is kept up to date."""
    before = os.environ.get("PYTHONPATH")
    env = {**os.environ, **UNCOMPILED, "PYTHONPATH": os.pathsep.join([str(folder), *([before] if before else [])])}
    try:
        process = subprocess.Popen(command, env=env)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be started ({error.strerror})") from error
    size = 0
    with _passing_on(process):
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(LOOK_SECONDS)
                return 128 - code if code < 0 else code
            if (now := sum(part.stat().st_size for part in folder.glob("*.jsonl"))) != size:
                size = now
                with contextlib.suppress(UsageError):  # the program goes on; it is said in the end
                    _write(path, _gathered(folder))


@contextlib.contextmanager
def _passing_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let the program decide what a signal means: a key of the terminal has reached it already, others are sent on."""

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        if number not in OF_KEYS or not _before_a_terminal():
            process.send_signal(number)

    old = {number: signal.signal(number, handle) for number in (*OF_KEYS, *OF_OTHERS)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _before_a_terminal() -> bool:
    """Whether keys of a terminal send signals to this process, and so to all of its group."""
    try:
        with Path("/dev/tty").open("rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _write(path: Path, calls: Sequence[Call]) -> None:
    if calls:
        write_atomic(path, text_of(calls))


def _gathered(folder: Path) -> tuple[Call, ...]:
    """The calls of all processes."""
    counts: dict[str, int] = {}
    for part in sorted(folder.glob("*.jsonl")):
        data = part.with_suffix(".counts").read_bytes()
        numbers = struct.unpack(f"={len(data) // 8}q", data)
        lines = part.read_bytes().split(b"\n")[:-1]  # a line without an end is being written
        for line, number in zip(lines, numbers, strict=False):
            text = line.decode()
            counts[text] = counts.get(text, 0) + max(1, number)
    read = (_call(text, count) for text, count in counts.items())
    return tuple(sorted((one for one in read if one), key=lambda one: -one.count))


def _call(text: str, count: int) -> Call | None:
    said: dict[str, Any] = json.loads(text)
    try:
        return Call(**said, count=count) if said["inputs"] else None
    except ValidationError:
        return None


def _troubles(folder: Path) -> list[str]:
    found = dict.fromkeys(part.read_text("utf-8") for part in sorted(folder.glob("*.trouble")))
    full = [part for part in folder.glob("*.jsonl") if part.read_bytes().count(b"\n") >= MOST_CALLS]
    left = f"a process made more than {MOST_CALLS:,} distinct calls: later ones are left out"
    return [*found, *([left] if full else [])]


def _why_empty(folder: Path, command: Sequence[str], wanted: Sequence[str]) -> str:
    """A reason why nothing was recorded."""
    processes = [json.loads(part.read_text("utf-8")) for part in sorted(folder.glob("*.process"))]
    if not processes:
        return f"{command[0]} has started no Python that could be recorded (-I, -E and -S keep the recording out)"
    if not any(one["torch"] for one in processes):
        return f"{processes[0]['executable']} has no torch"
    return f"{' '.join(command)} never called {' or '.join(wanted) if wanted else 'torch'}"
