"""`remote project`, `token`, `drain`, `wontfix`: what belongs to a server's projects and to its admins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.program import program
from kernel_assay.fuzz.cli.options import AtLeast
from kernel_assay.fuzz.cli.toolbox.remote import asks, command, of_project, sendable, utc
from kernel_assay.fuzz.cli.toolbox.server_options import server_options
from kernel_assay.fuzz.service.repository import is_path
from kernel_assay.fuzz.settings import seconds_of
from kernel_assay.reports.plain.terminal import say, table, visible
from kernel_assay.reports.words import count

if TYPE_CHECKING:
    from kernel_assay.fuzz.service.client import Client
    from kernel_assay.fuzz.service.protocol import ProjectTold


@command.command("project")
@click.argument("name", required=False)
@click.option("--check", is_flag=True, help="Only read kassay.toml, and say what is wrong with it; no server is asked.")
@click.option("--schema", "wants_schema", is_flag=True, help="Print the JSON schema of kassay.toml.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path(), help="Where kassay.toml lies.  [default: .]")
@click.option("--repository", metavar="URL", help="Begin the project, or change it, as kassay.toml says.")
@click.option("--commit", metavar="COMMIT", help="Tell of a commit: findings are replayed there, then it is searched.")
@click.option("--delete", is_flag=True, help="Search it no more (admin); its findings stay.")
@server_options
def project_command(
    *,
    name: str | None,
    check: bool,
    wants_schema: bool,
    folder: Path,
    repository: str | None,
    commit: str | None,
    delete: bool,
    **server: Any,
) -> None:
    """Show the project NAME, begin or delete it, or tell of a commit; or check a kassay.toml."""
    from kernel_assay.fuzz.service.project_file import NAME, ProjectFile, schema  # noqa: PLC0415  only where it is read

    if wants_schema:
        click.echo(schema(), nl=False)
        return
    if check:
        said = ProjectFile.read(folder / NAME)
        said.check(folder)
        kernels = count(len(said.kernels), "kernel")
        say(f"{folder / NAME}: {kernels}, searched every {said.schedule.every} and at each commit")
        return
    if name is None:
        raise UsageError("which project? name it, or use --check")
    if delete:
        _deleted(name=name, **server)
        return
    project = ProjectFile.read(folder / NAME) if repository else None
    _changed(name=name, project=project, repository=repository, commit=commit, **server)


@asks
def _deleted(*, client: Client, name: str) -> None:
    client.delete_project(name)
    say(f"{name} is deleted: it is searched no more; its findings stay")


@asks
def _changed(*, client: Client, name: str, project: Any, repository: str | None, commit: str | None) -> None:
    if project is not None:
        with sendable():
            client.put_project(name, project.project(repository or ""))
    if commit:
        with sendable():
            made = client.push(name, commit)
        for state, words in (("done", "already done"), ("waiting", "already waiting or running"), ("queued", "queued")):
            for job in made.get(state, ()):
                say(f"{words} {job}")
    told = client.project(name)
    repository = told.project.repository
    say(f"{told.name}: {visible(repository)} at {told.head[:12] or 'no commit yet'}; {_standing(told)}")
    if project is not None and is_path(repository):
        say("warning: that is a path of the workers' machines, and only `work --allow-local` takes it", err=True)


def _standing(told: ProjectTold) -> str:
    """Say what is known of a project's findings, and how far that can be trusted."""
    from kernel_assay.fuzz.service.client import searched_at  # noqa: PLC0415  an extra that need not be installed
    from kernel_assay.fuzz.service.protocol import UNSEARCHED  # noqa: PLC0415

    counts = ", ".join(f"{number} {state}" for state, number in sorted(told.findings.items()))
    if told.last is None:
        return counts or "no search has ended yet"
    if told.last.state.value == "done":
        at = searched_at(told)
        late = f"; not searched there yet, but at {at[:12]}" if at != told.head else ""
        _, left_out, which = told.last.message.partition(UNSEARCHED)
        return (counts or "no findings") + late + (f"; {left_out}{visible(which)}" if left_out else "")
    why = f"{visible(told.last.reason)} ({program()} remote show {told.last.id})"
    return f"{counts}{'; ' if counts else ''}last search {told.last.state.value}: {why}"


@command.command("token")
@click.argument("name", required=False)
@click.option("--scope", "scopes", multiple=True, help="read, submit, work or admin; repeatable. Or feed, alone.")
@click.option("--days", type=AtLeast(0.001), help="Until it expires.  [default: never]")
@click.option("--revoke", is_flag=True)
@asks
def token_command(
    *, client: Client, name: str | None, scopes: tuple[str, ...], days: float | None, revoke: bool
) -> None:
    """List tokens; make the token NAME (--scope), which is shown this once; or --revoke it."""
    from kernel_assay.fuzz.service.protocol import Scope  # noqa: PLC0415  as above

    if name is None:
        rows = [
            (str(one["name"]), ", ".join(one["scopes"]), utc(one["expires"]), utc(one["used"]))
            for one in client.tokens()
        ]
        say(table(("token", "scopes", "expires, UTC", "used, UTC"), rows))
    elif revoke:
        client.revoke(name)
        say(f"{name} is revoked")
    else:
        if unknown := [one for one in scopes if one not in set(Scope)] or (not scopes and ["no scope"]):
            raise UsageError(f"{unknown[0]!r} is no scope; there are {', '.join(Scope)}")
        with sendable():
            click.echo(client.make_token(name, tuple(map(Scope, scopes)), days))


@command.command("drain")
@click.argument("worker")
@click.option("--undo", is_flag=True, help="Let it take tasks again.")
@asks
def drain_command(*, client: Client, worker: str, undo: bool) -> None:
    """Let a worker end its task, and give it no other."""
    if undo:
        client.undrain(worker)
    else:
        client.drain(worker)
    say(f"{worker} {'takes tasks again' if undo else 'gets no further task'}")


@command.command("wontfix")
@click.argument("finding", metavar="FINDING")
@click.option("--reason", default="", help="Why it is let be.")
@click.option("--time", "length", metavar="TIME", help="For how long, as 720h.  [default: for good]")
@click.option("--reopen", is_flag=True, help="Put it on the list again instead.")
@of_project
@asks
def wontfix_command(
    *, client: Client, finding: str, reason: str, length: str | None, reopen: bool, project: str | None
) -> None:
    """Let a finding be, for a reason and maybe for a time."""
    from kernel_assay.fuzz.service.protocol import WontFix  # noqa: PLC0415  as above

    if reopen:
        client.reopen(finding, project)
        return
    until = datetime.now(UTC) + timedelta(seconds=seconds_of(length)) if length else None
    with sendable():
        client.wontfix(finding, WontFix(reason=reason, until=until), project)
    say(f"{finding} is let be" + (f" until {until:%Y-%m-%d %H:%M:%S} UTC" if until else ""))
