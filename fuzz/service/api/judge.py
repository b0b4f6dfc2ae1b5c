"""Judging for training loops and leaderboards: the verdict in the reply, and at once if the same was judged before."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool

from kernel_assay.fuzz.service.api.jobs import judging
from kernel_assay.fuzz.service.auth import Submitter
from kernel_assay.fuzz.service.core import Here, Service, told
from kernel_assay.fuzz.service.protocol import Job, JobRequest, JobState
from kernel_assay.fuzz.service.queue import jobs

router = APIRouter(tags=["judge"])
WAIT, LONGEST = 20.0, 300.0
CACHE = "Kassay-Cache"
AWAITED = 8
"""Priority, at least: somebody waits."""


@router.post("/v1/judge", response_model=Job, responses={202: {"model": Job}})
async def judge(
    request: JobRequest,
    here: Here,
    caller: Submitter,
    wait: Annotated[float, Query(ge=0, le=LONGEST)] = WAIT,
) -> Response:
    """Judge a kernel: 200 with the job when it is over, or 202 with its Location after `wait` seconds.

    What has the same sources, target and settings as a job before is answered by that one; the header Kassay-Cache says
    so: `hit`, `joined` (it is on its way), or `miss`.
    """
    name, how = await run_in_threadpool(_begun, here, judging(request), caller.name)
    job = await here.until(lambda: _over(here, name), wait, here.bell, name)
    headers = {CACHE: how, "Location": f"/v1/jobs/{name}"}
    if job is not None:
        return told(job, 200, headers)
    return told(await run_in_threadpool(_now, here, name), 202, headers)


def _begun(here: Service, request: JobRequest, owner: str) -> tuple[str, str]:
    with here.database.reading() as connection:
        sources = request.sources.digest if request.sources else ""
        known = jobs.same_answer(connection, jobs.content_of(request.but(sources=None), sources))
    if known:
        return known[0], "hit" if known[1] is JobState.DONE else "joined"
    asked = request.but(priority=max(request.priority, AWAITED))
    with here.database.writing() as connection:
        name, _ = jobs.submit(connection, asked, owner)
    here.changed()
    return name, "miss"


def _now(here: Service, name: str) -> Job:
    with here.database.reading() as connection:
        return jobs.get(connection, name)


def _over(here: Service, name: str) -> Job | None:
    with here.database.reading() as connection:
        return jobs.get(connection, name) if jobs.is_over(connection, name) else None
