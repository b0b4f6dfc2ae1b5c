"""The command line, `kassay --help`; in a checkout also `python -m fuzz --help`.

Exit codes: 0 nothing found, 1 findings, 2 usage, 3 internal error.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.process.output_streams import outlive_readers
from kernel_assay.corpus.program import program
from kernel_assay.fuzz.cli.gpu_options import COMMANDS
from kernel_assay.fuzz.cli.options import (
    AtLeast,
    base_option,
    box_options,
    contract_option,
    corpus_option,
    device_option,
    dtype_option,
    json_option,
    old_corpus_option,
    subject_option,
)

USAGE, INTERNAL = 2, 3


class Commands(click.Group):
    """The commands, and `report`, whose forms are imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted([*super().list_commands(ctx), "report"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        if cmd_name != "report":
            return super().get_command(ctx, cmd_name)
        from kernel_assay.reports.__main__ import cli as report  # noqa: PLC0415  it takes a tenth of a second

        return report


@click.group(
    cls=Commands, commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="kernel-assay", message="%(version)s")
def cli() -> None:
    """Fuzz compute kernels against their specification and against one another."""


@cli.command("run")
@click.argument("ops", nargs=-1)
@subject_option
@click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="NAME",
    help="Which of the house's subjects runs beside yours; none: nobody.",
)
@click.option("--backend", "backends", multiple=True, metavar="NAME", help="Only the house's subjects of this backend.")
@click.option("--as-is", is_flag=True, help="Triton's interpreter without what is mended of it (doctor lists that).")
@click.option("--planted", is_flag=True, help="Add the bugs planted on purpose, to see that they are found.")
@click.option(
    "--budget",
    metavar="TIME",
    help="How long it may take: 90, 90s, 5m, 8h; a tenth of it or 10 s more may go into its end.  [default: 60s]",
)
@click.option("--cases", "case_limit", type=AtLeast(1), help="Stop after so many cases instead.")
@click.option("--seed", type=AtLeast(0), help="Makes the same cases again.  [default: random]")
@click.option("--resume", is_flag=True, help="Go on with the latest run that was interrupted.")
@click.option("--engine", type=click.Choice(["conjecture", "given"]), default="conjecture", show_default=True)
@dtype_option
@device_option("cpu", "Where the subjects run: cpu, cuda, cuda:NUMBER or cuda:all.")
@click.option("--jobs", type=AtLeast(1), help="Processes that search.  [default: 1; on GPUs more]")
@click.option("--max-elements", type=AtLeast(1), help="Of the largest tensor of a case.")
@click.option(
    "--case-memory",
    type=AtLeast(1),
    metavar="MB",
    help="Of all tensors of a case; with it, shapes of language models that fit are tried.",
)
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--strict", is_flag=True, help="Failures that did not show again count, too; for CI.")
@contract_option
@base_option
@box_options
@corpus_option
@json_option
def run_command(**options: Any) -> int:
    """Search for failures of OPS (default: all) and say what was found.

    Exit code 1 if a subject failed that is not a planted bug, or if a planted bug was not found. Failures that are
    expected, or that the base has too, do not count. One that did not show again when it was run again is told, and
    counts if two runs on one input differed, which proves it, or with --strict.
    """
    from kernel_assay.fuzz.cli.run import run  # noqa: PLC0415  --help must not wait for Hypothesis

    return run(**options)


@cli.command("replay")
@click.argument("targets", nargs=-1, metavar="[FINDING|FILE|FOLDER|RUN:INDEX|case:TOKEN]...")
@subject_option
@contract_option
@base_option
@device_option("", "Where the subjects run (cpu, cuda or cuda:NUMBER), those that can; default: where each failed.")
@click.option("--junit", type=click.Path(path_type=Path), help="Write the results as JUnit XML.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the results as GitHub shows them.")
@click.option("--sarif", type=click.Path(path_type=Path), help="Write the failures as SARIF.")
@box_options
@old_corpus_option
@json_option
def replay_command(**options: Any) -> int:
    """Run stored cases again (default: the whole corpus) and say what has changed. Exit code 1 if one fails."""
    from kernel_assay.fuzz.cli.store import replay_stored  # noqa: PLC0415  as above

    return replay_stored(**options)


@cli.command("shrink")
@click.argument("target", metavar="FINDING|FILE|RUN:INDEX|case:TOKEN")
@subject_option
@contract_option
@device_option("", "Where the subject runs (cpu, cuda or cuda:NUMBER), if it can; default: where it failed.")
@click.option("--budget", default="30s", show_default=True, metavar="TIME", help="How long to try.")
@box_options
@corpus_option
@json_option
def shrink_command(**options: Any) -> int:
    """Make a failing case smaller while it still fails in the same way."""
    from kernel_assay.fuzz.cli.run import shrink_stored  # noqa: PLC0415  as above

    return shrink_stored(**options)


@cli.command("show")
@click.argument("target", metavar="FINDING|FILE|RUN:INDEX|case:TOKEN")
@click.option("--reproducer", metavar="FILE", help="Only write the stand-alone program that shows the failure.")
@click.option("--source", metavar="FILE", help="Only write the kernel's source, with its edits made.")
@subject_option
@contract_option
@box_options
@old_corpus_option
@json_option
def show_command(**options: Any) -> int:
    """Show all there is to know of a finding, with a program that reproduces it; a bare case is run first."""
    from kernel_assay.fuzz.cli.show import show  # noqa: PLC0415  as above

    return show(**options)


@cli.command("explain")
@click.argument("topic", metavar="VERDICT|RULE")
def explain_command(topic: str) -> int:
    """Explain a verdict or a rule: what it means, how it is decided, what causes it."""
    from kernel_assay.fuzz.cli.show import explain_topic  # noqa: PLC0415  as above

    return explain_topic(topic)


@cli.command("analyze")
@click.argument("targets", nargs=-1, metavar="[FINDING|RUN]...")
@contract_option
@old_corpus_option
@json_option
def analyze_command(**options: Any) -> int:
    """Judge kept outputs again under the contracts of today, running nothing. Exit code 1 if a verdict changed."""
    from kernel_assay.fuzz.cli.show import analyze_kept  # noqa: PLC0415  as above

    return analyze_kept(**options)


@cli.command("prove")
@click.argument("op")
@click.argument("subject", metavar="NAME|FILE[:NAME]")
@dtype_option
@device_option("cpu", "Where the kernel runs: cpu, cuda or cuda:NUMBER.")
@contract_option
@box_options
@corpus_option
def prove_command(**options: Any) -> int:
    """Try a kernel on every input there is: all 65,536 float16 and bfloat16 numbers of an elementwise OP.

    Of packed blocks it is every scale with every quant. With --device cuda convert is tried on every float32, too, and
    silu_gate on every pair of float16 numbers.
    """
    from kernel_assay.fuzz.cli.show import prove_subject  # noqa: PLC0415  as above

    return prove_subject(**options)


@cli.command("compile")
@click.argument("targets", nargs=-1, metavar="[OP|FILE]...")
@click.option(
    "--arch",
    "architectures",
    multiple=True,
    metavar="NAME",
    help="An architecture, such as sm_90; repeatable.  [default: sm_80, sm_90, sm_100]",
)
@click.option("--launch", multiple=True, metavar="KEY=VALUE", help="As in `run`.")
@contract_option
def compile_command(**options: Any) -> int:
    """Compile CUDA files for GPUs, without one: all of the house's, those of OPS, or your own FILES.

    Says what their kernels need there: registers, shared memory, spilled bytes. Exit code 1 if one does not compile, or
    not without a warning.
    """
    from kernel_assay.fuzz.cli.compile import compile_files  # noqa: PLC0415  as above

    return compile_files(**options)


@cli.command("promote")
@click.argument("targets", nargs=-1, required=True, metavar="FINDING...")
@old_corpus_option
def promote_command(**options: Any) -> int:
    """Keep findings for good: copy them to regressions/, which is committed and replayed in CI."""
    from kernel_assay.fuzz.cli.show import promote_findings  # noqa: PLC0415  as above

    return promote_findings(**options)


@cli.command("expect-failure")
@click.argument("target", metavar="FINDING")
@click.option("--reason", default="", metavar="TEXT", help="Why it may fail: an issue, a sentence.")
@click.option(
    "--until", default="", metavar="DATE", help="Last day on which it may, as 2030-12-31.  [default: for good]"
)
@click.option("--clear", is_flag=True, help="It may not fail any more.")
@old_corpus_option
def expect_command(**options: Any) -> int:
    """Say that a finding is a known, open bug: its failure is no news. Replay says when it starts to pass."""
    from kernel_assay.fuzz.cli.show import expect  # noqa: PLC0415  as above

    return expect(**options)


@cli.command("new")
@click.argument("what", type=click.Choice(["op", "subject", "cuda"]))
@click.argument("name")
@click.option("--op", default="silu", show_default=True, help="The op of a new subject.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path(), help="Where to write.  [default: here]")
@contract_option
def new_command(what: str, name: str, op: str, folder: Path) -> int:
    """Write a small file that runs, to start from: an op with its contract, a subject, a CUDA kernel."""
    from kernel_assay.fuzz.cli.new import new  # noqa: PLC0415  as above

    paths, command = new(what, name, op, folder)
    click.echo("\n".join([*(f"wrote {path}" for path in paths), f"run it: {command}"]))
    return 0


@cli.command("list")
@click.argument(
    "what",
    type=click.Choice(["ops", "subjects", "backends", "distributions", "findings", "goals", "verdicts", "criteria"]),
    default="ops",
)
@click.argument("words", nargs=-1, metavar="[WORD|COLUMN=VALUE]...")
@contract_option
@old_corpus_option
@json_option
def list_command(**options: Any) -> int:
    """List what there is: all of it, or the rows in which every WORD occurs and every COLUMN has its VALUE."""
    from kernel_assay.fuzz.cli.store import list_things  # noqa: PLC0415  as above

    return list_things(**options)


@cli.command("doctor")
def doctor_command() -> int:
    """Say what is installed, which backends can run here, and why the others cannot."""
    from kernel_assay.fuzz.cli.store import doctor  # noqa: PLC0415  as above

    return doctor()


def main(arguments: Sequence[str] | None = None) -> int:  # noqa: PLR0911  one return for each kind of end
    """Run a command; every error a user can cause is one sentence on stderr."""
    if arguments is None:  # this is the program itself
        outlive_readers()
    try:
        result = cli.main(
            args=None if arguments is None else list(arguments), prog_name=program(), standalone_mode=False
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
    except Exception:  # noqa: BLE001  whatever else it is, it is our fault; Python's own exit code would say "findings"
        traceback.print_exc()
        return _say("internal error, please report it with the lines above", INTERNAL)
    return result if isinstance(result, int) else 0


def _say(message: str, code: int) -> int:
    click.echo(f"fuzz: {message}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
