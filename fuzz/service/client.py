"""The typed client of the service: what `kassay remote` does, and what workers ask, as methods of one class."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.service.protocol import (
    OVER,
    CommitPush,
    Findings,
    FindingTold,
    Heartbeat,
    Job,
    JobKind,
    JobRequest,
    Jobs,
    Lease,
    LeaseRequest,
    Orders,
    Outcome,
    Project,
    ProjectTold,
    Scope,
    Sources,
    TokenRequest,
    Waiting,
    WontFix,
)
from kernel_assay.fuzz.service.repository import is_path

SECONDS = 30.0
"""For an answer, besides what a question asks to wait."""
TRIES, PAUSE = 4, 0.5
"""Of a question that may be asked twice, and seconds before the second time; twice as many before each further one."""
_BUSY = frozenset({429, 502, 503, 504})
_NOTHING: Mapping[str, Any] = MappingProxyType({})
M = TypeVar("M", bound=BaseModel)


class ServiceError(UsageError):
    """The server has refused a request, and says why in one sentence."""

    def __init__(self, status: int, detail: str) -> None:
        """status: of HTTP."""
        super().__init__(detail)
        self.status = status


class AwayError(UsageError):
    """The server does not answer; it may do so later."""


class Client:
    """A server, as somebody with a token sees it. Use it as a context manager, in any thread.

    Raises ServiceError for what the server refuses, and AwayError where nobody answers.
    """

    def __init__(self, server: str, token: str, transport: httpx.BaseTransport | None = None) -> None:
        """server: its address, as `http://127.0.0.1:8765`. Raises UsageError for what is none."""
        try:
            url = httpx.URL(server if "://" in server else f"http://{server}")
        except httpx.InvalidURL:
            url = httpx.URL()
        if url.scheme not in {"http", "https"} or not url.host:
            raise UsageError(f"{server!r} is no address of a server; write http://HOST:PORT")
        self.server = str(url).rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=self.server, headers=headers, timeout=SECONDS, transport=transport)

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close its connections."""
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    # jobs

    def submit(self, request: JobRequest) -> Job:
        """Queue a job, once: it is given a key of its own if it has none, so that it can be sent again."""
        request = request if request.key else request.but(key=uuid.uuid4().hex)
        return self._model(Job, "POST", "/v1/jobs", request, again=True)

    def judge(self, request: JobRequest, wait: float = 20.0) -> Job:
        """Judge a kernel; the job, which is over unless that took longer than `wait` seconds."""
        return self._model(Job, "POST", "/v1/judge", request, params={"wait": wait}, again=True, wait=wait)

    def job(self, name: str) -> Job:
        """One job."""
        return self._model(Job, "GET", f"/v1/jobs/{name}")

    def jobs(self, **chosen: Any) -> Jobs:
        """A page of jobs. chosen: state, project, kind, after, limit."""
        return self._model(Jobs, "GET", "/v1/jobs", params=chosen)

    def cancel(self, name: str) -> Job:
        """Take a job back."""
        return self._model(Job, "POST", f"/v1/jobs/{name}/cancel")

    def log(self, name: str, after: int = 0) -> tuple[str, int]:
        """The log of a job from a place on, and the place behind it."""
        answer = self._ask("GET", f"/v1/jobs/{name}/log", params={"after": after})
        return answer.text, int(answer.headers.get("Kassay-Log-End", after))

    def artifact(self, name: str, artifact: str) -> str:
        """A text that a job made."""
        return self._ask("GET", f"/v1/jobs/{name}/artifacts/{artifact}").text

    def follow(self, name: str, every: float = 1.0) -> Iterator[Job]:
        """Yield a job again and again, until it is over; a server that is away is waited for."""
        while True:
            try:
                job = self.job(name)
            except AwayError:
                time.sleep(max(every, 1.0))
                continue
            yield job
            if job.state in OVER:
                return
            time.sleep(every)

    # findings and projects

    def findings(self, **chosen: Any) -> Findings:
        """A page of findings. chosen: project, op, state, after, limit."""
        return self._model(Findings, "GET", "/v1/findings", params=chosen)

    def finding(self, name: str, project: str | None = None) -> FindingTold:
        """One finding, with its record. project: which one's, where several have it."""
        return self._model(FindingTold, "GET", f"/v1/findings/{name}", params=_of(project))

    def reproducer(self, name: str, project: str | None = None) -> str:
        """A program that shows a finding."""
        return self._ask("GET", f"/v1/findings/{name}/reproducer", params=_of(project)).text

    def wontfix(self, name: str, said: WontFix, project: str | None = None) -> None:
        """Let a finding be."""
        self._ask("POST", f"/v1/findings/{name}/wontfix", said, params=_of(project))

    def reopen(self, name: str, project: str | None = None) -> None:
        """Put a finding on the list again."""
        self._ask("POST", f"/v1/findings/{name}/reopen", params=_of(project))

    def projects(self) -> list[ProjectTold]:
        """All projects."""
        return [ProjectTold.model_validate(one) for one in self._ask("GET", "/v1/projects").json()["items"]]

    def project(self, name: str) -> ProjectTold:
        """One project."""
        return self._model(ProjectTold, "GET", f"/v1/projects/{name}")

    def put_project(self, name: str, project: Project) -> ProjectTold:
        """Begin a project, or change it."""
        return self._model(ProjectTold, "PUT", f"/v1/projects/{name}", project, again=True)

    def delete_project(self, name: str) -> None:
        """Search a project no more; its findings stay."""
        self._ask("DELETE", f"/v1/projects/{name}")

    def push(self, name: str, commit: str) -> dict[str, list[str]]:
        """Tell of a new commit; the ids of its `jobs`, and of those `queued` now, `waiting` or running, and `done`."""
        said = CommitPush(commit=commit)
        return dict(self._ask("POST", f"/v1/projects/{name}/commits", said, again=True).json())

    # workers and tokens

    def workers(self) -> list[dict[str, Any]]:
        """All workers, and what they do."""
        return list(self._ask("GET", "/v1/workers").json()["items"])

    def drain(self, name: str) -> None:
        """Ask a worker to take no further task."""
        self._ask("POST", f"/v1/workers/{name}/drain")

    def undrain(self, name: str) -> None:
        """Let a worker take tasks again."""
        self._ask("DELETE", f"/v1/workers/{name}/drain")

    def make_token(self, name: str, scopes: tuple[Scope, ...], days: float | None = None) -> str:
        """Make a token; its secret, which nobody tells again."""
        said = TokenRequest(name=name, scopes=scopes, days=days)
        return str(self._ask("POST", "/v1/tokens", said).json()["token"])

    def tokens(self) -> list[dict[str, Any]]:
        """All tokens, without their secrets."""
        return list(self._ask("GET", "/v1/tokens").json()["items"])

    def revoke(self, name: str) -> None:
        """Make a token worthless."""
        self._ask("DELETE", f"/v1/tokens/{name}")

    # the side of workers

    def lease(self, asked: LeaseRequest) -> Lease | None:
        """A task; None: there is none now."""
        answer = self._ask("POST", "/v1/leases", asked, wait=asked.wait)
        return None if answer.status_code == 204 else _read(Lease, answer)

    def waiting(self, kinds: Sequence[JobKind] = (), wait: float = 0.0) -> Waiting:
        """Count the tasks of these kinds (none: of all) that wait, as soon as there are any."""
        return self._model(Waiting, "GET", "/v1/tasks/waiting", params={"kind": list(kinds), "wait": wait}, wait=wait)

    def heartbeat(self, task: str, beat: Heartbeat) -> Orders:
        """Keep a task."""
        return self._model(Orders, "POST", f"/v1/tasks/{task}/heartbeat", beat)

    def end(self, task: str, outcome: Outcome) -> None:
        """Tell what came of a task."""
        self._ask("POST", f"/v1/tasks/{task}/outcome", outcome)

    def sources(self, task: str, epoch: int) -> Sources:
        """The files that were sent with the job of a task that is leased."""
        return self._model(Sources, "GET", f"/v1/tasks/{task}/sources", params={"epoch": epoch})

    def _model(self, kind: type[M], method: str, path: str, body: BaseModel | None = None, **how: Any) -> M:
        return _read(kind, self._ask(method, path, body, **how))

    def _ask(
        self,
        method: str,
        path: str,
        body: BaseModel | None = None,
        *,
        params: Mapping[str, Any] = _NOTHING,
        again: bool = False,
        wait: float = 0.0,
    ) -> httpx.Response:
        """The answer. again: whether it may be asked twice; what only reads always is."""
        for pause in [PAUSE * 2**n for n in range(TRIES - 1)] if again or method == "GET" else []:
            try:
                return self._once(method, path, body, params, wait)
            except AwayError:
                time.sleep(pause)
        return self._once(method, path, body, params, wait)

    def _once(
        self, method: str, path: str, body: BaseModel | None, params: Mapping[str, Any], wait: float
    ) -> httpx.Response:
        try:
            answer = self._http.request(
                method,
                path,
                content=None if body is None else body.model_dump_json(),
                headers={} if body is None else {"Content-Type": "application/json"},
                params={name: value for name, value in params.items() if value is not None},
                timeout=SECONDS + wait,
            )
        except httpx.TransportError as error:
            raise AwayError(f"the server {self.server} cannot be reached: {str(error) or 'no answer'}") from error
        if answer.status_code in _BUSY:
            raise AwayError(f"the server {self.server} is busy ({answer.status_code})")
        if answer.status_code >= 300:
            raise ServiceError(answer.status_code, _said(answer))
        return answer


