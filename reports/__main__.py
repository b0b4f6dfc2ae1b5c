"""Reports of a run from what the store keeps: `python -m reports --help`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.process.output_streams import outlive_readers
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.reports.book import open_book
from kernel_assay.reports.forms import formats, write
from kernel_assay.reports.json_model import schema
from kernel_assay.reports.options import PlaceType, existing_corpus
from kernel_assay.reports.plain.terminal import say

USAGE, INTERNAL = 2, 3


def _format_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, form in reversed(formats().items()):
        command = click.option(f"--{name}", metavar="FILE", help=form.summary)(command)
    return command


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("run", required=False)
@_format_options
@click.option("--corpus", type=PlaceType(), default=Path("corpus"), show_default=True, callback=existing_corpus)
@click.option("--schema", "schema_only", is_flag=True, help="Print the JSON schema of --json and do nothing else.")
def cli(run: str | None, corpus: Place, *, schema_only: bool, **files: str | None) -> None:
    """Tell of a RUN (default: the latest) in one or more forms; `-` as FILE is standard output. None: plain text."""
    if schema_only:
        click.echo(schema(), nl=False)
        return
    with open_store(corpus) as store:
        book = open_book(store, run)
    wanted = {name: path for name, path in files.items() if path} or {"text": "-"}
    for name, path in wanted.items():
        text = formats()[name].render(book)
        if path == "-" and name == "text":
            say(text.removesuffix("\n"))
        elif path == "-":
            click.echo(text, nl=False)
        else:
            write(Path(path), text)
            click.echo(f"{name}: {path}", err=True)


def main() -> int:
    """Run the command; what a user can cause is one sentence and exit code 2."""
    try:
        cli.main(prog_name="python -m reports", standalone_mode=False)
    except click.exceptions.Exit as left:
        return left.exit_code
    except (click.ClickException, UsageError) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        return _say(text, USAGE)
    except InternalError as error:
        return _say(f"internal error, please report it: {error}", INTERNAL)
    return 0


def _say(message: str, code: int) -> int:
    click.echo(f"reports: {message}", err=True)
    return code


if __name__ == "__main__":
    outlive_readers()
    sys.exit(main())
