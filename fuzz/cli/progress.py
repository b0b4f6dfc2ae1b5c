"""What a person sees while a search runs: a live line on a terminal, else a line every ten seconds."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kernel_assay.fuzz.campaign.search import Search

LINE_SECONDS = 10.0
LIVE_SECONDS = 0.1


class Progress(AbstractContextManager["Progress"]):
    """Call it with the search; it decides when to speak."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True)
        self._quiet = quiet
        self._live = (
            Live(console=self._console, transient=True, auto_refresh=False) if self._console.is_terminal else None
        )
        self._spoke = time.monotonic()

    def __enter__(self) -> Self:
        """Take the terminal's last line."""
        if self._live and not self._quiet:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Give it back."""
        if self._live and not self._quiet:
            self._live.stop()

    def __call__(self, search: Search) -> None:
        """Say where the search is, if it is time to."""
        if self._quiet:
            return
        pause = LIVE_SECONDS if self._live else LINE_SECONDS
        if time.monotonic() - self._spoke < pause:
            return
        self._spoke = time.monotonic()
        if self._live:
            self._live.update(Text(line(search)), refresh=True)
        else:
            print(line(search), file=sys.stderr, flush=True)  # noqa: T201  progress is for the person


def line(search: Search) -> str:
    """Cases, speed, findings, coverage, time left."""
    ledger = search.ledger
    rate = (ledger.judged - search.judged_before) / max(search.elapsed, 1e-9)
    parts = [
        f"{ledger.cases:,} cases",
        f"{rate:,.0f} judged/s",
        f"{len(search.findings)} finding{'s' * (len(search.findings) != 1)}",
        f"{len(search.pending)} to look into" if search.pending else "",
        f"{ledger.coverage.size:,} cells",
        _left(search),
    ]
    return " | ".join(p for p in parts if p)


def _left(search: Search) -> str:
    if search.limits.cases is not None:
        return f"{max(0, search.limits.cases - search.ledger.cases):,} cases left"
    left = search.clock.over_at - time.monotonic()
    return f"{left:.0f} s left" if left > 0 else f"finishing, for {max(0.0, left + search.clock.grace):.0f} s at most"
