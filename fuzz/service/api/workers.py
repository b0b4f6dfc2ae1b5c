"""Workers, as people see them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from kernel_assay.fuzz.service.api.parameters import Named
from kernel_assay.fuzz.service.auth import Admin, Reader
from kernel_assay.fuzz.service.core import Here
from kernel_assay.fuzz.service.queue import leases

router = APIRouter(tags=["workers"])


@router.get("/v1/workers")
def workers(here: Here, _: Reader) -> dict[str, list[dict[str, Any]]]:
    """List workers: what they have, when they were seen, which tasks they hold."""
    here.sweep()
    with here.database.reading() as connection:
        return {"items": leases.workers(connection)}


@router.post("/v1/workers/{name}/drain", status_code=204)
def drain(name: Named, here: Here, caller: Admin) -> None:
    """Let a worker end its task, and take no other."""
    with here.database.writing() as connection:
        leases.drain(connection, name, caller.name, wanted=True)


@router.delete("/v1/workers/{name}/drain", status_code=204)
def undrain(name: Named, here: Here, caller: Admin) -> None:
    """Let a worker take tasks again."""
    with here.database.writing() as connection:
        leases.drain(connection, name, caller.name, wanted=False)
