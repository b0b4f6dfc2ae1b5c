"""All commands by their names; each is imported when it is asked for, so that `--help` waits for nothing."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import click


class Place(NamedTuple):
    """The place of a command, and what it does, in its own first words."""

    module: str
    summary: str
    name: str = "command"


_CLI = "kernel_assay.fuzz.cli"
PLACES = {
    "analyze": Place(f"{_CLI}.analyze", "Judge kept outputs again under the contracts of today, running nothing."),
    "cliffs": Place(f"{_CLI}.toolbox.cliffs", "Search for sizes at which a kernel gets far slower than beside them."),
    "compare": Place(f"{_CLI}.toolbox.compare", "Say how far two files of tensors are apart, or two folders."),
    "compile": Place(f"{_CLI}.compile", "Compile CUDA files for GPUs, without one: all built-in ones, or your own."),
    "db": Place(f"{_CLI}.toolbox.db", "Copy a corpus between folders and databases, back it up, upgrade or prune it."),
    "debug": Place(f"{_CLI}.toolbox.debug", "Run a case in a debugger, stopped where it goes wrong."),
    "doctor": Place(f"{_CLI}.list", "Say what is installed, and which backends can run here.", "doctor"),
    "emulate": Place(f"{_CLI}.toolbox.emulate", "Run a CUDA program on the CPU, with every access judged."),
    "expect-failure": Place(f"{_CLI}.lifecycle", "Say that a finding is a known, open bug.", "expect_command"),
    "explain": Place(f"{_CLI}.show", "Explain a verdict or a rule.", "explain_command"),
    "fuzz-kernel": Place(
        f"{_CLI}.toolbox.fuzz_kernel", "Search inputs, launches and orders of threads of a CUDA kernel that is no op."
    ),
    "golden": Place(
        f"{_CLI}.toolbox.golden", "Save outputs of a kernel, and say later, or elsewhere, what has changed."
    ),
    "judge": Place(
        f"{_CLI}.judge", "Judge the solution of a problem: KernelBench, gpu-mode, flashinfer-bench.", "judge_command"
    ),
    "list": Place(f"{_CLI}.list", "List ops, subjects, backends, findings and more."),
    "matrix": Place(f"{_CLI}.toolbox.matrix", "Run a test matrix: op, dtype, shapes, layout, device and kernel."),
    "new": Place(f"{_CLI}.new", "Write a small file that runs, to start from."),
    "profile": Place(
        f"{_CLI}.nvidia", "Run a case under a profiler: Nsight Compute, Nsight Systems, torch's.", "profile_command"
    ),
    "promote": Place(f"{_CLI}.lifecycle", "Keep findings for good: they are replayed in CI.", "promote_command"),
    "prove": Place(f"{_CLI}.judge", "Try a kernel on every input there is.", "prove_command"),
    "pull": Place(f"{_CLI}.toolbox.remote", "Take a finding of a server into the corpus here.", "pull_command"),
    "record": Place(f"{_CLI}.new", "Write down the shapes that a model run asks of torch.", "record_command"),
    "remote": Place(f"{_CLI}.toolbox.remote_project", "Submit jobs to a server, and read what came of them."),
    "replay": Place(f"{_CLI}.replay", "Run stored cases again and say what has changed."),
    "report": Place("kernel_assay.reports.__main__", "Tell of a run: as a page, JSON, JUnit, SARIF, Markdown.", "cli"),
    "run": Place(f"{_CLI}.run", "Search for failures and say what was found."),
    "sanitize": Place(f"{_CLI}.nvidia", "Run a case on the GPU under compute-sanitizer.", "sanitize_command"),
    "serve": Place(f"{_CLI}.toolbox.serve", "Serve jobs, findings and pages for many workers and people."),
    "show": Place(f"{_CLI}.show", "Show all there is to know of a finding."),
    "shrink": Place(f"{_CLI}.shrink", "Make a failing case smaller."),
    "time": Place(f"{_CLI}.toolbox.time", "Say how fast kernels are, against baselines and the machine."),
    "trace": Place(f"{_CLI}.new", "Say which operator of a program made the first NaN or Inf.", "trace_command"),
    "work": Place(f"{_CLI}.toolbox.work", "Lease tasks of a server, and run them here, closed in."),
}


class Commands(click.Group):
    """Imports a command when it is asked for."""

    def __init__(self, **settings: Any) -> None:
        """settings: as for any group."""
        names = {name: click.Command(name) for name in PLACES}  # so that click can say what was meant
        super().__init__(**{**settings, "commands": names})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        del ctx
        return sorted(PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        del ctx
        place = PLACES.get(cmd_name)
        return None if place is None else getattr(import_module(place.module), place.name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """All commands in the help, none of them imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, PLACES[name].summary) for name in self.list_commands(ctx)])
