"""The life of findings: new, open, fixed, reopened, wontfix; their records are the library's, merged by signature."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Connection, and_, delete, select, update

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import Event, Finding, State
from kernel_assay.corpus.storage.base_store import component
from kernel_assay.corpus.storage.merging import merge
from kernel_assay.corpus.storage.sql.rows import finding_row
from kernel_assay.corpus.storage.sql.service_tables import event, job, life, token
from kernel_assay.corpus.storage.sql.service_tables import project as projects
from kernel_assay.corpus.storage.sql.tables import findings
from kernel_assay.fuzz.service.problems import MissingError
from kernel_assay.fuzz.service.protocol import FindingStanding, JobKind, JobRequest, Project, Scope, Standing
from kernel_assay.fuzz.service.queue import jobs
from kernel_assay.fuzz.service.queue.database import Row, clean
from kernel_assay.fuzz.service.queue.rows import SYSTEM, insert, moment, note, record_of, text_of

STANDINGS = tuple(Standing)
UNSHRUNK = {State.NEW, State.CONFIRMED, State.FLAKY}
DISCUSSED = "discussed"
"""What happened to a finding when somebody said where people talk about it; the words are the address."""
GONE = "gone"
"""What happened to a finding whose smallest case has another signature; the words are the id of the other."""
MOST_COUNT = 2**53
SOON = 7
"""Priority of what is done about findings: before searches, behind what a person waits for."""


def record(connection: Connection, name: str, project: str | None = None) -> Finding:
    """The library's record of a finding, or of what it was shrunk to. Raises MissingError."""
    asked = select(findings.c.record).where(findings.c.id == _now(connection, name, project))
    if project is not None:
        asked = asked.where(findings.c.project == project)
    found = connection.scalar(asked.order_by(findings.c.project).limit(1))
    if found is None:
        raise MissingError(f"there is no finding {name[:40]!r}")
    return record_of(found, Finding)


def put(connection: Connection, project: str, finding: Finding) -> None:
    """Write a finding in the place of what was written of it before."""
    row = {name: clean(value) if isinstance(value, str) else value for name, value in finding_row(finding).items()}
    row["record"] = text_of(finding)
    new = insert(connection, findings).values(project=project, id=finding.id, **row)
    connection.execute(new.on_conflict_do_update(index_elements=["project", "id"], set_=row))


def own_of(of: Row, met: Finding) -> Finding:
    """The finding as one of what a job was sent: outside of projects a file's name says nothing about whose it is."""
    request = record_of(of["request"], JobRequest)
    if of["project"] or not met.subject.is_own:
        return met.but(sent="")
    repository = request.checkout.repository if request.checkout else ""
    return met.but(sent=hashlib.sha256(repository.encode()).hexdigest() if repository else of["sources"])


def report(connection: Connection, of: Row, met: Finding, now: float) -> None:
    """Take in a finding that a job has met: a new one, or more of one that is known.

    Raises UsageError for an op that can name no folder: stores on disk may be given what is here.
    """
    component(met.signature.op, "op")
    met = met.but(count=min(max(met.count, 0), MOST_COUNT))
    project = of["project"] or ""
    if of["kind"] == JobKind.SHRINK.value:
        met = _in_its_place(connection, of["finding"], project, met)
    else:
        met = _as_shrunk(connection, project, met)
    fresh = insert(connection, life).values(
        project=project, finding=met.id, since=now, created=now, seen=now, job=of["id"], **_columns(of, met)
    )
    new = connection.execute(fresh.on_conflict_do_nothing().returning(life.c.seq)).first() is not None
    row = row_of(connection, met.id, project, lock=True)
    known = connection.scalar(select(findings.c.record).where(findings.c.project == project, findings.c.id == met.id))
    merged = met if known is None else merge(record_of(known, Finding), met)
    put(connection, project, merged.but(count=min(merged.count, MOST_COUNT)))
    if new:
        _enter(connection, row, "new", SYSTEM, f"met by job {of['id']}")
    else:
        _met_again(connection, row, of, now, merged)
    if merged.state in UNSHRUNK and of["kind"] != JobKind.SHRINK.value:
        _shrink(connection, of, merged)


