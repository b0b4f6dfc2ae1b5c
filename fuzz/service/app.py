"""The application: endpoints, guards, and what is told of errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from kernel_assay import __version__
from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.service import problems
from kernel_assay.fuzz.service.api import findings, health, jobs, judge, projects, tasks, tokens, workers
from kernel_assay.fuzz.service.core import Service
from kernel_assay.fuzz.service.guards import Guards
from kernel_assay.fuzz.service.pages import actions, feed, views
from kernel_assay.fuzz.service.pages.kit import refusal

ROUTERS = (jobs, judge, tasks, workers, findings, projects, tokens, health, actions, feed, views)


@asynccontextmanager
async def _lifetime(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    service.bell.hang()
    service.work.hang()
    upkeep = asyncio.create_task(service.run_upkeep())
    yield
    upkeep.cancel()
    service.database.close()


def application(service: Service) -> FastAPI:
    """Make the application of a server."""
    app = FastAPI(
        title="Kernel Assay",
        version=__version__,
        description="Jobs, workers, findings and projects. Send `Authorization: Bearer kassay_...`.",
        lifespan=_lifetime,
        docs_url=None,
        redoc_url=None,
        responses={"default": {"description": "what is wrong (RFC 9457)", "content": {problems.MEDIA: {}}}},
    )
    app.state.service, app.state.door = service, service.door
    for module in ROUTERS:
        for route in module.router.routes:
            assert isinstance(route, APIRoute)
            route.summary = route.description.partition("\n")[0].rstrip(".")  # says more in a list than its name
        app.include_router(module.router)
    handlers = (
        (UsageError, _on_usage_error),
        (RequestValidationError, problems.on_invalid),
        (HTTPException, problems.on_http_error),
        (SQLAlchemyError, _on_database_error),
        (Exception, problems.on_bug),
    )
    for error, handler in handlers:
        app.add_exception_handler(error, handler)
    app.add_middleware(Guards, metrics=service.metrics, rate=service.settings.rate, secure=service.settings.secure)
    return app


async def _on_database_error(request: Request, error: Exception) -> Response:
    """Tell that the database does not answer; the log has the rest."""
    assert isinstance(error, SQLAlchemyError)
    service: Service = request.app.state.service
    service.outage(error)
    why = "has no room left on its disk" if "disk is full" in str(error) else "does not answer; ask again"
    return problems.problem(503, f"the database {why}", {"Retry-After": "5"})


async def _on_usage_error(request: Request, error: Exception) -> Response:
    """Tell of what a user has caused: who has sent a form by a browser gets a page, and everybody else a record."""
    if request.url.path.startswith("/v1") or "text/html" not in request.headers.get("accept", ""):
        return await problems.on_usage_error(request, error)
    told = error if isinstance(error, problems.ServiceError) else problems.ServiceError(str(error))
    return refusal(request, told)
