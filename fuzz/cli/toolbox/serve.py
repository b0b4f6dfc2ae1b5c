"""`serve`: the server of jobs, findings and pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.place import SERVED
from kernel_assay.fuzz.cli.options import AtLeast, corpus_option


@click.command("serve")
@corpus_option
@click.option("--database", metavar="URL", help="postgresql://..., or sqlite:///FILE. [default: a file in the corpus]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=AtLeast(1, 65535), default=8765, show_default=True)
@click.option("--tls-cert", "certificate", type=click.Path(path_type=Path), metavar="FILE", help="Certificate, PEM.")
@click.option("--tls-key", "private_key", type=click.Path(path_type=Path), metavar="FILE", help="Its key, PEM.")
@click.option("--insecure", is_flag=True, help="Listen at other addresses without TLS: something in front does it.")
@click.option("--public", is_flag=True, help="Let anybody read.")
@click.option("--url", default="", metavar="URL", help="Its address as people see it, for links.")
@click.option("--notify", multiple=True, metavar="URL", help="Tell of findings there, as Apprise does; repeatable.")
@click.option("--retention-days", type=AtLeast(1.0), default=90.0, show_default=True, help="For logs and texts.")
@click.option("--rate", type=AtLeast(0.0), default=200.0, show_default=True, help="Requests a second of one token.")
@click.option(
    "--engine",
    type=click.Choice(["none", "local", "ray"]),
    default="none",
    show_default=True,
    help="A worker that is started along: here, or on a Ray cluster; others may come all the same.",
)
@click.option("--ray", "cluster", default="auto", show_default=True, metavar="ADDRESS", help="Of --engine ray.")
@click.option("--open", "browser", is_flag=True, help="Open the page in a browser.")
@click.option("--quiet", is_flag=True, help="No line for each request.")
def command(
    *, corpus: Path, database: str | None, engine: str, cluster: str, browser: bool, quiet: bool, **options: Any
) -> None:
    """Serve jobs, findings and pages: one server, many workers (kassay work), no kernel runs here.

    The first start prints a token of all scopes, once.
    """
    try:
        from kernel_assay.fuzz.service.serve import serve  # noqa: PLC0415  an extra that need not be installed
        from kernel_assay.fuzz.service.settings import ServiceSettings  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed: pip install 'kernel-assay[service]'") from error
    url = database or f"sqlite:///{corpus.absolute() / SERVED}"
    settings = ServiceSettings(database=url, engine=_engine(engine, cluster), **options)
    serve(settings, click.echo, quiet=quiet, browser=browser)


def _engine(kind: str, cluster: str) -> tuple[str, ...]:
    """The name of the worker that is started along, and its options."""
    if kind == "local":
        from kernel_assay.kernels.environment import gpus  # noqa: PLC0415  nothing else here needs what it brings along

        return ("local", *(("--device", "cuda") if gpus() else ()))
    return ("ray", "--ray", cluster) if kind == "ray" else ()