def _in_its_place(connection: Connection, before: str, project: str, met: Finding) -> Finding:
    """Put what a finding was shrunk to in its place: where that has another id, it takes over its life and its count.

    A link to the one that is gone leads to it. One that is known by itself already keeps its state.
    """
    both = select(life).where(life.c.project == project, life.c.finding.in_([before, met.id]))
    locked = connection.execute(both.order_by(life.c.finding).with_for_update()).mappings()
    rows = {row["finding"]: dict(row) for row in locked}
    gone, there = rows.get(before), rows.get(met.id)
    if met.id == before or gone is None:
        return met
    stored = record(connection, before, project)
    if there is None:
        connection.execute(update(life).where(life.c.seq == gone["seq"]).values(finding=met.id))
    else:
        together = {"times": there["times"] + gone["times"], "created": min(there["created"], gone["created"])}
        connection.execute(update(life).where(life.c.seq == there["seq"]).values(**together))
        connection.execute(delete(life).where(life.c.seq == gone["seq"]))
    connection.execute(delete(findings).where(findings.c.project == project, findings.c.id == before))
    its = (event.c.noun == "finding", event.c.about == before, event.c.project == project)
    if there is not None:  # it has entered a life already, and readers of a feed have been told so
        connection.execute(delete(event).where(*its, event.c.what == "new"))
    connection.execute(update(event).where(*its).values(about=met.id))
    note(connection, SYSTEM, GONE, noun=GONE, about=before, words=met.id, project=project)
    note(connection, SYSTEM, "shrunk", noun="finding", about=met.id, words=f"it was {before} before", project=project)
    return met.but(count=stored.count, history=(*stored.history, *met.history[-1:]))


def _as_shrunk(connection: Connection, project: str, met: Finding) -> Finding:
    """Take what was shrunk to another finding for more of that one; where that is fixed, it is one of its own."""
    name = _now(connection, met.id, project)
    if name == met.id or row_of(connection, name, project)["state"] == "fixed":
        return met
    return record(connection, name, project).but(count=met.count, last_seen=met.last_seen)


def _now(connection: Connection, name: str, project: str | None) -> str:
    """The id of what a finding has been shrunk to, if it is there no more; its own, if it is, or never was."""
    at, passed = name, {name}
    while connection.execute(_asked(at, project)).first() is None:
        asked = select(event.c.words).where(event.c.about == at, event.c.noun == GONE)
        asked = asked if project is None else asked.where(event.c.project == project)
        at = connection.scalar(asked.order_by(event.c.seq.desc()).limit(1)) or name
        if at in passed:
            return name
        passed.add(at)
    return at


def _columns(of: Row, met: Finding) -> Row:
    checkout = record_of(of["request"], JobRequest).checkout
    said = {
        "op": met.signature.op,
        "subject": met.subject.key,
        "kind": met.verdict.kind.value,
        "dtype": met.case.dtype,
        "title": met.verdict.message or f"{met.subject.key}: {met.verdict.kind.value}",
        "seen_commit": checkout.commit if checkout else "",
    }
    return {name: clean(text, 500) for name, text in said.items()}


def _met_again(connection: Connection, row: Row, of: Row, now: float, merged: Finding) -> None:
    """Count it; what was fixed is reopened, unless the job was begun before that and may have run what was before."""
    again = {name: value for name, value in _columns(of, merged).items() if name != "seen_commit" or value}
    another = row["job"] != of["id"] and of["kind"] != JobKind.SHRINK.value  # which a finding brings with itself
    if another:
        again["times"] = row["times"] + 1
    where = life.c.seq == row["seq"]
    connection.execute(update(life).where(where).values(seen=now, **again))
    if row["state"] == "new" and another:
        _enter(connection, row, "open", SYSTEM, f"met again by job {of['id']}")
    elif row["state"] == "fixed" and of["created"] > row["since"]:
        _enter(connection, row, "reopened", SYSTEM, f"fails again, in job {of['id']}")


def _enter(connection: Connection, row: Row, state: str, who: str, words: str, **more: Any) -> None:
    """Give a finding another state, and write that down."""
    values = {"state": state, "since": time.time(), **more}
    connection.execute(update(life).where(life.c.seq == row["seq"]).values(**values))
    about = {"noun": "finding", "about": row["finding"], "project": row["project"]}
    note(connection, who, state, words=words, **about)


def _shrink(connection: Connection, of: Row, finding: Finding) -> None:
    """Queue its shrinking, once: the key is the finding's, whoever has met it."""
    first = record_of(of["request"], JobRequest)
    request = JobRequest(
        kind=JobKind.SHRINK,
        project=first.project,
        target=first.target,
        checkout=first.checkout,
        settings=first.settings.but(seconds=None, cases=None),
        finding=finding,
        priority=SOON,
        key=f"shrink:{of['project'] or ''}:{finding.id}",
    )
    jobs.submit(connection, request, SYSTEM, sources=of["sources"])


