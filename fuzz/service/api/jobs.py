"""Jobs: submitted, listed, followed, cancelled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from kernel_assay.fuzz.service.api.parameters import LARGEST, After, Id, Limit, Named, Of
from kernel_assay.fuzz.service.auth import Reader, Submitter
from kernel_assay.fuzz.service.core import Here, Service, told
from kernel_assay.fuzz.service.problems import RefusedError
from kernel_assay.fuzz.service.protocol import OVER, Job, JobKind, JobRequest, Jobs, JobState
from kernel_assay.fuzz.service.queue import jobs, life

router = APIRouter(tags=["jobs"])
TEXT = "text/plain; charset=utf-8"
FOLLOWED_SECONDS = 3600.0
"""An answer that goes on is ended after so long; who follows asks again."""


@router.post("/v1/jobs", status_code=201, response_model=Job)
def submit(request: JobRequest, here: Here, caller: Submitter) -> Response:
    """Queue a job; 200 instead of 201 for one that was submitted before with the same key."""
    with here.database.writing() as connection:
        name, new = jobs.submit(connection, life.since_fixed(connection, request), caller.name)
        job = jobs.get(connection, name)
    here.changed()
    return told(job, 201 if new else 200, {"Location": f"/v1/jobs/{name}"})


@router.get("/v1/jobs", response_model=Jobs)
def listed(
    here: Here,
    _: Reader,
    state: Annotated[list[JobState] | None, Query()] = None,
    project: Of = None,
    kind: JobKind | None = None,
    after: After = None,
    limit: Limit = 50,
) -> Response:
    """List jobs, the latest first."""
    here.sweep()
    chosen = {"states": [one.value for one in state or ()], "project": project, "kind": kind and kind.value}
    with here.database.reading() as connection:
        items, more = jobs.listed(connection, **chosen, after=after, limit=limit)  # type: ignore[arg-type]
    return told(Jobs(items=tuple(items), next=more))


@router.get("/v1/jobs/{name}", response_model=Job)
def get(name: Id, here: Here, _: Reader) -> Response:
    """Tell of one job."""
    here.sweep()
    with here.database.reading() as connection:
        return told(jobs.get(connection, name))


@router.post("/v1/jobs/{name}/cancel", response_model=Job)
def cancel(name: Id, here: Here, caller: Submitter) -> Response:
    """Take a job back; one that is over stays as it is."""
    with here.database.writing() as connection:
        jobs.cancel(connection, name, caller.name)
        job = jobs.get(connection, name)
    here.changed(over=name)
    return told(job)


@router.get("/v1/jobs/{name}/log")
def log(name: Id, here: Here, _: Reader, after: Annotated[int, Query(ge=0, le=LARGEST)] = 0) -> Response:
    """Give the log so far as text; the header Kassay-Log-End is `?after=` of what follows."""
    with here.database.reading() as connection:
        text, end = jobs.log_of(connection, name, after)
    return Response(text, media_type=TEXT, headers={"Kassay-Log-End": str(end)})


@router.get("/v1/jobs/{name}/artifacts/{artifact}")
def artifact(name: Id, artifact: Named, here: Here, _: Reader) -> Response:
    """Give a text that the job made, always as plain text."""
    with here.database.reading() as connection:
        text = jobs.artifact_of(connection, name, artifact)
    return Response(text.encode("utf-8", "replace"), media_type=TEXT)


@router.get("/v1/jobs/{name}/events")
async def events(name: Id, request: Request, here: Here, _: Reader) -> Response:
    """Follow a job: server-sent events `job` (its JSON, whenever that changes) and `log` (lines), until it is over."""
    await run_in_threadpool(_state, here, name, 0)  # so that one that is not there is a 404
    return StreamingResponse(_follow(here, name, request), media_type="text/event-stream")


def _state(here: Service, name: str, after: int) -> tuple[Job, str, int]:
    with here.database.reading() as connection:
        return jobs.get(connection, name), *jobs.log_of(connection, name, after)


async def _follow(here: Service, name: str, request: Request) -> AsyncIterator[str]:
    shown, end = "", 0
    for _ in range(int(FOLLOWED_SECONDS)):
        job, text, end = await run_in_threadpool(_state, here, name, end)
        if text:
            yield sent("log", text)
        if (now := job.model_dump_json()) != shown:
            shown = now
            yield sent("job", now)
        else:
            yield ": still there\n\n"
        if job.state in OVER or await request.is_disconnected():
            return
        await here.bell.wait(1.0)


def sent(kind: str, data: str) -> str:
    """A server-sent event."""
    lines = "".join(f"data: {line}\n" for line in data.replace("\r", "\n").split("\n"))
    return f"event: {kind}\n{lines}\n"


def judging(request: JobRequest) -> JobRequest:
    """The request, if it can be judged in the place of one who waits. Raises RefusedError for another kind."""
    if request.kind is not JobKind.JUDGE:
        raise RefusedError("here only jobs of kind judge are taken", status=422)
    return request
