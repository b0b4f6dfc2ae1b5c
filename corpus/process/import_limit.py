"""A limit to how long a person's file may take to be imported, or to be called for the first time."""

from __future__ import annotations

import logging
import os
import signal
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType

from kernel_assay.corpus.errors import UsageError

IMPORT_SECONDS = 100.0
"""As long as a compiler may take that a file calls when it is imported (load_inline)."""
SECONDS_VARIABLE = "KERNEL_ASSAY_IMPORT_SECONDS"
"""A variable that says less: of what strangers send, no file may hold up for so long whoever waits behind it."""
CALL_SECONDS = 40.0
"""Of a call with small inputs, which may compile as well."""
NOTICE_SECONDS = 10.0
"""After which a person is told what is waited for."""
_STDLIB = sysconfig.get_path("stdlib")


class _EndlessError(BaseException):
    """Raised in the midst of the file, which is not to catch it."""


def say_waiting(what: str, most: float) -> None:
    """Tell a person of what has been loading for NOTICE_SECONDS: on stderr, where nobody has set up Python's logging.

    most: seconds after which it is refused.
    """
    words = "waiting for %s to load, for %g s so far; it is refused after %g s"
    logging.getLogger("kernel_assay").warning(words, what, NOTICE_SECONDS, most)


def import_seconds() -> float:
    """Seconds that a file may take to be imported here."""
    return min(IMPORT_SECONDS, float(os.environ.get(SECONDS_VARIABLE) or IMPORT_SECONDS))


def import_limit(path: Path) -> AbstractContextManager[None]:
    """Raise UsageError if the import of a file, which is what runs inside, does not end, and say where it is."""
    return _limit(f"{path} does not end its import", import_seconds())


def call_limit(place: str) -> AbstractContextManager[None]:
    """Raise UsageError if a call of a person's function on small inputs does not end, and say where it is."""
    return _limit(f"{place}: a call with small inputs does not end", CALL_SECONDS)


@contextmanager
def _limit(what: str, seconds: float) -> Iterator[None]:
    """Raise UsageError if what runs inside does not end.

    Only Python's own code can be stopped so, in the main thread, where nobody else has set an alarm; of other code
    whoever waits for this process has to lose patience.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return
    before = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _EndlessError as endless:
        raise UsageError(f"{what} within {seconds:g} s: {endless}") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        if signal.getsignal(signal.SIGALRM) is _ring:
            signal.signal(signal.SIGALRM, before)


def _ring(_signal: int, frame: FrameType | None) -> None:
    """Raise _EndlessError with the place where a file, or what it has called, has got to."""
    while frame is not None and frame.f_code.co_filename.startswith(("<", f"{_STDLIB}/")):
        frame = frame.f_back
    assert frame is not None
    raise _EndlessError(f"it is still at line {frame.f_lineno} of {frame.f_code.co_filename}")
