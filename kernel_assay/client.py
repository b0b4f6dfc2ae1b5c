"""The client of the service: submit jobs, judge kernels, read findings.

    from kernel_assay.client import Client, JobKind, JobRequest, Sources, Target

    with Client("http://127.0.0.1:8765", token) as client:
        job = client.judge(JobRequest(kind=JobKind.JUDGE, target=Target(ops=("silu",), subjects=("my.py",)),
                                      sources=Sources(files={"my.py": text})))
    print(job.verdict, job.message)
"""

from typing import Any

from pydantic import BaseModel, ValidationError

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.service import protocol
from kernel_assay.fuzz.service.client import AwayError, Client, ServiceError
from kernel_assay.fuzz.service.protocol import OVER, Job, JobKind, JobState


class _Said(BaseModel):
    """A record that says in one sentence what no server would take of it, and never what was to be sent."""

    def __init__(self, **said: Any) -> None:
        """Raises UsageError."""
        try:
            super().__init__(**said)
        except ValidationError as error:
            raise UsageError(protocol.sentence_of(error, type(self).__name__)) from None


class Checkout(_Said, protocol.Checkout):
    """A commit of a project's repository; the worker fetches it."""


class JobRequest(_Said, protocol.JobRequest):
    """A request for a job."""


class Project(_Said, protocol.Project):
    """A repository whose kernels are searched for bugs, again and again."""


class Settings(_Said, protocol.Settings):
    """Settings of a run that a job may make; whatever is None is the command line's default."""


class Sources(_Said, protocol.Sources):
    """Files that are sent: relative path -> text, 200 files and 2 MB in all at most."""


class Target(_Said, protocol.Target):
    """Kernels, and the op or reference that they are held to. Paths lie in the sources or in the checkout."""


__all__ = [
    "OVER",
    "AwayError",
    "Checkout",
    "Client",
    "Job",
    "JobKind",
    "JobRequest",
    "JobState",
    "Project",
    "ServiceError",
    "Settings",
    "Sources",
    "Target",
]
