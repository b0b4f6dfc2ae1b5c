"""Run a user's program as it is, with a hook in each of its interpreters, until it ends by itself."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from kernel_assay.corpus.errors import UsageError

LOOK_SECONDS = 1.0
"""How often somebody looks at what a program has left so far."""
OF_KEYS = (signal.SIGINT, signal.SIGQUIT)
OF_OTHERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that mean what the program makes of them."""
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


def run_hooked(command: Sequence[str], folder: Path, asked: dict[str, Any], look: Callable[[], None]) -> int:
    """Run a command whose interpreters load hook.py first; its exit code, or 128 and the number of its signal.

    folder: an empty one, for what they write; asked: what hook.py shall do; look: is called when there is news in a
    file of JSON lines there. Raises UsageError for a command that cannot be started.
    """
    (folder / "asked.json").write_text(json.dumps(asked))
    (folder / "sitecustomize.py").write_text(LOADS_HOOK.format(hook=str(HOOK), folder=str(folder)))
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
                    look()


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


def why_unseen(folder: Path, command: Sequence[str]) -> str:
    """Say why nothing can have been seen of torch, or nothing if something can."""
    processes = [json.loads(part.read_text("utf-8")) for part in sorted(folder.glob("*.process"))]
    if not processes:
        return f"{command[0]} has started no Python that could be recorded (-I, -E and -S keep the recording out)"
    if not any(one["torch"] for one in processes):
        return f"{processes[0]['executable']} has no torch"
    return ""
