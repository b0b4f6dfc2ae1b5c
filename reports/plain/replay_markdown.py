"""A replay as Markdown, for the summary of a CI job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MOST = 50
"""Rows of the table."""


@dataclass(frozen=True, slots=True)
class Told:
    """One case that was run again."""

    subject: str
    outcome: str
    case: str
    message: str
    good: bool


def markdown(results: Sequence[Told]) -> str:
    """A headline, and a table of everything that needs a person or has changed."""
    bad = [r for r in results if not r.good]
    tally = Counter(r.outcome for r in results)
    said = ", ".join(f"{n} {outcome}" for outcome, n in tally.items()) or "nothing to replay"
    need = f"{len(bad)} of {len(results)} need a person" if bad else f"{len(results)} as they should"
    changed = [r for r in results if r.good and r.outcome in {"started to pass", "does not fail any more"}]
    rows = [_row(r) for r in [*bad, *changed][:MOST]]
    table = ["| | kernel | outcome | case | what is wrong |", "|---|---|---|---|---|", *rows] if rows else []
    return "\n".join([f"## Replay: {need}", "", said, "", *table]).rstrip() + "\n"


def _row(r: Told) -> str:
    mark = "✔️" if r.good else "❌"
    cells = (mark, f"`{r.subject}`", r.outcome, f"`{r.case}`", r.message.replace("|", "\\|").replace("\n", " "))
    return f"| {' | '.join(cells)} |"
