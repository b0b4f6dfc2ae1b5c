"""The command line, `kassay --help`; in a checkout also `python -m fuzz --help`.

Exit codes: 0 nothing found, 1 findings, 2 usage, 3 internal error, 130 stopped with nothing found.
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Sequence

import click

from kernel_assay import __version__
from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.process.output_streams import outlive_readers
from kernel_assay.corpus.program import program
from kernel_assay.fuzz.cli.commands import Commands

USAGE, INTERNAL = 2, 3


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, message="%(version)s")
def cli() -> None:
    """Fuzz compute kernels against their specification and against one another."""


def main(arguments: Sequence[str] | None = None) -> int:  # noqa: PLR0911  one return for each kind of end
    """Run a command; every error a user can cause is one sentence on stderr."""
    if arguments is None:  # this is the program itself
        outlive_readers()
        try:
            return main(sys.argv[1:])
        finally:  # what is left is the end of the interpreter, which Ctrl-C would turn into a death by a signal
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        result = cli.main(list(arguments), prog_name=program(), standalone_mode=False)
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
    except Exception:  # noqa: BLE001  whatever else it is, it is our fault; Python's own exit code would say "findings"
        traceback.print_exc()
        return _say("internal error, please report it with the lines above", INTERNAL)
    return result if isinstance(result, int) else 0


def _say(message: str, code: int) -> int:
    click.echo(f"kassay: {message}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
