"""The pages: what each of them shows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, select

from kernel_assay.corpus.storage.sql.service_tables import event, job, life, task
from kernel_assay.fuzz.service.client import searched_at, untaken
from kernel_assay.fuzz.service.pages.kit import Data, View, ago, router_of
from kernel_assay.fuzz.service.pages.performance import performance
from kernel_assay.fuzz.service.protocol import Job, JobKind, JobState, Progress, ProjectTold, Standing
from kernel_assay.fuzz.service.queue import coverage, jobs, leases, upkeep
from kernel_assay.fuzz.service.queue import life as lives
from kernel_assay.fuzz.service.queue.life import DISCUSSED
from kernel_assay.fuzz.service.queue.rows import happened, moment, pairs, record_of
from kernel_assay.fuzz.service.shown import issue_of, sheet_of
from kernel_assay.reports.page.finding import meanings
from kernel_assay.reports.page.plots import growth, histogram
from kernel_assay.reports.page.summary import Figure
from kernel_assay.reports.words import DASH, TIMES, count, span

OPEN = (Standing.NEW, Standing.OPEN, Standing.REOPENED)
UNRESOLVED, STATES = frozenset(map(str, OPEN)), frozenset(map(str, Standing))
PAGE, FEW = 100, 10
WEEK = 7 * 86_400.0
WEEKS = 12
MOST_KERNELS = 500
LOG_TAIL = 20_000
RECENTLY = 600.0
ADVICE = {
    JobState.FAILED: "If that names a file of yours, mend it and submit the job again; if it names what the worker "
    "lacks (a package, a compiler, a GPU), install that there, and try again.",
    JobState.LOST: "Look at what `kassay work` printed on that machine: it was killed, ran out of memory or lost its "
    "network. Start it again, then try again.",
}
"""What a person can do about a job that ended so."""


def overview(view: View) -> Data:
    """Is anything on fire, since when, what runs."""
    c, now = view.connection, time.time()
    standings, states = _counts(c, life.c.state), _counts(c, job.c.state)
    apart = c.scalar(select(func.count()).select_from(life).where(life.c.project == "", life.c.state.in_(OPEN))) or 0
    burning = sum(standings.get(one, 0) for one in OPEN) - apart
    found, _ = lives.listed(c, states=OPEN, in_projects=burning > 0, limit=FEW)
    projects = upkeep.projects(c)
    undone = _undone(projects)
    running, _ = jobs.listed(c, states=("running", "leased"), limit=FEW)
    alive = [one for one in leases.workers(c) if one["alive"]]
    return {
        "sentence": _sentence(burning, apart, undone, found),
        "tone": "bad" if burning else "good" if standings and not (apart or undone) else "open",
        "fresh": not (standings or states),
        "figures": [
            Figure("unresolved findings", f"{burning:,}", tone="bad" if burning else ""),
            Figure("new this week", f"{_happened(c, 'new', now - WEEK):,}"),
            Figure("fixed this week", f"{_happened(c, 'fixed', now - WEEK):,}"),
            Figure("outside projects", f"{apart:,}", "unresolved"),
            Figure("jobs running", f"{states.get('running', 0) + states.get('leased', 0):,}"),
            Figure("waiting", f"{states.get('queued', 0):,}"),
            Figure("workers", f"{len(alive):,}", tone="" if alive or not states.get("queued") else "warn"),
        ],
        "findings": [lives.standing(row) for row in found],
        "running": running,
        "projects": projects,
        "events": _with_titles(c, happened(c, noun="finding", limit=FEW)),
    }


def _undone(projects: Iterable[ProjectTold]) -> dict[str, list[str]]:
    """Projects whose last search came to no end of its own, by how it ended, or was of another commit than the last."""
    found: dict[str, list[str]] = {}
    for one in projects:
        if one.last and one.last.state is not JobState.DONE:
            found.setdefault(one.last.state.value, []).append(one.name)
        elif one.head and searched_at(one) != one.head:
            found.setdefault("of the latest commit to come", []).append(one.name)
    return found


def _sentence(burning: int, apart: int, undone: dict[str, list[str]], found: list[Any]) -> str:
    said = [count(burning, "unresolved finding")] if burning else []
    said += [f"{count(apart, 'unresolved finding')} outside projects"] if apart else []
    if said:
        said[0] += f", the latest {ago(moment(max(row['since'] for row in found)))}"
    said += [f"last search {state}: {', '.join(names[:FEW])}" for state, names in undone.items()]
    whole = "; ".join(said) or "no unresolved findings"
    return whole[0].upper() + whole[1:]


def _with_titles(connection: Connection, events: list[dict[str, str]]) -> list[dict[str, str]]:
    """Add what the findings are called that events are about."""
    names = [one["about"] for one in events]
    asked = select(life.c.finding, life.c.subject, life.c.title).where(life.c.finding.in_(names))
    titles = {row.finding: f"{row.subject}: {row.title}" for row in connection.execute(asked)}
    return [{**one, "title": titles.get(one["about"], one["about"])} for one in events]


def _counts(connection: Connection, column: Any) -> dict[str, int]:
    return pairs(connection, select(column, func.count()).group_by(column))


def _happened(connection: Connection, what: str, since: float) -> int:
    asked = select(func.count()).select_from(event)
    mine = (event.c.noun == "finding", event.c.what == what, event.c.project != "")
    return connection.scalar(asked.where(*mine, event.c.at > since)) or 0


def findings(view: View) -> Data:
    """All findings, a page at a time."""
    chosen = view.query.get("state", "")
    states = {"": (), "unresolved": OPEN}.get(chosen, (chosen,))
    chosen_by: Data = {name: view.query.get(name) for name in ("project", "op", "subject")}
    rows, more = lives.listed(view.connection, states=states, **chosen_by, after=view.number("after"), limit=PAGE)
    return {
        "counts": _counts(view.connection, life.c.state),
        "findings": [lives.standing(row) for row in rows],
        "standings": [one.value for one in Standing],
        "ops": sorted(_counts(view.connection, life.c.op)),
        "projects": _projects(view),
        "feed": f"/projects/{chosen_by['project']}/feed.atom" if chosen_by["project"] else "/feed.atom",
        "next": view.link(after=more) if more else None,
    }


def finding(view: View) -> Data:
    """One finding: all that the static page shows, its life, and what can be done."""
    row = lives.row_of(view.connection, view.path["name"], view.query.get("project"))
    name = row["finding"]
    record = lives.record(view.connection, name, row["project"])
    drawn = sheet_of(record)
    alike, more = lives.listed(view.connection, project=row["project"], subject=row["subject"], limit=FEW + 1)
    events = happened(view.connection, noun="finding", about=name, project=row["project"])
    pull = {"pull": f"kassay pull {name} --server {view.here.settings.address}"}
    asked = select(job.c.id, job.c.kind, job.c.state).where(job.c.finding == name).order_by(job.c.seq.desc()).limit(FEW)
    return {
        "standing": lives.standing(row),
        "record": record,
        "_sheet": drawn
        and replace(drawn, commands={**pull, **drawn.commands}, entry=replace(drawn.entry, standing="")),
        "_meanings": meanings((record,)),
        "_issue": issue_of(record, f"{view.here.settings.address}/findings/{name}"),
        "events": events,
        "discussion": next((one["words"] for one in reversed(events) if one["what"] == DISCUSSED), ""),
        "alike": [lives.standing(one) for one in alike if one["finding"] != name][:FEW],
        "more_alike": bool(more),
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
    found = lives.met(view.connection, told.findings[:PAGE], row["project"] or "")
    ready = max(row["handed"] - row["open_tasks"], 0)
    past = coverage.covered(view.connection, name)
    live = [record_of(text, Progress) for text in view.connection.scalars(_LIVE.where(task.c.job == name))]
    return {
        "job": told,
        "owner": row["owner"],
        "share": ready / row["parts"],
        "parts_done": ready,
        "parts_of": row["parts"],
        "figures": list(_figures(told, live, past)),
        "advice": _advice(told, leases.workers(view.connection)),
        "_plots": [growth([(0.0, 0.0), *past.growth], "cells of coverage")] if len(past.growth) > 1 else [],
        "tasks": [dict(one) for one in tasks],
        "findings": [lives.standing(one) for one in found],
        "log": log[-LOG_TAIL:],
    }


def _figures(told: Job, live: Sequence[Progress], past: coverage.Covered) -> Iterator[Figure]:
    """How far a job is, how fast it goes, and whether it still finds anything new."""
    rate = sum(one.judged / one.seconds for one in live if one.seconds) or _rate(told)
    yield Figure("cases", f"{told.progress.cases:,}")
    yield Figure("outputs judged", f"{told.progress.judged:,}")
    yield Figure("outputs/s", f"{rate:,.0f}" if rate else DASH, "right now" if live else "")
    if told.kind is JobKind.FUZZ:
        recent = past.new_since(time.time() - RECENTLY - told.started.timestamp()) if told.started else 0
        new = f"{recent:,} new in {RECENTLY / 60:.0f} min" if told.ended is None and past.growth else ""
        yield Figure("cells of coverage", f"{told.progress.cells:,}", new)
        if newest := _newest(past, live):
            quiet = max(0.0, ((told.ended or datetime.now(UTC)) - newest).total_seconds())
            since = "before the end" if told.ended else "a cell or a finding"
            yield Figure("last new thing" if told.ended else "since the last new thing", span(quiet), since)
    yield Figure("findings", f"{len(told.findings):,}", tone="bad" if told.findings else "")


_LIVE = select(task.c.progress).where(jobs.IS_HELD, task.c.state == "running")


def _newest(past: coverage.Covered, live: Sequence[Progress]) -> datetime | None:
    """When the last new cell or finding was met; of a part that goes on, it is new if no other can have it."""
    times = [time.time() - one.quiet for one in live if one.cells > len(past.coverage)]
    return moment(max([*times, past.newest]) or None)


def _advice(told: Job, workers: Sequence[Data]) -> str:
    """Say what a person can do about a job that does not go on, or did not; empty: nothing."""
    return untaken(told, workers) if told.state is JobState.QUEUED else ADVICE.get(told.state, "")


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
    mine = (life.c.project == view.query["project"],) if "project" in view.query else ()
    rows = view.connection.execute(asked.where(*mine).group_by(life.c.subject, life.c.op, life.c.state))
    for subject, op, state, number, seen in rows:
        one = grouped.setdefault((op, subject), {"op": op, "subject": subject, "counts": {}, "seen": moment(seen)})
        one["counts"][state] = number
        one["seen"] = max(one["seen"], moment(seen))
    for one in grouped.values():
        one["open"] = sum(one["counts"].get(state, 0) for state in OPEN)
    order = sorted(grouped.values(), key=lambda one: (-one["open"], one["op"], one["subject"]))
    standings = [one.value for one in Standing]
    return {"kernels": order[:MOST_KERNELS], "all": len(order), "standings": standings, "projects": _projects(view)}


def _projects(view: View) -> list[str]:
    """Names that findings are kept under."""
    return sorted(filter(None, _counts(view.connection, life.c.project)))


def queue(view: View) -> Data:
    """Workers and what they do; what waits, in its order."""
    order = (task.c.rank, task.c.tag, task.c.seq)
    next_jobs = select(task.c.job).where(task.c.state == "queued").order_by(*order).limit(PAGE)
    names = list(dict.fromkeys(view.connection.scalars(next_jobs)))
    rows = {row["id"]: dict(row) for row in view.connection.execute(select(job).where(job.c.id.in_(names))).mappings()}
    waiting = _counts_of_waiting(view.connection)
    workers = [{**one, "gpus": _named(one["devices"])} for one in leases.workers(view.connection)]
    return {
        "workers": workers,
        "waiting": jobs.told(view.connection, [rows[name] for name in names if name in rows]),
        "total": waiting,
    }


def _named(devices: Sequence[str]) -> str:
    return ", ".join(f"{n} {TIMES} {name}" if n > 1 else name for name, n in Counter(devices).items())


def _counts_of_waiting(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(task).where(task.c.state == "queued")) or 0


def trends(view: View) -> Data:
    """Findings and jobs of the last weeks, which begin on Monday, UTC: whoever looks, from wherever, sees the same."""
    now = datetime.now(UTC)
    monday = (now - timedelta(days=now.weekday())).replace(hour=0, minute=0, second=0, microsecond=0)
    starts = [monday - timedelta(weeks=back) for back in reversed(range(WEEKS))]
    since, name = starts[0].timestamp(), view.query.get("project")
    mine = {table: (table.c.project == name,) if name else () for table in (event, job, life)}
    columns = select(event.c.at, event.c.what, event.c.about, event.c.project).order_by(event.c.seq)
    happened_then = columns.where(event.c.noun == "finding", event.c.at >= since, *mine[event])
    rows = [tuple(row) for row in view.connection.execute(happened_then)]
    ended = view.connection.execute(select(job.c.ended, job.c.state).where(job.c.ended >= since, *mine[job])).all()
    still = select(func.count()).select_from(life).where(life.c.state.in_(OPEN), *mine[life])
    series = {
        "new findings": [at for at, what, *_ in rows if what == "new"],
        "findings fixed": [at for at, what, *_ in rows if what == "fixed"],
        "findings reopened": [at for at, what, *_ in rows if what == "reopened"],
        "jobs done": [at for at, state in ended if state == "done"],
        "jobs failed or lost": [at for at, state in ended if state in {"failed", "lost"}],
    }
    told = {"unresolved at its end": _unresolved(view.connection.scalar(still) or 0, rows, since)}
    told |= {name: _by_week(times, since) for name, times in series.items()}
    weeks, caption = [f"{start:%d %b}" for start in starts], "week that begins"
    plots = [histogram(weeks, counts, caption, name, linear=True) for name, counts in told.items() if any(counts)]
    days = [start.date().isoformat() for start in starts]
    return {"weeks": days, "series": told, "_plots": plots, "projects": _projects(view)}


def _unresolved(now: int, rows: Iterable[tuple[float, str, str, str]], since: float) -> list[int]:
    """How many findings were unresolved at the end of each week: what is so now, less what has changed since."""
    changes = [0] * WEEKS
    before: dict[tuple[str, str], bool] = {}
    for when, what, *about in rows:
        if what in STATES:
            key = about[0], about[1]
            was = before.get(key, what not in {"new", "reopened"})
            before[key] = what in UNRESOLVED
            changes[_week(when, since)] += before[key] - was
    return [now - sum(changes[week + 1 :]) for week in range(WEEKS)]


def _week(when: float, since: float) -> int:
    return min(int((when - since) // WEEK), WEEKS - 1)


def _by_week(times: list[float], since: float) -> list[int]:
    counts = [0] * WEEKS
    for when in times:
        counts[_week(when, since)] += 1
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
        "/performance": ("performance.html.j2", performance),
        "/queue": ("queue.html.j2", queue),
        "/trends": ("trends.html.j2", trends),
    }
)
