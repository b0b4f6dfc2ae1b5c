"""The command line: `python -m fuzz --help`. Exit codes: 0 nothing found, 1 findings, 2 usage, 3 internal error."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

try:
    from corpus.errors import InternalError, UsageError
    from corpus.house import check_house
except ImportError as missing:  # too early for check_house to say it
    sys.stderr.write(f"fuzz: the package 'corpus' is another project's, which stands before this one ({missing})\n")
    sys.exit(2)

USAGE, INTERNAL = 2, 3


def _corpus_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--corpus",
        type=click.Path(path_type=Path),
        default=Path("corpus"),
        show_default=True,
        help="Folder of the corpus.",
    )(command)


def _box_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option(
        "--timeout", type=click.FloatRange(min=0.01), default=10.0, show_default=True, help="Seconds for one execution."
    )(command)
    return click.option(
        "--memory",
        "memory_mb",
        type=click.IntRange(min=16),
        default=4096,
        show_default=True,
        help="Megabytes a subject may allocate.",
    )(command)


def _subject_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--subject", "files", multiple=True, metavar="FILE[:NAME]", help="A kernel of your own, anywhere; repeatable."
    )(command)


def _json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--json", "json_path", metavar="FILE", help="Write the summary as JSON (-: to standard output)."
    )(command)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="kernel-assay", message="%(version)s")
def cli() -> None:
    """Fuzz compute kernels against their specification and against one another."""


@cli.command("run")
@click.argument("ops", nargs=-1)
@_subject_option
@click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="NAME",
    help="Which of the house's subjects runs beside yours; none: nobody.",
)
@click.option("--backend", "backends", multiple=True, metavar="NAME", help="Only the house's subjects of this backend.")
@click.option("--planted", is_flag=True, help="Add the bugs planted on purpose, to see that they are found.")
@click.option("--budget", metavar="TIME", help="How long to search: 90, 90s, 5m, 8h.  [default: 60s]")
@click.option("--cases", "case_limit", type=click.IntRange(min=1), help="Stop after so many cases instead.")
@click.option("--seed", type=click.IntRange(min=0), help="Makes the same cases again.  [default: random]")
@click.option("--resume", is_flag=True, help="Go on with the latest run that was interrupted.")
@click.option("--engine", type=click.Choice(["conjecture", "given"]), default="conjecture", show_default=True)
@click.option("--device", default="cpu", show_default=True, help="Where the subjects run.")
@click.option("--max-elements", type=click.IntRange(min=1), help="Of the largest tensor of a case.")
@click.option("--quiet", is_flag=True, help="No progress.")
@_box_options
@_corpus_option
@_json_option
def run_command(**options: Any) -> int:
    """Search for failures of OPS (default: all) and say what was found.

    Exit code 1 if a subject failed that is not a planted bug, or if a planted bug was not found.
    """
    from fuzz.commands import run  # noqa: PLC0415  --help must not wait for Hypothesis

    return run(**options)


@cli.command("replay")
@click.argument("targets", nargs=-1, metavar="[FINDING|FILE|FOLDER|RUN:INDEX]...")
@_subject_option
@click.option("--junit", type=click.Path(path_type=Path), help="Write the results as JUnit XML.")
@_box_options
@_corpus_option
@_json_option
def replay_command(**options: Any) -> int:
    """Run stored cases again (default: the whole corpus) and say what has changed. Exit code 1 if one fails."""
    from fuzz.commands_store import replay_stored  # noqa: PLC0415  as above

    return replay_stored(**options)


@cli.command("shrink")
@click.argument("target", metavar="FINDING|FILE|RUN:INDEX")
@_subject_option
@click.option("--budget", default="30s", show_default=True, metavar="TIME", help="How long to try.")
@_box_options
@_corpus_option
@_json_option
def shrink_command(**options: Any) -> int:
    """Make a failing case smaller while it still fails in the same way."""
    from fuzz.commands import shrink_stored  # noqa: PLC0415  as above

    return shrink_stored(**options)


@cli.command("list")
@click.argument(
    "what",
    type=click.Choice(["ops", "subjects", "backends", "distributions", "findings", "goals", "verdicts"]),
    default="ops",
)
@_corpus_option
@_json_option
def list_command(**options: Any) -> int:
    """List what there is."""
    from fuzz.commands_store import list_things  # noqa: PLC0415  as above

    return list_things(**options)


@cli.command("doctor")
def doctor_command() -> int:
    """Say what is installed, which backends can run here, and why the others cannot."""
    from fuzz.commands_store import doctor  # noqa: PLC0415  as above

    return doctor()


def main(arguments: Sequence[str] | None = None) -> int:  # noqa: PLR0911  one return for each kind of end
    """Run a command; every error a user can cause is one sentence on stderr."""
    try:
        check_house()
        result = cli.main(
            args=None if arguments is None else list(arguments), prog_name="python -m fuzz", standalone_mode=False
        )
    except click.exceptions.Exit as left:
        return left.exit_code
    except click.ClickException as error:
        return _say(error.format_message(), USAGE)
    except UsageError as error:
        return _say(str(error), USAGE)
    except InternalError as error:
        return _say(f"internal error, please report it: {error}", INTERNAL)
    except click.Abort:
        return _say("interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:  # noqa: BLE001  whatever else it is, it is our fault; Python's own exit code would say "findings"
        traceback.print_exc()
        return _say("internal error, please report it with the lines above", INTERNAL)
    return result if isinstance(result, int) else 0


def _say(message: str, code: int) -> int:
    click.echo(f"fuzz: {message}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
