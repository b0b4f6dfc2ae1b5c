"""The client of the service: submit jobs, judge kernels, read findings.

    from kernel_assay.client import Client, JobKind, JobRequest, Sources, Target

    with Client("http://127.0.0.1:8765", token) as client:
        job = client.judge(JobRequest(kind=JobKind.JUDGE, target=Target(ops=("silu",), subjects=("my.py",)),
                                      sources=Sources(files={"my.py": text})))
    print(job.verdict, job.message)
"""

from kernel_assay.fuzz.service.client import AwayError, Client, ServiceError
from kernel_assay.fuzz.service.protocol import (
    Checkout,
    Job,
    JobKind,
    JobRequest,
    JobState,
    Project,
    Settings,
    Sources,
    Target,
)

__all__ = [
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
