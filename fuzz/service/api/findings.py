"""Findings, their life, and their reproducers."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.service.api.jobs import TEXT
from kernel_assay.fuzz.service.api.parameters import After, Id, Limit, Of
from kernel_assay.fuzz.service.auth import Reader, Submitter
from kernel_assay.fuzz.service.core import Here, told
from kernel_assay.fuzz.service.protocol import Findings, FindingTold, Standing, WontFix
from kernel_assay.fuzz.service.queue import life
from kernel_assay.fuzz.service.queue.rows import happened, until_of
from kernel_assay.fuzz.service.shown import program_of

router = APIRouter(tags=["findings"])


@router.get("/v1/findings", response_model=Findings)
def listed(
    here: Here,
    _: Reader,
    state: Annotated[list[Standing] | None, Query()] = None,
    project: Of = None,
    op: Of = None,
    after: After = None,
    limit: Limit = 50,
) -> Response:
    """List findings, the latest first."""
    with here.database.reading() as connection:
        rows, more = life.listed(connection, states=state or (), project=project, op=op, after=after, limit=limit)
    return told(Findings(items=tuple(life.standing(row) for row in rows), next=more))


@router.get("/v1/findings/{name}", response_model=FindingTold)
def get(name: Id, here: Here, _: Reader, project: Of = None) -> Response:
    """Tell of one finding: how it stands, its record, its life."""
    here.sweep()
    with here.database.reading() as connection:
        row = life.row_of(connection, name, life.in_project(connection, name, project))
        record = life.record(connection, row["finding"], row["project"])
        events = happened(connection, noun="finding", about=row["finding"], project=row["project"])
    return told(FindingTold(**life.standing(row).__dict__, record=record, events=tuple(events)))


@router.get("/v1/findings/{name}/reproducer")
def script(name: Id, here: Here, _: Reader, project: Of = None) -> Response:
    """Give a program that shows the failure, and needs nothing of this tool."""
    with here.database.reading() as connection:
        text = program_of(life.record(connection, name, life.in_project(connection, name, project)))
    return Response(text.encode("utf-8", "replace"), media_type=TEXT)


@router.post("/v1/findings/{name}/wontfix", status_code=204)
def wontfix(name: Id, said: WontFix, here: Here, caller: Submitter, project: Of = None) -> None:
    """Let a finding be, for a reason, until a time if one is given."""
    until = until_of(said.until)
    if until is not None and until <= time.time():
        raise UsageError("`until` is over; it can only end in the future")
    with here.database.writing() as connection:
        project = life.in_project(connection, name, project)
        life.wontfix(connection, name, project, caller.name, reason=said.reason, until=until)
    here.changed()


@router.post("/v1/findings/{name}/reopen", status_code=204)
def reopen(name: Id, here: Here, caller: Submitter, project: Of = None) -> None:
    """Put a finding on the list again."""
    with here.database.writing() as connection:
        life.reopen(connection, name, life.in_project(connection, name, project), caller.name)
    here.changed()


@router.get("/v1/events")
def events(here: Here, _: Reader, about: Of = None, after: After = None, limit: Limit = 100) -> dict[str, Any]:
    """List what happened, the latest first: to findings, jobs, projects, workers and tokens, and by whom."""
    with here.database.reading() as connection:
        found = happened(connection, about=about, after=after, limit=limit)
    return {"items": found, "next": int(found[-1]["seq"]) if len(found) == limit else None}
