"""`emulate`: a whole CUDA program on the CPU, with every access judged."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path
from typing import Any

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.program import program
from kernel_assay.fuzz.cli.options import AtLeast, Seconds, json_option
from kernel_assay.fuzz.cli.output import FOUND, check_files, end_at_sigterm, write_json
from kernel_assay.fuzz.settings import LONGEST
from kernel_assay.kernels.backends.simt.program.compile import Request, compile_program
from kernel_assay.kernels.backends.simt.program.findings import Place, ProgramFinding, ProgramRun
from kernel_assay.kernels.programs.run import Settings, run_program
from kernel_assay.reports.formats.sarif import FINGERPRINT, location, log
from kernel_assay.reports.forms import write
from kernel_assay.reports.plain.terminal import say
from kernel_assay.reports.words import count

_STANDARD = "c++17"
_SECONDS = 60.0
_SOURCES = {".cu", ".cpp", ".cc", ".cxx", ".c"}


class _Command(click.Command):
    """Keeps what follows `--` apart: it is the program's, and click would take a .cu file there for another source."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        if any(Path(word).suffix in _SOURCES for word in args[:at]):
            ctx.meta[__name__], args = tuple(args[at + 1 :]), args[:at]
        return super().parse_args(ctx, args)


@click.command("emulate", cls=_Command, context_settings={"ignore_unknown_options": False})
@click.argument("files", nargs=-1, required=True, metavar="FILE.cu... [-- ARGUMENT...]")
@click.option("-D", "defines", multiple=True, metavar="NAME[=VALUE]", help="Define a macro; repeatable.")
@click.option("-I", "includes", multiple=True, metavar="FOLDER", help="Search headers there; repeatable.")
@click.option("--std", "-std", "standard", default=_STANDARD, show_default=True, help="The language: c++17, c++20, ...")
@click.option(
    "--orders", type=AtLeast(1, 1000), default=1, show_default=True, help="Runs, threads in another order each."
)
@click.option("--seed", type=AtLeast(0), default=0, show_default=True, help="The order of the first run.")
@click.option(
    "--timeout", type=Seconds(0.1, LONGEST), default=_SECONDS, show_default=True, help="Seconds that a run may take."
)
@click.option("--fast", is_flag=True, help="Judge no accesses, and run blocks on all processors.")
@click.option("--jobs", type=AtLeast(1, 16), metavar="N", help="With --fast: run blocks on N processors, up to 16.")
@click.option(
    "--open", "is_open", is_flag=True, help="Do not close the program in: it may write files, and has a network."
)
@click.option("--sarif", "sarif_path", metavar="FILE", help="Write SARIF for code scanning and editors.")
@json_option
def command(
    *,
    files: tuple[str, ...],
    defines: tuple[str, ...],
    includes: tuple[str, ...],
    standard: str,
    orders: int,
    seed: int,
    timeout: float,
    fast: bool,
    jobs: int | None,
    is_open: bool,
    sarif_path: str | None,
    json_path: str | None,
) -> int:
    """Run a CUDA program on the CPU, without a GPU, and judge every access to memory and every barrier.

    What compute-sanitizer's four tools report, with names and lines: races, accesses out of bounds, uninitialized
    memory, barriers, leaks. It goes on behind a finding. Exit code 1 if something was found, 2 if the program cannot be
    compiled or uses what is not emulated.
    """
    end_at_sigterm()
    check_files(json_path, sarif_path)
    if jobs and not fast:
        raise UsageError("--jobs needs --fast: accesses are judged on one processor")
    sources, arguments = _split(files)
    arguments += click.get_current_context().meta.get(__name__, ())
    for folder in (f for f in includes if not Path(f).is_dir()):
        say(f"warning: -I{folder} is no folder: no header is searched there", err=True)
    request = Request(sources, defines, tuple(map(Path, includes)), standard, fast=fast)
    out = 2 if json_path == "-" else None
    settings = Settings(arguments, orders, seed, timeout, jobs or 0, closed=not is_open, out=out)
    found = run_program(compile_program(request), settings, [str(s) for s in sources])
    found = found.model_copy(update={"fast": fast, "replay": _replay(found, request, settings)})
    for text in _told(found):
        say(text, err=json_path == "-")
    write_json(json_path, found)
    if sarif_path:
        write(Path(sarif_path), _sarif(found))
    return FOUND if any(not f.harmless for f in found.findings) else 0


