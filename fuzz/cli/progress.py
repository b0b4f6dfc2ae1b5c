"""Progress of a search for a person: a live line on a terminal, else a line every ten seconds."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from kernel_assay.fuzz.campaign.session import listed
from kernel_assay.fuzz.events import BatchJudged, Event, RunStarted

LINE_SECONDS = 10.0
LIVE_SECONDS = 0.1


class Progress(AbstractContextManager["Progress"]):
    """Listens to a run; it decides when to speak."""

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

    def __call__(self, event: Event) -> None:
        """Say how it goes on, and now and then where it is."""
        if isinstance(event, RunStarted):
            self._say_begun(event)
        if self._quiet or not isinstance(event, BatchJudged):
            return
        pause = LIVE_SECONDS if self._live else LINE_SECONDS
        if time.monotonic() - self._spoke < pause:
            return
        self._spoke = time.monotonic()
        if self._live:
            self._live.update(Text(line(event)), refresh=True)
        else:
            print(line(event), file=sys.stderr, flush=True)  # noqa: T201  progress is for the person

    @staticmethod
    def _say_begun(event: RunStarted) -> None:
        c = event.campaign
        if event.resumed:
            click.echo(f"resuming {c.run} after {c.seconds:.0f} s and {c.cases:,} cases", err=True)
        if event.why_open:
            click.echo(f"kernels run in the open, with your rights, because {event.why_open}", err=True)
        if event.left_out:
            names = listed(event.left_out)
            click.echo(f"left out, for loading took half of the budget (the next run is faster): {names}", err=True)


def line(event: BatchJudged) -> str:
    """Cases, speed, findings, coverage, time left."""
    parts = [
        f"{event.cases:,} cases",
        f"{event.here / max(event.seconds, 1e-9):,.0f} judged/s",
        f"{event.findings} finding{'s' * (event.findings != 1)}",
        f"{event.pending} to look into" if event.pending else "",
        f"{event.cells:,} cells",
        _left(event),
    ]
    return " | ".join(p for p in parts if p)


def _left(event: BatchJudged) -> str:
    if event.cases_left is not None:
        return f"{event.cases_left:,} cases left"
    if event.left > 0:
        return f"{event.left:.0f} s left"
    return f"finishing, for {max(0.0, event.left + event.grace):.0f} s at most"
