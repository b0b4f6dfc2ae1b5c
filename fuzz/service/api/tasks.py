"""The workers' side: tasks leased, kept and ended, and the sources that they need."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query, Response

from kernel_assay.fuzz.service.api.parameters import LARGEST, TaskId
from kernel_assay.fuzz.service.auth import Worker
from kernel_assay.fuzz.service.core import Here, Service, told
from kernel_assay.fuzz.service.protocol import (
    Heartbeat,
    JobKind,
    JobState,
    Lease,
    LeaseRequest,
    Orders,
    Outcome,
    Sources,
    Waiting,
)
from kernel_assay.fuzz.service.queue import jobs, leases

router = APIRouter(tags=["workers' side"])
SMALL = 64 << 10
"""Bytes of sources that are sent with a lease, at most."""


@router.post("/v1/leases", response_model=Lease, responses={204: {"description": "nothing that it can do waits"}})
async def lease(asked: LeaseRequest, here: Here, caller: Worker) -> Response:
    """Lease a task; `wait` holds the question until there is one."""
    given = await here.until(_Asking(here, asked, caller.name), asked.wait, here.work)
    if given is not None:
        here.changed(queued=given.request.kind is JobKind.FUZZ)  # the next part of a search
    return Response(status_code=204) if given is None else told(given)


@router.get("/v1/tasks/waiting", response_model=Waiting)
async def waiting(
    here: Here,
    _: Worker,
    wait: Annotated[float, Query(ge=0, le=30)] = 0.0,
    kind: Annotated[list[JobKind], Query(max_length=20)] = [],  # noqa: B006  FastAPI copies it
) -> Response:
    """Count the tasks that wait for a worker; `wait` holds the question until there is one."""

    def ask() -> Waiting | None:
        here.sweep()
        with here.database.reading() as connection:
            found = leases.waiting_for(connection, kind, time.time())
        return Waiting(**found) if found else None

    return told(await here.until(ask, wait, here.work) or Waiting())


class _Asking:
    """One worker's question, asked again until there is a task."""

    def __init__(self, here: Service, asked: LeaseRequest, token: str) -> None:
        self._here, self._asked, self._token, self._met = here, asked, token, False

    def __call__(self) -> Lease | None:
        self._here.sweep()
        now, database = time.time(), self._here.database
        if self._met:  # who asks again and again is not to hold up writers
            with database.reading() as connection:
                if not leases.waiting(connection, self._asked):
                    return None
        with database.writing(lazy=True) as connection:
            if not self._met:
                leases.meet(connection, self._asked, self._token, now)
            given = leases.lease(connection, self._asked, now)
            if given and given.sources and given.request.checkout is None:
                given = given.but(files=jobs.small_sources(connection, given.sources, SMALL))
        self._met = True
        return given


@router.post("/v1/tasks/{name}/heartbeat", response_model=Orders)
def heartbeat(name: TaskId, beat: Heartbeat, here: Here, caller: Worker) -> Response:
    """Keep a task, tell how far it is, and learn what to do; 409: another worker has it."""
    with here.database.writing(lazy=True) as connection:
        leases.check_token(connection, name, caller.name)
        orders = leases.heartbeat(connection, name, beat, time.time())
    here.changed(queued=False)
    return told(orders)


@router.post("/v1/tasks/{name}/outcome", status_code=204)
def end(name: TaskId, outcome: Outcome, here: Here, caller: Worker) -> Response:
    """End a task: its state and its findings in one transaction; 409: another worker has it."""
    with here.database.writing() as connection:
        leases.check_token(connection, name, caller.name)
        leases.end(connection, name, outcome, time.time())
    more = bool(outcome.findings) or outcome.state is JobState.QUEUED  # a finding is to be shrunk
    here.changed(queued=more, over=name.rpartition("-")[0])
    return Response(status_code=204)


@router.get("/v1/tasks/{name}/sources", response_model=Sources)
def sources(name: TaskId, epoch: Annotated[int, Query(ge=1, le=LARGEST)], here: Here, caller: Worker) -> Response:
    """Give the files that were sent with the job of a task, to the worker that has it; 409: another one has."""
    with here.database.reading() as connection:
        leases.check_token(connection, name, caller.name)
        return told(jobs.sources_of(connection, leases.digest_of(connection, name, epoch)))