def _split(files: tuple[str, ...]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The sources, and the program's own arguments, which follow the last of them."""
    number = next((i for i, f in enumerate(files) if Path(f).suffix not in _SOURCES), len(files))
    if not number:
        raise UsageError(f"{files[0]} is no source of a program; name .cu files first")
    return tuple(map(Path, files[:number])), files[number:]


def _replay(found: ProgramRun, request: Request, settings: Settings) -> str:
    if not found.findings:
        return ""
    sources = [f"./{file}" if str(file).startswith("-") else str(file) for file in request.sources]
    words = [program(), "emulate", *sources, *(f"-D{d}" for d in request.defines)]
    words += [f"-I{folder}" for folder in request.includes]
    words += [f"-std={request.standard}"] * (request.standard != _STANDARD) + ["--open"] * (not settings.closed)
    words += ["--fast"] * request.fast + [f"--jobs={settings.jobs}"] * bool(settings.jobs)
    words += [f"--timeout={settings.timeout!r}".removesuffix(".0")] * (settings.timeout != _SECONDS)
    words += ["--seed", str(found.findings[0].seed)]
    return shlex.join([*words, *(["--", *settings.arguments] if settings.arguments else [])])


def _told(found: ProgramRun) -> list[str]:
    real = [f for f in found.findings if not f.harmless]
    lines = [_line(f, several=found.runs > 1) for f in found.findings]
    code = found.exit_code
    ending = (
        "the program's own end was not reached"
        if code is None
        else f"signal {-code} ended the program"
        if code < 0
        else f"the program's exit code {code}"
    )
    launches = f"{found.launches:,} launch{'es' * (found.launches != 1)}"
    ran = f"{count(found.runs, 'run')}, {launches}{', no access judged' * found.fast}; {ending}"
    lines.append(f"{count(len(real), 'finding')} ({ran})")
    if not real and found.runs == 1 and found.launches and not found.fast:
        lines.append("one order of threads and blocks was tried; --orders 8 tries others")
    if found.replay:
        lines.append(f"again: {found.replay}")
    return lines


def _line(f: ProgramFinding, *, several: bool) -> str:
    place = f"{f.place.file}:{f.place.line}: " if f.place else ""
    times = f" ({f.count} times)" if f.count > 1 else ""
    kernel = f"; kernel {f.kernel}, launched in line {f.launch.line}" if f.launch else ""
    note = "note: " if f.harmless else ""
    shown = f"; order {f.order}, seed {f.seed}" if several or f.seed else ""  # else as every program begins
    return f"{place}{note}{f.kind}: {f.message}{times}{kernel}{shown}"


def _sarif(found: ProgramRun) -> str:
    kinds = sorted({f.kind for f in found.findings})
    rules = [{"id": kind, "shortDescription": {"text": kind.replace("-", " ")}} for kind in kinds]
    return log(rules, [_result(f, kinds.index(f.kind), found.sources[0]) for f in found.findings])


def _result(f: ProgramFinding, rule: int, source: str) -> dict[str, Any]:
    lines = [p for p in (f.place, f.other, f.allocated) if p] or [Place(file=source, line=1)]
    where = [location(p.file, {"startLine": p.line}) for p in lines]
    said = f"{f.kind} {[(Path(p.file).name, p.line) for p in lines]} {f.memory}"
    return {
        "ruleId": f.kind,
        "ruleIndex": rule,
        "level": "note" if f.harmless else "error",
        "message": {"text": _line(f, several=True)},
        "locations": where[:1],
        "relatedLocations": [{"id": number, **place} for number, place in enumerate(where[1:], 1)],
        "partialFingerprints": {FINGERPRINT: hashlib.sha256(said.encode()).hexdigest()[:16]},
        "properties": {"order": f.order, "seed": f.seed, "count": f.count},
    }
