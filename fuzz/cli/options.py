"""Options that several commands share, and what their values must be."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.checking.user_references import add_reference
from kernel_assay.fuzz.replay.baseline import check_base
from kernel_assay.fuzz.settings import LARGEST, LONGEST, MOST_MB, SandboxLimits, seconds_of
from kernel_assay.oracles.catalog import add_contract
from kernel_assay.reports.options import PlaceType, existing_corpus


class AtLeast(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """A finite number that is not too small; one sentence says what it must be, whatever it is instead."""

    def __init__(self, least: float, most: float | None = None) -> None:
        """most: None: any number that is finite, or that 64 bits hold."""
        self.least, self.most = least, most or (LARGEST if isinstance(least, int) else sys.float_info.max)
        self.name = "integer" if isinstance(least, int) else "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises click's own UsageError, as other types of options do, for another number and for what is none."""
        del ctx
        try:
            number = type(self.least)(value)
        except ValueError:
            number = math.nan
        if self.least <= number <= self.most:
            return number
        option, kind = param.opts[0] if param else "it", "whole number" if self.name == "integer" else "number"
        end = f"most {self.most}" if number > self.most else f"least {self.least}"
        raise click.UsageError(f"{option} must be a {kind} of at {end}, not {value!r}")


class Seconds(AtLeast):
    """A length of time in seconds: `90`, `90s`, `5m` or `8h`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises click's own UsageError for what is none."""
        with suppress(UsageError):  # the sentence of a number says more
            value = seconds_of(str(value))
        return super().convert(value, param, ctx)


def corpus_option(command: Callable[..., Any], **more: Any) -> Callable[..., Any]:
    """Add the place of the corpus."""
    return click.option(
        "--corpus",
        type=PlaceType(),
        default=Path("corpus"),
        show_default=True,
        help="Folder of the corpus, or sqlite:///FILE, or postgresql://...",
        **more,
    )(command)


def old_corpus_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the place of the corpus, for commands to which one that is not there can tell nothing."""
    return corpus_option(command, callback=existing_corpus)


def box_options(command: Callable[..., int]) -> Callable[..., int]:
    """Limits of the sandbox, as `limits`."""

    @wraps(command)
    def boxed(*, timeout: float, memory_mb: int, in_the_open: bool, **rest: Any) -> int:
        return command(limits=SandboxLimits(timeout, memory_mb, not in_the_open), **rest)

    usual = SandboxLimits()
    timed = click.option(
        "--timeout",
        type=Seconds(0.01, LONGEST),
        default=usual.timeout,
        show_default=True,
        help="Seconds for one execution.",
    )(boxed)
    timed = click.option(
        "--open", "in_the_open", is_flag=True, help="Kernels get a network, and write files, with your rights."
    )(timed)
    return click.option(
        "--memory",
        "memory_mb",
        type=AtLeast(16, MOST_MB),
        default=usual.memory_mb,
        show_default=True,
        help="Megabytes a subject may allocate.",
    )(timed)


def _named(context: click.Context, option: click.Parameter, path: str) -> str:
    """Raises UsageError for an empty path, as of a variable that is not set: our own is not what was meant."""
    if not path and context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE:
        raise UsageError("--python is empty; name an interpreter, or the folder of its environment")
    return path


def subject_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Kernels of one's own, as `subjects`, how they are launched, as `launch`, and where they run, as `python`."""
    command = click.option(
        "--python",
        default="",
        callback=_named,
        metavar="PATH",
        help="An interpreter, or the folder of its environment, in which your --subject runs; numpy is enough there.",
    )(command)
    command = click.option(
        "--launch",
        multiple=True,
        metavar="KEY=VALUE",
        help="Front matter for a CUDA file of yours, as TOML, such as 'block = 256'; repeatable.",
    )(command)
    return click.option(
        "--subject",
        "subjects",
        multiple=True,
        metavar="FILE[:NAME][@PYTHON]",
        help="A kernel of your own, anywhere, and maybe the interpreter that it runs in; repeatable.",
    )(command)


def own_option(command: Callable[..., int]) -> Callable[..., int]:
    """The same, as `own`."""

    @wraps(command)
    def owned(*, subjects: tuple[str, ...], launch: tuple[str, ...], python: str, **rest: Any) -> int:
        return command(own=UserKernels(subjects, launch, python), **rest)

    return subject_option(owned)


def dtype_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Some of the dtypes that subjects take."""
    text = "Only this dtype of the first input; repeatable.  [default: all that a subject takes]"
    return click.option("--dtype", "dtypes", multiple=True, metavar="NAME", help=text)(command)


def device_option(default: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the device on which subjects run; text: its help."""
    return click.option("--device", default=default, show_default=bool(default), help=text)


def _launch_blocking(_context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    """Tell CUDA, in all processes that this one starts."""
    if wanted:
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"


def launch_blocking_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the switch that lets an error of CUDA's show where it is made."""
    text = "Each launch on a GPU waits for its end: an error shows in the line that made it."
    return click.option("--launch-blocking", is_flag=True, expose_value=False, callback=_launch_blocking, help=text)(
        command
    )


def _add_contracts(context: click.Context, option: click.Parameter, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Load contracts, before anything else is looked up: the ops of a command line may be the user's own."""
    del context, option
    for path in paths:
        add_contract(path)
    return paths


def _add_references(context: click.Context, option: click.Parameter, places: tuple[str, ...]) -> tuple[str, ...]:
    """The same for references."""
    del context, option
    for place in places:
        add_reference(place)
    return places


def reference_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """References of one's own, known before anything else is looked up."""
    return click.option(
        "--reference",
        "references",
        multiple=True,
        metavar="FILE[:NAME]",
        callback=_add_references,
        is_eager=True,
        expose_value=False,
        help="A reference of your own, which is an op; repeatable.",
    )(command)


def contract_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Contracts of one's own, known before anything else is looked up."""
    return click.option(
        "--contract",
        "contracts",
        multiple=True,
        metavar="FILE",
        type=click.Path(path_type=Path),
        callback=_add_contracts,
        is_eager=True,
        expose_value=False,
        help="The contract of an op of your own; repeatable.",
    )(command)


def _checked_base(_context: click.Context, _option: click.Parameter, base: Path | None) -> Path | None:
    """Refuse what is no folder before anything runs."""
    if base is not None:
        check_base(base)
    return base


def base_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the checkout to compare with."""
    return click.option(
        "--base",
        type=click.Path(path_type=Path),
        metavar="DIR",
        callback=_checked_base,
        help="A checkout to compare with: what fails there, too, does not count.",
    )(command)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """A summary for programs."""
    return click.option(
        "--json", "json_path", metavar="FILE", help="Write the summary as JSON (-: to standard output)."
    )(command)