def replayed(connection: Connection, of: Row, verdict: str, now: float) -> bool:
    """Take in a replay's word: only it makes a finding fixed, and it reopens what was.

    Of a project that is so at its last commit; of others it is only noted.
    Whether it counts: what somebody else has sent says nothing about the kernel that the finding is about.
    """
    name = of["finding"]
    found = connection.execute(_asked(name, of["project"] or "").with_for_update()).mappings().first()
    if found is None or verdict not in {"fixed", "fails", "flaky"}:
        return True
    row, checkout = dict(found), record_of(of["request"], JobRequest).checkout
    if not _counts(connection, of, row):
        return False
    commit = checkout.commit if checkout else ""
    where = f" at {commit[:12]}" if commit else ""
    by = f"{where}, in job {of['id']}"
    if (
        commit
        and (head := _head(connection, row["project"]))
        and not (head.startswith(commit) or commit.startswith(head))
    ):
        how = "passes" if verdict == "fixed" else verdict
        about = {"noun": "finding", "about": row["finding"], "project": row["project"]}
        note(
            connection,
            SYSTEM,
            "verified",
            words=f"the stored case {how}{by}; the last commit is {head[:12]}",
            **about,
        )
    elif verdict == "fixed" and row["state"] != "fixed":
        _enter(connection, row, "fixed", SYSTEM, f"the stored case passes{by}", fixed_commit=commit)
        _mark(connection, row, State.FIXED, f"passes{where}", now)
    elif verdict != "fixed" and row["state"] == "fixed":
        _enter(connection, row, "reopened", SYSTEM, f"the stored case {verdict}{by}")
        _mark(connection, row, State.REGRESSION, f"fails again{where}", now)
    elif verdict != "fixed" and row["state"] == "new":
        _enter(connection, row, "open", SYSTEM, f"the stored case {verdict}{by}")
    return True


def _head(connection: Connection, project: str) -> str:
    """The commit of a project that was told of last; empty: there is none."""
    return str(connection.scalar(select(projects.c.head).where(projects.c.name == project)) or "")


def _counts(connection: Connection, of: Row, row: Row) -> bool:
    """Whether a replay is of the kernel of the finding: of its project, of the same files, or by who sent them."""
    known = record(connection, row["finding"], row["project"])
    request = record_of(of["request"], JobRequest)
    if row["project"]:
        said = connection.scalar(select(projects.c.record).where(projects.c.name == row["project"]))
        if said and request.checkout and request.checkout.repository == record_of(said, Project).repository:
            return True
    elif not known.subject.is_own or (known.sent and own_of(of, known).sent == known.sent):
        return True
    first = connection.scalar(select(job.c.owner).where(job.c.id == row["job"]))
    scopes = connection.scalar(select(token.c.scopes).where(token.c.name == of["owner"])) or ""
    return of["owner"] in {first, SYSTEM} or Scope.ADMIN in scopes.split()


def bisected(connection: Connection, of: Row, verdict: str, commit: str) -> None:
    """Write down the commit that brought a finding, or fixed it, as a bisection says."""
    column = life.c.brought_by if verdict == "fails" else life.c.fixed_commit
    mine = (life.c.project == (of["project"] or ""), life.c.finding == of["finding"])
    if connection.execute(update(life).where(*mine).values({column: commit})).rowcount:
        words = f"{'brought' if verdict == 'fails' else 'fixed'} by {commit[:12]}"
        about = {"noun": "finding", "about": of["finding"], "project": of["project"]}
        note(connection, SYSTEM, "bisected", words=words, **about)


def _mark(connection: Connection, row: Row, state: State, words: str, now: float) -> None:
    stored = record(connection, row["finding"], row["project"])
    at = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    history = (*stored.history, Event(at=at, state=state, what=words))
    put(connection, row["project"], stored.but(state=state, history=history))


def wontfix(
    connection: Connection, name: str, project: str | None, who: str, *, reason: str, until: float | None
) -> None:
    """Take a finding off the list, with a reason, until a time if one is given. Raises MissingError."""
    row = row_of(connection, name, project, lock=True)
    _enter(connection, row, "wontfix", who, reason, reason=clean(reason), until=until)


