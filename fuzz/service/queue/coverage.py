"""Coverage of a search that is done in parts: the cells of all of them together, and when the last new one was met."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError
from sqlalchemy import Connection, select

from kernel_assay.corpus.storage.sql.service_tables import artifact
from kernel_assay.fuzz.service.protocol import Outcome
from kernel_assay.fuzz.service.queue.database import Row, clean, plain
from kernel_assay.fuzz.service.queue.rows import insert

NAME = "coverage.json"
MOST_CELLS, MOST_POINTS = 20_000, 500
Time = Annotated[float, Field(ge=0, le=1e11)]


class Covered(BaseModel):
    """What the parts that have ended cover; in the record of one, the field `coverage`."""

    coverage: dict[Annotated[str, Field(max_length=500)], int] = {}
    """Cell -> outputs judged."""
    growth: list[tuple[Time, int]] = []
    """Seconds since the job began, and cells by then: a point for each part that brought a new one."""
    newest: Time = 0.0
    """When the last new cell or finding was met, in seconds since 1970."""

    def new_since(self, seconds: float) -> int:
        """Count the cells that were met first later than so many seconds after the job began."""
        return len(self.coverage) - max((cells for at, cells in self.growth if at <= seconds), default=0)


def covered(connection: Connection, job: str) -> Covered:
    """Tell what the parts of a job cover that have ended."""
    mine = (artifact.c.job == job, artifact.c.name == NAME)
    text = connection.scalar(select(artifact.c.body).where(*mine))
    return _read(json.loads(text)) if text else Covered()


def _read(text: str) -> Covered:
    """Read what may be anything: a worker has sent it, or something else by this name."""
    try:
        return Covered.model_validate_json(text)
    except ValidationError:
        return Covered()


def take_in(connection: Connection, of: Row, outcome: Outcome, now: float) -> int:
    """Add what a part covers to what its job does, whose row is locked; the job's cells."""
    before = covered(connection, of["id"])
    cells = dict(before.coverage)
    for cell, count in _read(outcome.record).coverage.items():
        if cell in cells or len(cells) < MOST_CELLS:
            cells[clean(cell)] = min(cells.get(cell, 0) + max(count, 0), 2**53)
    found = {finding.id for finding in outcome.findings} - set(of["found"].split())
    growth, newest = before.growth, before.newest
    if len(cells) > len(before.coverage) or found:
        newest = now - outcome.progress.quiet
        growth = [*growth, (now - (of["started"] or now), len(cells))][-MOST_POINTS:]
    if cells:
        _keep(connection, of["id"], Covered(coverage=cells, growth=growth, newest=newest))
    return len(cells)


def _keep(connection: Connection, job: str, said: Covered) -> None:
    new = insert(connection, artifact).values(job=job, name=NAME, body=plain(said.model_dump_json()))
    same = {"body": new.excluded.body}
    connection.execute(new.on_conflict_do_update(index_elements=["job", "name"], set_=same))
