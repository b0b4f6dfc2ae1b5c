"""The page of times: how long kernels took at each commit, and since when one is slower or faster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from sqlalchemy import select

from kernel_assay.corpus.storage.sql.service_tables import artifact, job
from kernel_assay.fuzz.service.pages.kit import Data, View
from kernel_assay.fuzz.service.queue.database import Row
from kernel_assay.fuzz.service.queue.rows import moment
from kernel_assay.fuzz.timing import history
from kernel_assay.fuzz.timing.history import Point, Series, Step
from kernel_assay.reports.page.timing_plots import over_commits
from kernel_assay.reports.words import count, time_of

MOST_RUNS, MOST_SERIES, MOST_PLOTS = 1000, 100, 12
"""Jobs that are looked at, the latest first; series that are listed, and that are drawn."""
MOST_POINTS = 60
"""Of a picture."""
_read, _steps = lru_cache(maxsize=2 * MOST_RUNS)(history.read), lru_cache(maxsize=4096)(history.steps)
Key = tuple[str, str, str, str]


def performance(view: View) -> Data:
    """Times of kernels over commits, those that got slower first."""
    chosen = {name: view.query.get(name, "") for name in ("project", "op", "kernel")}
    found = _histories(view, chosen["project"])
    ops = sorted({_op(series) for _, series in found})
    shown = [
        _line(project, series)
        for project, series in found
        if chosen["op"] in {"", _op(series)} and chosen["kernel"] in {"", series.subject}
    ]
    shown.sort(key=lambda one: (not one["slower"], one["subject"], one["case"]))
    drawn = [one for one in shown if one["change"] or (chosen["kernel"] and one["runs"] > 1)][:MOST_PLOTS]
    return {
        "times": [{name: value for name, value in one.items() if name[0] != "_"} for one in shown[:MOST_SERIES]],
        "all": len(shown),
        "ops": ops,
        "projects": sorted({project for project, _ in found if project}),
        "_plots": [(one, _picture(one["_series"], one["_steps"])) for one in drawn],
    }


def _op(series: Series) -> str:
    return series.subject.partition("/")[0]


def _histories(view: View, project: str) -> list[tuple[str, Series]]:
    """Series by project, kernel, case and machine, of the latest jobs; their runs are jobs, and revisions commits."""
    asked = select(job.c.id, job.c.project, job.c.ended, job.c.request, artifact.c.body)
    asked = asked.join(artifact, artifact.c.job == job.c.id).where(
        job.c.kind == "time", artifact.c.name == history.NAME
    )
    if project:
        asked = asked.where(job.c.project == project)
    points: dict[Key, list[Point]] = {}
    for row in view.connection.execute(asked.order_by(job.c.seq.desc()).limit(MOST_RUNS)).mappings():
        for key, point in _points(dict(row)):
            points.setdefault(key, []).append(point)
    return [(key[0], Series(*key[1:], tuple(reversed(some)))) for key, some in sorted(points.items())]


def _points(row: Row) -> Iterator[tuple[Key, Point]]:
    ended, checkout = moment(row["ended"]), json.loads(row["request"]).get("checkout") or {}
    for series in _read(json.loads(row["body"])):
        key = (row["project"] or "", series.subject[:200], series.label[:500], series.machine[:200])
        for point in series.points:
            at = ended.isoformat(timespec="seconds") if ended else ""
            yield key, replace(point, run=row["id"], at=at, revision=checkout.get("commit", ""))


def _line(project: str, series: Series) -> Data:
    found, last = _steps(series), series.points[-1]
    latest = found[-1] if found else None
    return {
        "project": project,
        "subject": series.subject,
        "case": series.label,
        "machine": series.machine,
        "runs": len(series.points),
        "median": time_of(last.seconds),
        "interval": f"{time_of(last.low)} to {time_of(last.high)}",
        "seconds": last.seconds,
        "commit": last.revision,
        "job": last.run,
        "at": last.at,
        "slower": bool(latest and latest.ratio > 1),
        "change": history.since(latest) if latest else "",
        "since": latest.first.run if latest else "",
        "_series": series,
        "_steps": found,
    }


def _picture(series: Series, found: Sequence[Step]) -> object:
    shown = series.points[-MOST_POINTS:]
    changes = {shown.index(step.first): step.ratio > 1 for step in found if step.first in shown}
    runs = [(one.revision[:7] or one.at[5:10], one.low, one.seconds, one.high) for one in shown]
    said = "; ".join(history.since(step) for step in found) or "no change"
    return over_commits(runs, changes, f"Median times of {series.subject} in {count(len(shown), 'run')}: {said}.")
