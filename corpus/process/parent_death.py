"""A process that must not outlive the one that has started it, nor be outlived by what it has started."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Have this process killed by a signal when the one that has started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)


def adopt_orphans() -> None:
    """Make this process the parent of all that its children leave behind, however they were started."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def main() -> None:
    """Become another program, the command line's, that ends with the process that has started this one."""
    die_with_parent()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  as everywhere, it is found as a person's shell finds it
