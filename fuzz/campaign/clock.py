"""The time of a run: when its search is over, when all of it must be, and how what takes longer is cut short.

Whoever waits for a worker asks `check` again and again, and is cut short between two messages; whatever else takes too
long (a judgement of its own processor time) is ended by an alarm, and after that nothing is run any more.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GRACE_SHARE, LEAST_GRACE = 0.1, 10.0
"""What a budget leaves to the end of a run: a tenth of it, at least so many seconds."""
STOP_SECONDS = 2.0
"""The same, once somebody wants an end."""
LOAD, THEIRS, FLIGHT, SHRINK, LOOK, FILE = 0.45, 0.5, 0.6, 0.65, 0.7, 0.95
"""Shares of that time after which are cut: loading, batches of other processes, batches, shrinking, a look at close
calls, and filing; the rest is for the record."""
_SOFT, _HARD = 0.05, 0.05
"""Shares before a cut in which nothing is begun any more, and behind it until the alarm."""
_LEAST = 1.0
"""Seconds in which what was found can be written."""
_AGAIN_SECONDS = 0.5
"""Until the alarm rings once more: an exception is lost where nobody can raise one."""


class Ended(BaseException):
    """Time is up, or somebody wants an end. As KeyboardInterrupt it is none that `except Exception` takes."""

    def __init__(self, *, in_time: bool = False) -> None:
        """in_time: what has come back already can still be used."""
        super().__init__()
        self.in_time = in_time


def grace_of(seconds: float) -> float:
    """Seconds that a budget leaves to the end of a run."""
    return max(LEAST_GRACE, GRACE_SHARE * seconds)


class Clock:
    """The time of a search, and of its end."""

    def __init__(self, seconds: float = math.inf, grace: float | None = None, began: float | None = None) -> None:
        """seconds: until the search is over; grace: for its end. began: by `time.monotonic`; None: now."""
        self.began = time.monotonic() if began is None else began
        self.seconds = seconds
        self.over_at = self.began + seconds
        self.grace = grace_of(seconds) if grace is None else max(grace, _LEAST)
        self.stopped = False
        """Whether somebody wants an end."""
        self.broken = False
        """Whether something was cut that may not be, so that nothing can be run any more."""
        self._share = FLIGHT
        self.begun = False
        """Whether there is anything yet that has to be ended with care."""
        self._ticks = False
        self._held = self._due = False

    @property
    def over(self) -> bool:
        """Whether the search is."""
        return time.monotonic() >= self.over_at

    @property
    def closing(self) -> bool:
        """Whether the last quarter of the search has begun, which is for what it found."""
        return time.monotonic() >= self.over_at - self.seconds / 4

    @property
    def hurried(self) -> bool:
        """Whether nothing may be begun any more that is not over soon."""
        return time.monotonic() >= self.at(self._share - _SOFT)

    @property
    def left(self) -> float:
        """Seconds until this part of the end is cut."""
        return self.at(self._share) - time.monotonic()

    def at(self, share: float) -> float:
        """The moment when this share of the end is over."""
        return self.over_at + share * self.grace

    def stop(self) -> None:
        """Somebody wants an end; may be called by a handler of signals."""
        self.stopped = True
        self.grace = min(self.grace, STOP_SECONDS)
        self.finish()

    def finish(self) -> None:
        """The search is over, for whatever reason: its end begins."""
        self.over_at = min(self.over_at, time.monotonic())
        self._arm()

    def check(self) -> None:
        """Raise Ended if this part of the run is to be cut."""
        if time.monotonic() >= self.at(self._share):
            raise Ended(in_time=not self.stopped)

    def theirs(self) -> Clock:
        """One for another process that works for this one's, and has to answer before it is given up."""
        made = Clock()
        made.over_at, made.grace, made._share = self.over_at, self.grace, THEIRS
        return made

    @contextmanager
    def until(self, share: float) -> Iterator[None]:
        """Whatever is done within is cut when this share of the end is over."""
        before, self._share = self._share, share
        self._arm()
        try:
            yield
        finally:
            self._share = before
            self._arm(off=True)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Do all that is within, before an alarm is heard."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._due:
            self._ring()

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Only within does the alarm ring, and in the main thread, where signals are heard."""
        self.begun = True
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        old = signal.signal(signal.SIGALRM, self._ring)
        self._ticks = True
        try:
            yield
        finally:
            self._arm(off=True)
            self._ticks = False
            signal.signal(signal.SIGALRM, old)

    def _arm(self, *, off: bool = False) -> None:
        if self._ticks:
            left = math.inf if off else self.at(self._share + _HARD) - time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3) if left < math.inf else 0.0, _AGAIN_SECONDS)

    def _ring(self, number: int = 0, frame: FrameType | None = None) -> None:
        del number
        self._due = self._held
        if not self._held and not _compiles(frame):  # where an exception is lost, and the code with it; it rings again
            self.broken = True
            raise Ended


def _compiles(frame: FrameType | None) -> bool:
    """Whether numba is at work."""
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in {"numba", "llvmlite"}:
            return True
        frame = frame.f_back
    return False
