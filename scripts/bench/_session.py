"""Processes of their own for what is started, signalled or killed from outside: there it calls the Python API."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path

_SPAWN = multiprocessing.get_context("spawn")
"""A fresh interpreter, which has imported nothing of ours: a start is measured, and threads are not forked."""


def start(said: Path, work: Callable[..., int], *args: object) -> SpawnProcess:
    """Start a function of a module; what it returns is the exit code, and what it prints goes into a file."""
    process = _SPAWN.Process(target=_work, args=(said, work, args))
    process.start()
    return process


def _work(said: Path, work: Callable[..., int], args: tuple[object, ...]) -> None:
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background is deaf to it
    sys.exit(work(*args))
