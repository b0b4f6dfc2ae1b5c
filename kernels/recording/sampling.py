"""Which calls of a model a trace watches, so that the program takes little longer; by the standard library alone."""

from __future__ import annotations

import time

SHARE = 0.10
"""Of the time that the program takes by itself: so much longer may it take."""
GRACE_SECONDS = 3.0
"""From the first call of a model on, in which all are watched."""
DISPATCH_SECONDS = 25e-6
"""What torch takes to tell of an operator that is looked at, and of the views beside it (PyTorch 2.13, CPU)."""
clock = time.perf_counter


class Sampling:
    """Counts what watching takes, and lets calls pass while that is more than the share."""

    def __init__(self, *, every_call: bool) -> None:
        """every_call: whether none may pass."""
        self.never = every_call
        self.resting = False
        """Whether the call under way passes unwatched."""
        self.spent = 0.0
        """Seconds that watching took, besides DISPATCH_SECONDS an operator."""
        self._began = 0.0

    def begin(self, operators: int) -> bool:
        """Decide about the call that begins, after so many operators; whether it passes."""
        now = clock()
        self._began = self._began or now
        passed = now - self._began
        spent = self.spent + DISPATCH_SECONDS * operators
        self.resting = not self.never and passed > GRACE_SECONDS and spent > SHARE * (passed - spent)
        return self.resting
