"""Projects, and commits that come."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response

from kernel_assay.fuzz.service.api.parameters import Named
from kernel_assay.fuzz.service.auth import Admin, Reader, Submitter
from kernel_assay.fuzz.service.core import Here, told
from kernel_assay.fuzz.service.notify import check_addresses, commit_status
from kernel_assay.fuzz.service.problems import RefusedError
from kernel_assay.fuzz.service.protocol import Commit, CommitPush, Project, ProjectTold, Scope
from kernel_assay.fuzz.service.queue import upkeep
from kernel_assay.fuzz.service.repository import check_repository

router = APIRouter(tags=["projects"])


@router.get("/v1/projects")
def listed(here: Here, _: Reader) -> dict[str, list[ProjectTold]]:
    """List projects, and how many findings of which standing they have."""
    with here.database.reading() as connection:
        return {"items": upkeep.projects(connection)}


@router.get("/v1/projects/{name}", response_model=ProjectTold)
def get(name: Named, here: Here, _: Reader) -> Response:
    """Tell of one project."""
    with here.database.reading() as connection:
        return told(upkeep.project_of(connection, name))


@router.put("/v1/projects/{name}", response_model=ProjectTold)
def put(name: Named, said: Project, here: Here, caller: Submitter) -> Response:
    """Begin a project, or change it."""
    check_addresses(said.notify)
    check_repository(said.repository)
    with here.database.writing() as connection:
        before = next((one.project for one in upkeep.projects(connection, name)), said.but(notify=()))
        if Scope.ADMIN not in caller.scopes:
            if said.notify != before.notify:
                raise RefusedError(
                    "who is told of findings is set with the scope admin: the server sends to these addresses"
                )
            if said.repository != before.repository:
                raise RefusedError(
                    f"the project {name} is about another repository; only the scope admin points it elsewhere"
                )
        upkeep.put_project(connection, name, said, caller.name, time.time())
        project = upkeep.project_of(connection, name)
    here.changed()
    return told(project)


@router.delete("/v1/projects/{name}", status_code=204)
def delete(name: Named, here: Here, caller: Admin) -> None:
    """Delete a project: it is searched no more, and its jobs are taken back; its findings stay."""
    with here.database.writing() as connection:
        upkeep.delete_project(connection, name, caller.name)
    here.changed()


@router.get("/v1/projects/{name}/commits/{commit}/status")
def status(
    name: Named,
    commit: Annotated[Commit, Path()],
    here: Here,
    _: Reader,
    forge: Annotated[Literal["github", "gitlab"], Query(alias="for")] = "github",
) -> dict[str, str]:
    """Give the payload of a commit status, to be sent to GitHub or GitLab by whoever may."""
    with here.database.reading() as connection:
        return commit_status(connection, name, commit, here.settings.address, forge)


@router.post("/v1/projects/{name}/commits", status_code=201)
def push(name: Named, said: CommitPush, here: Here, caller: Submitter, answer: Response) -> dict[str, list[str]]:
    """Take in a commit, as a hook sends it: findings are replayed there first, then it is searched.

    200 instead of 201 if all its jobs are done already, or on their way.
    """
    with here.database.writing() as connection:
        made = upkeep.push(connection, name, said.commit, caller.name, time.time())
    here.changed()
    answer.status_code = 201 if made["queued"] else 200
    return made
