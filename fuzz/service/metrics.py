"""Figures for Prometheus: what the database says when it is asked, and requests as they come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, func, select

from kernel_assay.corpus.storage.sql.service_tables import event, job, life, task, worker
from kernel_assay.fuzz.service.protocol import LEASE_SECONDS, JobState, Standing
from kernel_assay.fuzz.service.queue.database import ServerDatabase
from kernel_assay.fuzz.service.queue.rows import pairs


class Metrics:
    """The registry of one server."""

    def __init__(self, database: ServerDatabase) -> None:
        """database: of which figures are told."""
        self._registry = CollectorRegistry()
        self._registry.register(_Kept(database))
        self.requests = Counter("kassay_requests", "Requests answered.", ("method", "status"), registry=self._registry)
        self.seconds = Histogram("kassay_request_seconds", "Time to the end of an answer.", registry=self._registry)

    def note(self, method: str, status: int, seconds: float) -> None:
        """Count a request; a strange method is counted as another."""
        known = method if method in {"GET", "HEAD", "POST", "PUT", "DELETE"} else "other"
        self.requests.labels(known, str(status)).inc()
        self.seconds.observe(seconds)

    def text(self) -> bytes:
        """All figures, in the text format."""
        return generate_latest(self._registry)


class _Kept(Collector):
    """Figures of the database."""

    def __init__(self, database: ServerDatabase) -> None:
        self._database = database

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: the database is not asked before somebody wants to know."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Yield jobs, tasks, findings and workers as they are now."""
        with self._database.reading() as connection:
            yield _by_state(connection, "kassay_jobs", "Jobs.", job.c.state, [s.value for s in JobState])
            yield _by_state(connection, "kassay_findings", "Findings.", life.c.state, [s.value for s in Standing])
            waits = connection.scalar(select(func.min(job.c.created)).where(job.c.state == "queued"))
            yield _gauge("kassay_oldest_queued_seconds", "Age of the oldest job that waits.", _age(waits))
            queued = select(func.count()).select_from(task).where(task.c.state == "queued")
            yield _gauge("kassay_tasks_queued", "Tasks that wait.", connection.scalar(queued) or 0)
            alive = select(func.count()).select_from(worker).where(worker.c.seen > time.time() - LEASE_SECONDS)
            yield _gauge("kassay_workers_alive", "Workers seen of late.", connection.scalar(alive) or 0)
            lost = select(func.count()).select_from(event).where(event.c.noun == "job", event.c.what == "lost")
            yield _gauge("kassay_leases_lost", "Leases that have run out.", connection.scalar(lost) or 0)


def _age(since: float | None) -> float:
    return 0.0 if since is None else max(time.time() - since, 0.0)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=value)


def _by_state(connection: Connection, name: str, words: str, column: Any, states: list[str]) -> Metric:
    counts = pairs(connection, select(column, func.count()).group_by(column))
    family = GaugeMetricFamily(name, words, labels=("state",))
    for state in states:
        family.add_metric([state], counts.get(state, 0))
    return family
