"""`work`: a worker of a server, on any machine, with GPUs or without."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path
from types import FrameType

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.cli.options import AtLeast
from kernel_assay.fuzz.cli.toolbox.server_options import secret_of, server_options, with_service

_KEPT = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_.*|TZ|TMPDIR|SHELL|TERM|VIRTUAL_ENV|PYTHON.*|XDG_CACHE_HOME|LD_LIBRARY_PATH"
    r"|(HTTPS?|NO|https?|no)_(PROXY|proxy)|SSL_CERT_.*|CUDA_.*|NVIDIA_.*|HIP_.*|ROCR_.*|TRITON_.*|TORCH.*"
    r"|CUPY_.*|NUMBA_.*|KERNEL_ASSAY_.*|OMP_.*|CC|CXX"
)
"""Variables that stay: whoever runs what was sent could read all others, too."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@click.command("work")
@server_options
@click.option("--name", metavar="NAME", help="How the server calls this worker.  [default: the host's name]")
@click.option("--jobs", type=AtLeast(1, 256), default=1, show_default=True, help="Tasks at a time.")
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
@click.option("--quiet", is_flag=True, help="Say nothing of each task.")
@with_service
def command(
    *,
    server: str,
    token: str,
    token_file: Path | None,
    name: str | None,
    jobs: int,
    devices: tuple[str, ...],
    kinds: tuple[str, ...],
    memory_mb: int,
    repositories: Path | None,
    allow_local: bool,
    allow_private: bool,
    readable: tuple[Path, ...],
    in_the_open: bool,
    quiet: bool,
) -> int:
    """Lease tasks of a server, and run them here, closed in; SIGTERM and Ctrl-C hand back what is under way.

    The token needs the scope work. What is sent runs without network, in folders of its own; run the worker as a user
    of its own all the same, on a machine that holds nothing else.
    """
    from kernel_assay.fuzz.service.client import Client  # noqa: PLC0415  an extra that need not be installed
    from kernel_assay.fuzz.service.protocol import JobKind  # noqa: PLC0415
    from kernel_assay.fuzz.service.work.checkouts import Checkouts  # noqa: PLC0415
    from kernel_assay.fuzz.service.work.worker import Worker, WorkerSettings  # noqa: PLC0415
    from kernel_assay.kernels.environment import environment  # noqa: PLC0415
    from kernel_assay.kernels.sandbox.compiler_caches import cache_home  # noqa: PLC0415

    if unknown := [one for one in kinds if one not in set(JobKind)]:
        raise UsageError(f"{unknown[0]!r} is no kind of job; there are {', '.join(JobKind)}")
    if name is not None and not _NAME.fullmatch(name):
        raise UsageError(f"{name[:100]!r} is no name: at most 100 letters, digits and . _ -, the first no sign")
    secret, hidden = secret_of(token, token_file)
    agent = os.environ.get("SSH_AUTH_SOCK", "")
    for variable in [one for one in os.environ if not _KEPT.fullmatch(one)]:
        del os.environ[variable]
    worker = Worker(
        Client(server, secret),
        WorkerSettings(
            name=name or re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:100],
            jobs=jobs,
            devices=tuple(
                one[:500] for word in devices for one in (environment().devices if word == "cuda" else [word])
            ),
            kinds=tuple(map(JobKind, kinds)),
            memory_mb=memory_mb,
            closed=not in_the_open,
            hidden=(*hidden, *([Path(agent).parent] if agent else [])),
            readable=readable,
        ),
        Checkouts(
            repositories or cache_home() / "kernel-assay-repositories",
            allow_local=allow_local,
            allow_private=allow_private,
            ssh_agent=agent,
        ),
        say=lambda line: None if quiet else click.echo(line, err=True),
    )

    def end(_number: int, _frame: FrameType | None) -> None:
        worker.end()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    click.echo(f"{worker.settings.name}: {jobs} at a time, for {server}", err=True)
    worker.run()
    return 0
