"""The pages: what each of them shows."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, select

from kernel_assay.corpus.storage.sql.service_tables import event, job, life, task
from kernel_assay.fuzz.service.pages.kit import Data, View, router_of
from kernel_assay.fuzz.service.protocol import Job, JobKind, JobState, Standing
from kernel_assay.fuzz.service.queue import jobs, leases, upkeep
from kernel_assay.fuzz.service.queue import life as lives
from kernel_assay.fuzz.service.queue.rows import happened, moment, pairs
from kernel_assay.fuzz.service.shown import sheet_of
from kernel_assay.reports.page.finding import meanings
from kernel_assay.reports.page.plots import histogram
from kernel_assay.reports.page.summary import Figure
from kernel_assay.reports.words import count

OPEN = (Standing.NEW, Standing.OPEN, Standing.REOPENED)
PAGE, FEW = 100, 10
WEEK = 7 * 86_400.0
WEEKS = 12
MOST_KERNELS = 500
LOG_TAIL = 20_000


def overview(view: View) -> Data:
    """Is anything on fire, since when, what runs."""
    c, now = view.connection, time.time()
    standings, states = _counts(c, life.c.state), _counts(c, job.c.state)
    burning = sum(standings.get(one, 0) for one in OPEN)
    found, _ = lives.listed(c, states=OPEN, limit=FEW)
    running, _ = jobs.listed(c, states=("running", "leased"), limit=FEW)
    alive = [one for one in leases.workers(c) if one["alive"]]
    return {
        "sentence": _sentence(burning, found),
        "tone": "bad" if burning else "good" if standings else "open",
        "figures": [
            Figure("open findings", f"{burning:,}", tone="bad" if burning else ""),
            Figure("new this week", f"{_happened(c, 'new', now - WEEK):,}"),
            Figure("fixed this week", f"{_happened(c, 'fixed', now - WEEK):,}"),
            Figure("jobs running", f"{states.get('running', 0) + states.get('leased', 0):,}"),
            Figure("waiting", f"{states.get('queued', 0):,}"),
            Figure("workers", f"{len(alive):,}", tone="" if alive or not states.get("queued") else "warn"),
        ],
        "findings": [lives.standing(row) for row in found],
        "running": running,
        "projects": upkeep.projects(c),
        "events": happened(c, limit=FEW),
    }


def _sentence(burning: int, found: list[Any]) -> str:
    if not burning:
        return "No open findings"
    latest = moment(max(row["since"] for row in found))
    assert latest is not None
    return f"{count(burning, 'open finding')}, the latest since {latest:%Y-%m-%d %H:%M} UTC"


def _counts(connection: Connection, column: Any) -> dict[str, int]:
    return pairs(connection, select(column, func.count()).group_by(column))


def _happened(connection: Connection, what: str, since: float) -> int:
    asked = select(func.count()).select_from(event)
    return connection.scalar(asked.where(event.c.noun == "finding", event.c.what == what, event.c.at > since)) or 0


def findings(view: View) -> Data:
    """All findings, a page at a time."""
    chosen = view.query.get("state", "")
    states = {"": (), "unfixed": OPEN}.get(chosen) if chosen in {"", "unfixed"} else (chosen,)
    project, op = view.query.get("project"), view.query.get("op")
    rows, more = lives.listed(
        view.connection, states=states or (), project=project, op=op, after=view.number("after"), limit=PAGE
    )
    return {
        "counts": _counts(view.connection, life.c.state),
        "findings": [lives.standing(row) for row in rows],
        "standings": [one.value for one in Standing],
        "ops": sorted(_counts(view.connection, life.c.op)),
        "projects": sorted(filter(None, _counts(view.connection, life.c.project))),
        "next": view.link(after=more) if more else None,
    }


def finding(view: View) -> Data:
    """One finding: all that the static page shows, its life, and what can be done."""
    name = view.path["name"]
    row = lives.row_of(view.connection, name, view.query.get("project"))
    record = lives.record(view.connection, name, row["project"])
    drawn = sheet_of(record)
    pull = {"pull": f"kassay pull {name} --server {view.here.settings.address}"}
    asked = select(job.c.id, job.c.kind, job.c.state).where(job.c.finding == name).order_by(job.c.seq.desc()).limit(FEW)
    return {
        "standing": lives.standing(row),
        "record": record,
        "_sheet": drawn and replace(drawn, commands={**pull, **drawn.commands}, steps=()),
        "_meanings": meanings((record,)),
        "events": happened(view.connection, noun="finding", about=name),
        "jobs": [dict(one) for one in view.connection.execute(asked).mappings()],
        "owners": _owners(view.connection, row["project"]),
    }


def _owners(connection: Connection, project: str) -> tuple[str, ...]:
    found = upkeep.projects(connection, project) if project else []
    return found[0].project.owners if found else ()


def listed_jobs(view: View) -> Data:
    """All jobs, a page at a time."""
    state, kind = view.query.get("state"), view.query.get("kind")
    found, more = jobs.listed(
        view.connection,
        states=(state,) if state else (),
        project=view.query.get("project"),
        kind=kind,
        after=view.number("after"),
        limit=PAGE,
    )
    return {
        "counts": _counts(view.connection, job.c.state),
        "jobs": found,
        "states": [one.value for one in JobState],
        "kinds": [one.value for one in JobKind],
        "next": view.link(after=more) if more else None,
    }


def one_job(view: View) -> Data:
    """One job, live: how far it is, what it found, its log."""
    name = view.path["name"]
    row, told = jobs.row_of(view.connection, name), jobs.get(view.connection, name)
    log, _ = jobs.log_of(view.connection, name)
    asked = select(task.c.id, task.c.place, task.c.state, task.c.worker, task.c.attempts).where(task.c.job == name)
    tasks = view.connection.execute(asked.order_by(task.c.seq.desc()).limit(PAGE)).mappings()
    found = view.connection.execute(select(life).where(life.c.finding.in_(told.findings[:PAGE]))).mappings()
    ready = max(row["handed"] - row["open_tasks"], 0) / row["parts"]
    return {
        "job": told,
        "owner": row["owner"],
        "share": ready,
        "parts_of": row["parts"],
        "rate": _rate(told),
        "tasks": [dict(one) for one in tasks],
        "findings": [lives.standing(dict(one)) for one in found],
        "log": log[-LOG_TAIL:],
    }


def _rate(told: Job) -> float | None:
    """Outputs a second since it began."""
    if told.started is None or not told.progress.judged:
        return None
    seconds = ((told.ended or datetime.now(UTC)) - told.started).total_seconds()
    return told.progress.judged / max(seconds, 1e-3)


def project(view: View) -> Data:
    """One project: its findings, its jobs, its schedule."""
    name = view.path["name"]
    told = upkeep.project_of(view.connection, name)
    rows, more = lives.listed(view.connection, project=name, states=OPEN, limit=PAGE)
    recent, _ = jobs.listed(view.connection, project=name, limit=FEW)
    return {"project": told, "findings": [lives.standing(row) for row in rows], "more": bool(more), "jobs": recent}


def kernels(view: View) -> Data:
    """Kernels side by side: how many findings each has, of which standing."""
    asked = select(life.c.subject, life.c.op, life.c.state, func.count(), func.max(life.c.seen))
    grouped: dict[tuple[str, str], Data] = {}
    rows = view.connection.execute(asked.group_by(life.c.subject, life.c.op, life.c.state))
    for subject, op, state, number, seen in rows:
        one = grouped.setdefault((op, subject), {"op": op, "subject": subject, "counts": {}, "seen": moment(seen)})
        one["counts"][state] = number
        one["seen"] = max(one["seen"], moment(seen))
    for one in grouped.values():
        one["open"] = sum(one["counts"].get(state, 0) for state in OPEN)
    order = sorted(grouped.values(), key=lambda one: (-one["open"], one["op"], one["subject"]))
    return {"kernels": order[:MOST_KERNELS], "all": len(order), "standings": [one.value for one in Standing]}


def queue(view: View) -> Data:
    """Workers and what they do; what waits, in its order."""
    order = (task.c.rank, task.c.tag, task.c.seq)
    next_jobs = select(task.c.job).where(task.c.state == "queued").order_by(*order).limit(PAGE)
    names = list(dict.fromkeys(view.connection.scalars(next_jobs)))
    rows = {row["id"]: dict(row) for row in view.connection.execute(select(job).where(job.c.id.in_(names))).mappings()}
    waiting = _counts_of_waiting(view.connection)
    return {
        "workers": leases.workers(view.connection),
        "waiting": jobs.told(view.connection, [rows[name] for name in names if name in rows]),
        "total": waiting,
    }


def _counts_of_waiting(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(task).where(task.c.state == "queued")) or 0


def trends(view: View) -> Data:
    """Findings and jobs of the last weeks."""
    now = datetime.now(UTC)
    monday = (now - timedelta(days=now.weekday())).replace(hour=0, minute=0, second=0, microsecond=0)
    starts = [monday - timedelta(weeks=back) for back in reversed(range(WEEKS))]
    since = starts[0].timestamp()
    rows = view.connection.execute(
        select(event.c.at, event.c.what).where(event.c.noun == "finding", event.c.at >= since)
    ).all()
    ended = view.connection.execute(select(job.c.ended, job.c.state).where(job.c.ended >= since)).all()
    series = {
        "new findings": [at for at, what in rows if what == "new"],
        "findings fixed": [at for at, what in rows if what == "fixed"],
        "findings reopened": [at for at, what in rows if what == "reopened"],
        "jobs done": [at for at, state in ended if state == "done"],
        "jobs failed or lost": [at for at, state in ended if state in {"failed", "lost"}],
    }
    weeks = [f"{start:%d %b}" for start in starts]
    told = {name: _by_week(times, since) for name, times in series.items()}
    plots = [histogram(weeks, counts, "week that begins", name) for name, counts in told.items() if any(counts)]
    return {"weeks": [start.date().isoformat() for start in starts], "series": told, "_plots": plots}


def _by_week(times: list[float], since: float) -> list[int]:
    counts = [0] * WEEKS
    for when in times:
        counts[min(int((when - since) // WEEK), WEEKS - 1)] += 1
    return counts


router = router_of(
    {
        "/": ("overview.html.j2", overview),
        "/findings": ("findings_list.html.j2", findings),
        "/findings/{name}": ("finding_page.html.j2", finding),
        "/jobs": ("jobs.html.j2", listed_jobs),
        "/jobs/{name}": ("job.html.j2", one_job),
        "/projects/{name}": ("project.html.j2", project),
        "/kernels": ("kernels_list.html.j2", kernels),
        "/queue": ("queue.html.j2", queue),
        "/trends": ("trends.html.j2", trends),
    }
)
