"""Parts that all endpoints share: database, settings, doorkeeper, and a bell that rings when something changes."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, TypeVar
from weakref import WeakValueDictionary

from fastapi import Depends, Request, Response
from pydantic import BaseModel
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as DatabaseTimeout
from starlette.concurrency import run_in_threadpool

from kernel_assay.fuzz.service.auth import Doorkeeper
from kernel_assay.fuzz.service.metrics import Metrics
from kernel_assay.fuzz.service.notify import Notifier, check_addresses
from kernel_assay.fuzz.service.queue import leases, life, upkeep
from kernel_assay.fuzz.service.queue.database import ServerDatabase
from kernel_assay.fuzz.service.settings import ServiceSettings

LOG = logging.getLogger("kassay.service")
Answer = TypeVar("Answer")
SWEEP_SECONDS, UPKEEP_SECONDS, POLL_SECONDS = 1.0, 30.0, 1.0
"""How often leases are looked through, how often the schedule is; and a question that waits asks again by itself."""


OUTAGE_SECONDS = 60.0
"""Between two lines of the log about a database that does not answer."""


class Bell:
    """Wakes who waits, from any thread, when something has changed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waited = WeakValueDictionary[str, asyncio.Event]()
        """What is waited for, by name; who waits holds it."""

    def hang(self) -> None:
        """Belong to the running loop."""
        self._loop = asyncio.get_running_loop()

    def ring(self, name: str = "") -> None:
        """Wake all who wait for that name."""
        if self._loop is not None and not self._loop.is_closed():
            with suppress(RuntimeError):  # the loop ends
                self._loop.call_soon_threadsafe(self._wake, name)

    def _wake(self, name: str) -> None:
        if (event := self._waited.pop(name, None)) is not None:
            event.set()

    async def wait(self, seconds: float, name: str = "") -> None:
        """Sleep until it rings for that name, or until the time is over."""
        event = self._waited.setdefault(name, asyncio.Event())
        with suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), seconds)


class Service:
    """One server's parts."""

    def __init__(self, settings: ServiceSettings, database: ServerDatabase | None = None) -> None:
        """Open the database, and bring it up to date. Raises UsageError."""
        self.settings = settings
        self.database = database or ServerDatabase(settings.database)
        self.door = Doorkeeper(self.database, public=settings.public)
        self.bell, self.work = Bell(), Bell()
        """Rung when anything has changed, also by the name of a job that may be over; and when there may be a task."""
        self.metrics = Metrics(self.database)
        check_addresses(settings.notify)
        self._notifier = Notifier(self.database, settings.notify, settings.address, settings.digest_seconds)
        self.started = time.time()
        self._outage = -OUTAGE_SECONDS
        self._swept, self._sweeping = 0.0, threading.Lock()

    def outage(self, error: SQLAlchemyError) -> None:
        """Write down that the database does not answer: a line, and at most one a minute however many ask."""
        if (now := time.monotonic()) - self._outage > OUTAGE_SECONDS:
            self._outage = now
            cause = getattr(error, "orig", None) or error
            said = " ".join(str(cause).split())[:300]
            LOG.error("the database does not answer: %s: %s", type(error).__name__, said)

    def changed(self, *, queued: bool = True, over: str = "") -> None:
        """Wake who looks; if a task may have been queued, who waits for one; and who waits for a job, if one ended."""
        self.bell.ring()
        if over:
            self.bell.ring(over)
        if queued:
            self.work.ring()

    def sweep(self) -> None:
        """Take back leases that have run out, at most once a second: nothing is told of that is not so any more."""
        now = time.time()
        with self._sweeping:
            if now - self._swept < SWEEP_SECONDS:
                return
            self._swept = now
        with self.database.reading() as connection:
            if not leases.overdue(connection, now):
                return
        with self.database.writing() as connection:
            leases.expire(connection, now)
        self.changed()

    def keep_up(self) -> None:
        """Do what is due: searches of projects, decisions that have ended, old logs."""
        with self.database.writing() as connection:
            now = time.time()
            changed = life.expire(connection, now) + upkeep.begin_searches(connection, now)
            upkeep.forget(connection, now - self.settings.retention_days * 86_400)
        if changed:
            self.changed()

    async def run_upkeep(self) -> None:
        """Sweep and keep up for as long as the server lives."""
        kept = -UPKEEP_SECONDS
        while True:
            try:
                await run_in_threadpool(self.sweep)
                await run_in_threadpool(self._notifier.tell, time.time())
                if time.monotonic() - kept > UPKEEP_SECONDS:
                    kept = time.monotonic()
                    await run_in_threadpool(self.keep_up)
            except (OperationalError, InterfaceError, DatabaseTimeout) as error:
                self.outage(error)
            except Exception:
                LOG.exception("upkeep failed; it goes on")
            await asyncio.sleep(SWEEP_SECONDS)

    async def until(
        self, ask: Callable[[], Answer | None], seconds: float, bell: Bell, name: str = ""
    ) -> Answer | None:
        """Ask, in a thread, until there is an answer or the time is over: at each ring of a name, and once a second."""
        end = time.monotonic() + seconds
        while True:
            waiting = asyncio.ensure_future(bell.wait(POLL_SECONDS, name))  # before it asks: no ring is missed
            await asyncio.sleep(0)
            answer = await run_in_threadpool(ask)
            left = end - time.monotonic()
            if answer is not None or left <= 0:
                waiting.cancel()
                return answer
            await asyncio.wait([waiting], timeout=left)


def service_of(request: Request) -> Service:
    """The server's parts, for an endpoint."""
    found: Service = request.app.state.service
    return found


async def _here(request: Request) -> Service:
    return service_of(request)  # what is not asynchronous is asked for in a thread


Here = Annotated[Service, Depends(_here)]


def told(record: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A record as an answer."""
    return Response(record.model_dump_json(), status, headers, "application/json")
