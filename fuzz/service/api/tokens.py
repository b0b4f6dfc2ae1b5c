"""Tokens: made, listed, revoked, by admins only."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from kernel_assay.fuzz.service import auth
from kernel_assay.fuzz.service.api.parameters import Named
from kernel_assay.fuzz.service.auth import Admin
from kernel_assay.fuzz.service.core import Here
from kernel_assay.fuzz.service.protocol import TokenRequest

router = APIRouter(tags=["tokens"])


@router.post("/v1/tokens", status_code=201)
def make(said: TokenRequest, here: Here, caller: Admin) -> dict[str, Any]:
    """Make a token; its secret is told this once."""
    with here.database.writing() as connection:
        secret = auth.make_token(connection, said.name, said.scopes, said.days, caller.name)
    return {"name": said.name, "scopes": sorted(set(said.scopes)), "token": secret}


@router.get("/v1/tokens")
def listed(here: Here, _: Admin) -> dict[str, list[dict[str, Any]]]:
    """List tokens, without their secrets, which nobody knows."""
    with here.database.reading() as connection:
        return {"items": auth.tokens(connection)}


@router.delete("/v1/tokens/{name}", status_code=204)
def revoke(name: Named, here: Here, caller: Admin) -> None:
    """Make a token worthless from now on."""
    with here.database.writing() as connection:
        auth.revoke(connection, name, caller.name)
