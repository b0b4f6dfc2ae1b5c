"""What the scripts for nights and for CI share. Importing it chooses the project's interpreter."""

from __future__ import annotations

import argparse
import ctypes
import os
import shlex
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

ROOT = Path(__file__).resolve().parent.parent
_VENV = ROOT / ".venv"
if (_VENV / "bin" / "python").exists() and Path(sys.prefix).resolve() != _VENV.resolve():
    os.execv(_VENV / "bin" / "python", [str(_VENV / "bin" / "python"), *sys.argv])
sys.path.insert(0, str(ROOT))

try:
    import click

    from kernel_assay.corpus.errors import InternalError, UsageError
except ImportError as missing:
    sys.stderr.write(f"this Python has not what Kernel Assay needs ({missing}); `make run` sets it up\n")
    sys.exit(2)

FOUND, USAGE, INTERNAL, TOO_LONG, INTERRUPTED = 1, 2, 3, 124, 130
GRACE = 20.0
"""Seconds for a command whose time is up to end by itself."""
_WORSE = (0, FOUND, INTERRUPTED, USAGE, INTERNAL)
_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl


class Parser(argparse.ArgumentParser):
    """A mistake is one sentence, as everywhere, without the usage around it."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see --help")


def parser(text: str | None) -> Parser:
    return Parser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)


def worst(codes: Iterable[int]) -> int:
    """The exit code of several steps together; one that a signal ended is a fault, unless a person asked for it."""
    return max((c if c in _WORSE else INTERNAL for c in codes), key=_WORSE.index, default=0)


def answer(work: Callable[[], int]) -> int:
    """Do the work; every error a user can cause is one sentence on stderr."""
    name = Path(sys.argv[0]).name
    try:
        return work()
    except UsageError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return USAGE
    except InternalError as error:
        sys.stderr.write(f"{name}: internal error, please report it: {error}\n")
    except click.Abort:  # a person's wish, and no fault
        raise
    except Exception:  # noqa: BLE001  whatever else it is, it is our fault; Python's own exit code would say "findings"
        traceback.print_exc()
    return INTERNAL


class Steps:
    """Runs commands one after another, and hands Ctrl-C and SIGTERM on to the one that runs.

    Each has a session of its own: a terminal's Ctrl-C would reach it beside ours, and a second one means `at once`.
    """

    def __init__(self) -> None:
        self.signals = 0
        """How often somebody wanted an end."""
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def stopped(self) -> bool:
        return self.signals > 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While this lasts, the signals are ours."""
        old = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def call(self, *words: str, output: IO[bytes] | None = None, limit: float | None = None) -> int:
        """Say a command, the words behind `python`, run it, and give its exit code; 130 if somebody wanted its end.

        output: where it prints, if not here; limit: seconds, after which it is ended, with whatever it has started, and
        the exit code is 124.
        """
        print(f"\n$ python {shlex.join(words)}", flush=True)
        before = self.signals
        # Without us nobody would hand it a signal: should we be killed, it ends as if it had got one.
        self._child = subprocess.Popen(
            [sys.executable, *words],
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509  one thread
            stdout=output,
            stderr=output,
        )
        if self.signals > before:  # it came while the process was being made
            self._hand_on(signal.SIGTERM)
        code = _ended(self._child, limit)
        self._child = None
        return INTERRUPTED if code not in _WORSE and self.signals > before else code

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.signals += 1
        self._hand_on(number)

    def _hand_on(self, number: int) -> None:
        if self._child is not None:
            self._child.send_signal(number)


def _ended(child: subprocess.Popen[bytes], limit: float | None) -> int:
    """Its exit code, once it has ended or its time is up; a child with a limit leaves nobody behind."""
    code = _waited(child, limit)
    if code is None:
        child.send_signal(signal.SIGINT)
        _waited(child, GRACE)
        code = TOO_LONG
    if limit is not None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return code


def _waited(child: subprocess.Popen[bytes], seconds: float | None) -> int | None:
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _end_with_parent() -> None:
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)
