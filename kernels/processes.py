"""How processes are ended, on either side of the zygote."""

import contextlib
import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def kill_group(pid: int) -> None:
    """SIGKILL for a worker and whatever it has started; also for one that has no group of its own yet."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def die_with_parent() -> None:
    """From now on this process is killed when the one that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
