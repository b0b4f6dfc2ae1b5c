"""`work`: a worker of a server, on any machine, with GPUs or without."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.cli.options import AtLeast
from kernel_assay.fuzz.cli.toolbox.server_options import secret_of, server_options, with_service

if TYPE_CHECKING:
    from kernel_assay.fuzz.service.work.ray_engine import RayEngine
    from kernel_assay.fuzz.service.work.worker import Worker

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@click.command("work")
@server_options
@click.option("--name", metavar="NAME", help="How the server calls this worker.  [default: the host's name]")
@click.option("--jobs", type=AtLeast(1, 256), help="Tasks at a time.  [default: 1; with --ray: one a processor or GPU]")
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="cuda|NAME",
    help="GPUs for jobs that want one: cuda, which is all there are, or a name for each; repeatable.  [default: none]",
)
@click.option("--kind", "kinds", multiple=True, help="Only jobs of this kind; repeatable.  [default: all]")
@click.option("--memory", "memory_mb", type=AtLeast(16), default=4096, show_default=True, help="MB of a kernel.")
@click.option("--repositories", type=click.Path(path_type=Path), metavar="FOLDER", help="Where clones are kept.")
@click.option("--allow-local", is_flag=True, help="Repositories may be paths on this machine.")
@click.option("--allow-private", is_flag=True, help="Repositories may be at addresses of inner networks.")
@click.option(
    "--readable",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="What else may be read by what was sent, as a folder of headers; repeatable.",
)
@click.option("--open", "in_the_open", is_flag=True, help="Run what was sent with your rights, where nothing else can.")
@click.option(
    "--ray", "cluster", metavar="ADDRESS", help="Run on a Ray cluster: auto, local, HOST:PORT, ray://HOST:PORT."
)
@click.option("--quiet", is_flag=True, help="Say nothing of each task.")
@with_service
def command(
    *,
    server: str,
    token: str,
    token_file: Path | None,
    name: str | None,
    jobs: int | None,
    devices: tuple[str, ...],
    kinds: tuple[str, ...],
    memory_mb: int,
    repositories: Path | None,
    allow_local: bool,
    allow_private: bool,
    readable: tuple[Path, ...],
    in_the_open: bool,
    cluster: str | None,
    quiet: bool,
) -> int:
    """Lease tasks of a server, and run them here, closed in; SIGTERM and Ctrl-C hand back what is under way.

    The token needs the scope work. What is sent runs without network, in folders of its own; run the worker as a user
    of its own all the same, on a machine that holds nothing else.

    With --ray the tasks run on the nodes of a cluster: each takes a processor or a GPU while there is work for it.
    """
    from kernel_assay.fuzz.service.client import Client  # noqa: PLC0415  an extra that need not be installed
    from kernel_assay.fuzz.service.protocol import JobKind  # noqa: PLC0415
    from kernel_assay.fuzz.service.work.slot import forget_variables  # noqa: PLC0415
    from kernel_assay.fuzz.service.work.worker import Order, Worker, WorkerSettings  # noqa: PLC0415

    if unknown := [one for one in kinds if one not in set(JobKind)]:
        raise UsageError(f"{unknown[0]!r} is no kind of job; there are {', '.join(JobKind)}")
    if name is not None and not _NAME.fullmatch(name):
        raise UsageError(f"{name[:100]!r} is no name: at most 100 letters, digits and . _ -, the first no sign")
    secret, hidden = secret_of(token, token_file)
    agent = os.environ.get("SSH_AUTH_SOCK", "")
    settings = WorkerSettings(
        name=name or re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:100],
        jobs=1 if cluster or jobs is None else jobs,
        devices=() if cluster else _gpus(devices),
        kinds=tuple(map(JobKind, kinds)),
        memory_mb=memory_mb,
        closed=not in_the_open,
        hidden=(*hidden, *([Path(agent).parent] if agent else [])),
        readable=readable,
    )
    order = Order(
        server,
        secret,
        settings,
        allow_local=allow_local,
        allow_private=allow_private,
        repositories=repositories,
    )

    def say(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    worker: Worker | RayEngine
    if cluster:
        from kernel_assay.fuzz.service.work.ray_engine import RayEngine  # noqa: PLC0415  it brings the search along

        if devices:
            raise UsageError("--ray gives out the GPUs of the cluster by itself: leave --device out")
        worker = RayEngine(cluster, order, jobs or 0, say)
    else:
        forget_variables()
        worker = Worker(Client(server, secret), settings, order.checkouts(agent), say)
        click.echo(f"{settings.name}: {settings.jobs} at a time, for {server}", err=True)

    def end(_number: int, _frame: FrameType | None) -> None:
        worker.end()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    worker.run()
    return 0


def _gpus(devices: tuple[str, ...]) -> tuple[str, ...]:
    """The names of GPUs: those of this machine for `cuda`. Raises UsageError if it has none."""
    from kernel_assay.kernels.environment import gpus  # noqa: PLC0415

    here = [name for name, _ in gpus()] if "cuda" in devices else []
    if "cuda" in devices and not here:
        raise UsageError("--device cuda: nvidia-smi lists no GPU here")
    return tuple(one[:500] for word in devices for one in (here if word == "cuda" else [word]))
