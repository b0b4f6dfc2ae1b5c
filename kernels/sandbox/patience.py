"""Time limits of runs: first calls, and those in which something is built, have more.

The supervisor measures, from outside: what a subject does to the clocks of its process changes nothing. Its own clock
counts only while it runs itself, so that a stop of all processes (a debugger, the lid of a laptop) makes nobody late.
"""

from __future__ import annotations

import re
import time

from kernel_assay.kernels.boundary.protocol import IDLE

PAUSE_SECONDS = 0.05
"""How often the supervisor looks at a worker that it waits for."""
FIRST_SECONDS = 20.0
"""What the first call of a subject in a process may take beyond the limit, and never more than twice the limit."""
BUILD_SECONDS = 300.0
"""What compilers may take in one call, beyond the limit."""
_PIECE = 1 << 12
"""Bytes of a message; fewer are no progress."""
_LEAST_SECONDS = 1.0
"""A worker may not get to run for so long, and go on with its message then."""
_MOMENT = 3 * PAUSE_SECONDS
"""The most that counts between two looks."""
_BUILDERS = re.compile(
    r"""File\ "[^"]*(?:
    /torch/_dynamo/(?:bytecode_|convert_frame|guards|output_graph|symbolic_convert|variables/)
    |/torch/_inductor/(?!output_code|utils|runtime/|cudagraph)|/torch/_inductor/runtime/(?:compile_tasks|coordinate|triton_heur)
    |/torch/(?:_decomp|_export|_functorch/(?:aot|partition|_aot_autograd/(?!runtime))|_subclasses|fx|utils/cpp_ext)
    |/sympy/|/triton/(?:backends|compiler|runtime/(?:autotuner|build))|/numba/core/|/llvmlite/|/cupy/cuda/compiler|/cffi/
    |/subprocess\.py|<frozen\ importlib)""",
    re.VERBOSE,
)
"""Where a process is while it compiles, waits for a compiler or imports: one of these is among its innermost frames."""
_monotonic = time.monotonic


class Clock:
    """Seconds in which this process could look; whoever wants to know must ask again and again."""

    def __init__(self) -> None:
        self._seconds, self._asked = 0.0, _monotonic()

    def __call__(self) -> float:
        """The time, from any beginning."""
        now = _monotonic()
        self._seconds += min(now - self._asked, _MOMENT)
        self._asked = now
        return self._seconds


Run = tuple[int, int, int]
"""As the journal has it: task, position, beginning by the worker's clock, which is a name here and no time."""


class Stopwatch:
    """The time that the run in progress has had, and what it was granted."""

    def __init__(self) -> None:
        self._clock = Clock()
        self._run: Run = (IDLE, IDLE, 0)
        self._since = 0.0
        self.granted = 0.0
        """Seconds beyond the limit."""
        self.built = False
        """Whether it was building something when that was last looked at."""

    def spent(self, run: Run) -> float:
        """Seconds since this run was first seen; nothing where none is in progress."""
        now = self._clock()
        if run != self._run:
            self._run, self._since, self.granted, self.built = run, now, 0.0, False
        return 0.0 if run[0] == IDLE else now - self._since

    def grant(self, limit: float, stack: str, *, first: bool) -> bool:
        """Give a run that is late more time, by a limit at a time; whether there was some to give.

        stack: where it is; first: whether its subject has not come back from a call in this process.
        """
        built, self.built = self.built, is_building(stack)
        room = min(FIRST_SECONDS, 2 * limit) if first else 0.0
        if built or self.built:  # when it has been built, it runs, and has not had its time for that
            room = BUILD_SECONDS + (0.0 if self.built else limit)
        more = min(limit, room - self.granted)
        self.granted += max(more, 0.0)
        return more > 0.0


class Rest:
    """What is still to come of a message that has begun: some more of it within the time limit of a run, or none."""

    def __init__(self, limit: float) -> None:
        self._limit, self._clock = max(limit, _LEAST_SECONDS), Clock()
        self._begun, self._since = 0, self._clock()

    def is_overdue(self, begun: int) -> bool:
        """Whether it has not gone on for too long; begun: bytes of it that have come, 0 where none is on its way."""
        now = self._clock()
        if not begun or begun >= self._begun + _PIECE:
            self._begun, self._since = begun, now
        return now - self._since > self._limit


def is_building(stack: str) -> bool:
    """Whether a process compiles something, or imports; stack: as Python's faulthandler shows it."""
    return bool(_BUILDERS.search(stack))