def reopen(connection: Connection, name: str, project: str | None, who: str, words: str = "by hand") -> None:
    """Put a finding on the list again. Raises MissingError."""
    row = row_of(connection, name, project, lock=True)
    _enter(connection, row, "reopened", who, words, reason="", until=None)


def discuss(connection: Connection, name: str, project: str | None, who: str, address: str) -> None:
    """Say where people talk about a finding. Raises MissingError, and UsageError for what is no address of the web."""
    try:
        parts = urlsplit(address)
        good = parts.scheme in {"http", "https"} and parts.hostname and address.isprintable() and " " not in address
    except ValueError:
        good = False
    if not good:
        raise UsageError(f"{address[:100]!r} is no address of a discussion; write https://...")
    row = row_of(connection, name, project)
    note(connection, who, DISCUSSED, noun="finding", about=row["finding"], words=address, project=row["project"])


def expire(connection: Connection, now: float) -> int:
    """Put findings on the list again whose time off it is over; how many."""
    over = select(life).where(life.c.state == "wontfix", life.c.until <= now)
    rows = [dict(row) for row in connection.execute(over).mappings()]
    for row in rows:
        _enter(connection, row, "reopened", SYSTEM, "the time for which it was let be is over", reason="", until=None)
    return len(rows)


def row_of(connection: Connection, name: str, project: str | None = None, *, lock: bool = False) -> Row:
    """The row of the life of a finding, or of what it was shrunk to. Raises MissingError."""
    asked = _asked(_now(connection, name, project), project)
    found = connection.execute(asked.with_for_update() if lock else asked).mappings().first()
    if found is None:
        raise MissingError(f"there is no finding {name[:40]!r}")
    return dict(found)


def in_project(connection: Connection, name: str, project: str | None) -> str | None:
    """The project that a finding is asked for in; where none is named, none is meant, or the only one that has it.

    Raises UsageError if several have it.
    """
    if project is not None:
        return project
    known = connection.scalars(select(life.c.project).where(life.c.finding == name).order_by(life.c.seq)).all()
    if len(known) > 1 and "" not in known:
        raise UsageError(f"{name} is a finding of {' and of '.join(known)}: name the project")
    return "" if "" in known else None


def met(connection: Connection, names: Sequence[str], project: str) -> list[Row]:
    """Rows of what a job has met, or what that was shrunk to; what is not there is left out."""
    mine = select(life).where(life.c.project == project)
    rows = {row["finding"]: dict(row) for row in connection.execute(mine.where(life.c.finding.in_(names))).mappings()}
    later = {_now(connection, name, project) for name in names if name not in rows} - set(rows)
    return [*rows.values(), *map(dict, connection.execute(mine.where(life.c.finding.in_(later))).mappings())]


def _asked(name: str, project: str | None) -> Any:
    asked = select(life).where(life.c.finding == name)
    return (asked if project is None else asked.where(life.c.project == project)).order_by(life.c.seq).limit(1)


def listed(
    connection: Connection,
    *,
    states: Iterable[str] = (),
    project: str | None = None,
    op: str | None = None,
    subject: str | None = None,
    in_projects: bool = False,
    after: int | None = None,
    limit: int = 50,
) -> tuple[list[Row], int | None]:
    """Rows of findings, the latest first, and where the next page begins; None: there is none.

    in_projects: none of those that were met outside of projects.
    """
    said = ((life.c.project, project), (life.c.op, op), (life.c.subject, subject))
    asked = [column == value for column, value in said if value is not None]
    if in_projects:
        asked.append(life.c.project != "")
    if wanted := list(states):
        asked.append(life.c.state.in_(wanted))
    if after is not None:
        asked.append(life.c.seq < after)
    rows = connection.execute(select(life).where(and_(True, *asked)).order_by(life.c.seq.desc()).limit(limit + 1))
    found = [dict(row) for row in rows.mappings()]
    return found[:limit], found[limit - 1]["seq"] if len(found) > limit else None


def standing(row: Row) -> FindingStanding:
    """A row as it is told."""
    same = ("op", "subject", "kind", "dtype", "title", "state", "times", "reason", "job")
    commits = ("seen_commit", "fixed_commit", "brought_by")
    times = {name: moment(row[name]) for name in ("since", "created", "seen", "until")}
    said = {name: row[name] for name in (*same, *commits)}
    return FindingStanding(id=row["finding"], project=row["project"] or None, **said, **times)
