"""How processes are ended, on either side of the zygote."""

import contextlib
import os
import signal


def kill_group(pid: int) -> None:
    """SIGKILL for a worker and whatever it has started; also for one that has no group of its own yet."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
