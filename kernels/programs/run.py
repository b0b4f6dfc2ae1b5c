"""Runs of a CUDA program: each in a process that shares with this one only the memory that findings go to."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process.child import command_of, handed
from kernel_assay.corpus.process.scratch_folders import Scratch
from kernel_assay.kernels.backends.simt.emulator import ORDERS
from kernel_assay.kernels.backends.simt.program.compile import Program
from kernel_assay.kernels.backends.simt.program.findings import (
    ProgramFinding,
    ProgramRun,
    Table,
    Telling,
    merged,
    table_in,
)
from kernel_assay.kernels.sandbox.closing import enclosure_of

_SCRATCH_MB = 4096
_DOUBTED = ("undefined-lane", "undefined-result")
_EVERYWHERE = -1
_MOST_DOUBTED = 4
"""Notes of a run that are looked into: each by a run more, or three."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a program is run."""

    arguments: tuple[str, ...] = ()
    orders: int = 1
    """Runs, each with threads in another order."""
    seed: int = 0
    """Of the first run; the next have the numbers that follow."""
    timeout: float = 60.0
    """Seconds of a run."""
    jobs: int = 0
    """Processors that a program in fast mode runs blocks on; 0: all that this process may use, up to 16."""
    closed: bool = True
    """Whether it is closed in."""
    out: IO[bytes] | int | None = None
    """Where the first run prints; None: where this process does. What later runs print is dropped."""
    environment: Mapping[str, str] = field(default_factory=dict)


def run_program(program: Program, settings: Settings, sources: Sequence[str]) -> ProgramRun:
    """Run it in as many orders as asked, and tell what was found. Raises UsageError for what is not emulated."""
    telling, found = Telling(program), list[ProgramFinding]()
    codes, failed = list[int | None](), list[ProgramFinding]()
    launches = 0
    for number in range(settings.orders):
        code, table = _run(program, settings, settings.seed + number, is_first=not number)
        if said := telling.refusal(table):
            raise UsageError(said)
        codes.append(code)
        launches = launches or table.launches
        told = telling.findings(table)
        found += told if program.fast or not settings.closed else _used(program, settings, list(told), code, table)
        if code is None:
            found.append(_timeout(telling, table, settings.timeout))
        elif code > 0:
            failed.append(_failed(telling, table, code))
        elif code < 0 and not any(f.kind == "host-crash" and f.seed == table.seed for f in found):
            found.append(_killed(table, -code))
    if all(f.harmless for f in found):  # else they say why
        found += failed
    return ProgramRun(
        sources=tuple(sources),
        runs=settings.orders,
        launches=launches,
        exit_code=codes[0],
        findings=merged([f for f in found if not (f.kind == "undefined-result" and f.harmless)]),
    )


def _used(
    program: Program, settings: Settings, found: list[ProgramFinding], code: int | None, table: Table
) -> Iterator[ProgramFinding]:
    """The same; a note of an undefined value is a finding where what the host reads depends on the value.

    Told by runs with another value there, twice, and one with the same: a program that is never twice the same is
    believed in nothing. Before that a run with other values everywhere tells whether there is anything to look for.
    """

    def outcome(line: int) -> tuple[int | None, int]:
        again, seen = _run(program, settings, table.seed, is_first=False, undefined_line=line)
        return again, seen.outcome

    first = (code, table.outcome)
    any_doubt = code is not None and any(f.kind in _DOUBTED for f in found)
    left = _MOST_DOUBTED if any_doubt and outcome(_EVERYWHERE) != first else 0
    for one in found:
        doubted = one.kind in _DOUBTED and one.place and left > 0
        left -= bool(doubted)
        if doubted and one.place and (other := outcome(one.place.line)) != first:
            is_used = outcome(0) == first and outcome(one.place.line) == other
            words = f"{one.message}; what the host gets depends on it"
            yield one.model_copy(update={"harmless": False, "message": words}) if is_used else one
        else:
            yield one


def _timeout(telling: Telling, table: Table, seconds: float) -> ProgramFinding:
    where = table.running.decode("utf-8", "replace")
    doing = f"in kernel {where}" if where else "on the host"
    words = f"it did not end in {seconds:g} s and was {doing}"
    place = telling.launched(table) if where else telling.main()
    return ProgramFinding(kind="timeout", message=words, place=place, order=ORDERS[table.order], seed=table.seed)


def _failed(telling: Telling, table: Table, code: int) -> ProgramFinding:
    words = f"the program ended with {code}"
    return ProgramFinding(
        kind="exit-code", message=words, place=telling.main(), order=ORDERS[table.order], seed=table.seed
    )


def _killed(table: Table, number: int) -> ProgramFinding:
    words = f"the program itself ended: {signal.strsignal(number) or f'signal {number}'}"
    return ProgramFinding(kind="host-crash", message=words, order=ORDERS[table.order], seed=table.seed)


def _run(
    program: Program, settings: Settings, seed: int, *, is_first: bool, undefined_line: int = 0
) -> tuple[int | None, Table]:
    """One run: its exit code, None if its time was up, and what was found.

    undefined_line: where what shuffles read from lanes that take no part is another value than elsewhere.
    """
    file = os.memfd_create("findings")
    os.ftruncate(file, ctypes.sizeof(Table))
    table = table_in(file, seed)
    with closing(Scratch("program-")) as scratch:
        told = _told(program, settings, scratch.path, file)
        told["environment"]["KERNEL_ASSAY_UNDEFINED"] = str(undefined_line)
        given = handed(told)
        out = settings.out if is_first else subprocess.DEVNULL
        process = subprocess.Popen(
            command_of("kernels.programs.child", str(given)),
            pass_fds=(file, given),
            stdin=subprocess.DEVNULL if sys.stdin is None or sys.stdin.isatty() else None,
            stdout=out,
            stderr=None if is_first else subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(given)
        try:
            code = process.wait(settings.timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(file)
    return code, table


def _told(program: Program, settings: Settings, scratch: Path, file: int) -> dict[str, Any]:
    ours = {"KERNEL_ASSAY_FINDINGS": str(file), "KERNEL_ASSAY_SYMBOLS": str(program.symbols), "TMPDIR": str(scratch)}
    ours["KERNEL_ASSAY_JOBS"] = str(settings.jobs)
    return {
        "executable": str(program.executable),
        "name": program.name,
        "arguments": list(settings.arguments),
        "environment": {**settings.environment, **ours},
        "enclosure": {**enclosure_of(scratch, _SCRATCH_MB, {}), "writable": []} if settings.closed else None,
    }