def searched_at(told: ProjectTold) -> str:
    """The commit of a project's last search that has ended; empty: there is none, or it was of no commit."""
    return told.last.checkout.commit if told.last and told.last.checkout else ""


def untaken(job: Job, workers: Iterable[Mapping[str, Any]]) -> str:
    """Say that no worker which was there in the last minute takes a job, and what would; empty: one does.

    workers: as `Client.workers` tells of them.
    """
    if any(_takes(one, job) for one in workers):
        return ""
    cuda = job.settings.device == "cuda"
    start = "kassay work --device cuda, or serve --engine ray with a cluster that has a GPU" if cuda else "kassay work"
    start += " --allow-local, on the machine that has the repository" if _is_local(job) else ""
    return f"No worker that takes this job has asked for work in the last minute. Start one: {start}"


def _is_local(job: Job) -> bool:
    return job.checkout is not None and is_path(job.checkout.repository)


def _takes(worker: Mapping[str, Any], job: Job) -> bool:
    fits = (job.settings.device == "cpu" or bool(worker["devices"])) and (worker["local"] or not _is_local(job))
    return bool(
        worker["alive"] and not worker["drain"] and fits and (not worker["kinds"] or job.kind.value in worker["kinds"])
    )


def _of(project: str | None) -> dict[str, str]:
    return {} if project is None else {"project": project}


def _read(kind: type[M], answer: httpx.Response) -> M:
    """Raises UsageError for an answer of something that is no such server."""
    try:
        return kind.model_validate_json(answer.content)
    except ValidationError as error:
        raise UsageError(f"{answer.url} does not answer as a server of kassay: {error.error_count()} faults") from error


def _said(answer: httpx.Response) -> str:
    """The sentence of a refusal."""
    try:
        said = answer.json()
        return str(said.get("detail") or said.get("title")) if isinstance(said, dict) else answer.reason_phrase
    except ValueError:
        return f"{answer.url} answers {answer.status_code} {answer.reason_phrase}"
