"""Health, for whoever watches the server."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from kernel_assay import __version__
from kernel_assay.fuzz.service.auth import Reader
from kernel_assay.fuzz.service.core import Here
from kernel_assay.fuzz.service.problems import problem

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthy() -> dict[str, str]:
    """Say that the process answers."""
    return {"status": "ok", "version": __version__}


@router.get("/readyz")
def ready(here: Here) -> Response:
    """Say whether the database answers; 503 if it does not."""
    try:
        with here.database.reading() as connection:
            connection.execute(text("SELECT 1"))
    except SQLAlchemyError:
        return problem(503, "the database does not answer")
    return Response('{"status":"ready"}', media_type="application/json")


@router.get("/metrics")
def metrics(here: Here, _: Reader) -> Response:
    """Give figures for Prometheus."""
    return Response(here.metrics.text(), media_type=CONTENT_TYPE_LATEST)
