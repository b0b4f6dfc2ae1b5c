"""Turns of tasks, so that workers are shared fairly, and the parts that a search is handed out in.

Start-time fair queuing: a task's tag is one more than the last tag of those it is done for, or the lowest that
waits, whichever is higher. Who queues a thousand tasks holds up nobody who queues one after that.
"""

from __future__ import annotations

import hashlib
import math

from sqlalchemy import Connection, func, select

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.campaign import DEFAULT_SECONDS
from kernel_assay.corpus.storage.sql.service_tables import share, task
from kernel_assay.fuzz.service.protocol import RANGE, JobKind, JobRequest
from kernel_assay.fuzz.service.queue.rows import insert

SLICE_SECONDS = 30.0
"""The longest part of a search by time."""


def parts_of(request: JobRequest) -> int:
    """Tasks that a job consists of. Raises UsageError for a search by cases and by seconds."""
    said = request.settings
    if said.cases is not None and said.seconds is not None:
        raise UsageError("seconds and cases exclude one another; name one of them")
    if request.kind is not JobKind.FUZZ:
        return 1
    if said.cases is not None:
        return math.ceil(said.cases / RANGE)
    return math.ceil((said.seconds or DEFAULT_SECONDS) / SLICE_SECONDS)


def part(request: JobRequest, place: int) -> tuple[int, JobRequest]:
    """Cases of one part (0: its seconds end it), and the request as its worker is to see it: without what was sent."""
    said = request.settings
    if request.kind is not JobKind.FUZZ:
        return 0, request.but(sources=None)
    if said.cases is not None:
        return min(RANGE, said.cases - place * RANGE), request.but(sources=None)
    left = (said.seconds or DEFAULT_SECONDS) - place * SLICE_SECONDS
    return 0, request.but(sources=None, settings=said.but(seconds=min(SLICE_SECONDS, left)))


def seed_of(seed: int, place: int) -> int:
    """The seed of one part of a search, below 2**63."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{place}".encode()).digest()[:8], "big") >> 1


def next_tag(connection: Connection, name: str) -> int:
    """The tag of the next task that is queued for somebody."""
    waiting = select(func.min(task.c.tag)).where(task.c.state == "queued")
    least = connection.scalar(waiting)
    if least is None:
        least = connection.scalar(select(func.max(share.c.tag))) or 0
    new = insert(connection, share).values(name=name, tag=least)
    higher = func.max if connection.dialect.name == "sqlite" else func.greatest
    raised = {"tag": higher(share.c.tag + 1, new.excluded.tag)}
    return int(
        connection.execute(
            new.on_conflict_do_update(index_elements=["name"], set_=raised).returning(share.c.tag)
        ).scalar_one()
    )
