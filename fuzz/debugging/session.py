"""A debugger's command line, and what it reads: the order for the process that it runs, and its script."""

from __future__ import annotations

import ast
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which

from pydantic_core import to_json

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.process.child import command_of
from kernel_assay.fuzz.debugging.evidence import Place, WrongElement, places_of, wrong_element
from kernel_assay.fuzz.replay.replay import Item
from kernel_assay.fuzz.triage.sanitize import order_of
from kernel_assay.kernels.backend_registry import is_on_gpu, loader_of
from kernel_assay.kernels.backends.cuda_support.front_matter import CUDA_TYPES, FrontMatter, read_front_matter
from kernel_assay.kernels.backends.simt.schedule import CHECKED
from kernel_assay.kernels.backends.simt.toolchain import DEBUG, HOME
from kernel_assay.kernels.catalog import resolve
from kernel_assay.kernels.nvidia.run_once import Order
from kernel_assay.reports.book import stopped_at

_GUARDED = {Kind.OUT_OF_BOUNDS, Kind.INPUT_MUTATED}
"""Seen after a run by what it has left, and in check mode at the access itself."""
_LATE = {Kind.RACE, Kind.UNINITIALIZED}
"""Known to check mode only some accesses later."""
_SETTINGS = (
    *("set pagination off", "set confirm off", "set breakpoint pending on", "set print frame-arguments all"),
    *("set print thread-events off", "set print inferior-events off"),
)
_ALIVE = "if $_isvoid($_exitcode) && $_isvoid($_exitsignal)"
_SAY_WHO = (
    r'printf "thread (%u, %u, %u) of block (%u, %u, %u)\n", '
    "threadIdx.x, threadIdx.y, threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z"
)
_ENDED = r"echo The kernel ran to its end, and stopped nowhere on the way.\n"
_HERE = f"""\
define here
python
frame = gdb.newest_frame()
while frame and (not frame.find_sal().symtab or frame.find_sal().symtab.fullname().startswith({f"{HOME}/"!r})):
    frame = frame.older()
if frame:
    frame.select()
end
{_SAY_WHO}
frame
end
document here
Say which thread of which block it is, and go to its innermost frame in the kernel.
end"""


@dataclass(frozen=True, slots=True)
class Session:
    """A debugger to be started, and the files that it reads."""

    command: list[str]
    environment: dict[str, str]
    script: Path

    def start(self, *, attended: bool) -> tuple[int, str]:
        """Run it up to its end: its exit code, and what it printed, unless a person sits at the terminal.

        Ctrl-C is the debugger's then.
        """
        env = {**os.environ, **self.environment}
        if not attended:
            null, pipe, out = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
            done = subprocess.run(self.command, env=env, stdin=null, stdout=pipe, stderr=out, check=False)
            return done.returncode, done.stdout.decode("utf-8", "replace")
        before = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            return subprocess.run(self.command, env=env, check=False).returncode, ""
        finally:
            signal.signal(signal.SIGINT, before)

    def __str__(self) -> str:
        """What a person types to start it."""
        return " ".join([*(f"{name}={value}" for name, value in self.environment.items()), shlex.join(self.command)])


def session_of(item: Item, folder: Path, commands: Sequence[str]) -> Session:
    """Write what the debugger of an item's kernel reads, and say how it is started.

    commands: run at the first stop, and then it ends; (): a person goes on. Raises UsageError if there is no such
    debugger, or the kernel does not run here.
    """
    subject = item.subject
    if subject.python:
        raise UsageError(f"{subject.key} runs in {subject.python}; debuggers run kernels in the tool's own Python")
    if why := loader_of(subject.loader).unavailable():
        raise UsageError(f"{subject.key} cannot be debugged here, because {why}")
    make = _in_pdb if subject.backend != "cuda" else _in_cuda_gdb if is_on_gpu(subject) else _in_gdb
    return make(item, folder, commands)


# ---- Python ----------------------------------------------------------------------------------------------------------


def _in_pdb(item: Item, folder: Path, commands: Sequence[str]) -> Session:
    order, script = folder / "order.json", folder / "stops.json"
    order_of(item.case, item.subject).write(order)
    file = str(resolve(item.subject))
    lines = [stopped_at(item.finding)] if item.finding else []
    stops = [_first_stop(file, item.subject), *((file, line, None) for line in lines if line)]
    script.write_bytes(to_json({"stops": stops, "commands": [*commands, "quit"] if commands else []}))
    return Session(command_of("kernels.debugging.in_pdb", str(order), str(script)), {}, script)


def _first_stop(file: str, subject: Subject) -> tuple[str, int, str]:
    """The line where the code of a subject's function begins, which is that of its first decorator, and its name."""
    found = [node for node in ast.walk(ast.parse(Path(file).read_bytes())) if getattr(node, "name", "") == subject.function]
    inner = [n for node in found for n in getattr(node, "body", ()) if getattr(n, "name", "") in {"forward", "__call__"}]
    for node in [*(inner if found and isinstance(found[0], ast.ClassDef) else []), *found]:
        if isinstance(node, ast.FunctionDef):
            return file, min([node.lineno, *(d.lineno for d in node.decorator_list)]), node.name
    return file, subject.line, subject.function


def program_session(program: str, commands: Sequence[str]) -> Session:
    """A reproducer, or any program in Python, stopped at its first line."""
    words = [word for command in [*commands, "quit"] for word in ("-c", command)] if commands else []
    return Session([sys.executable, "-m", "pdb", *words, program], {}, Path(program))


# ---- CUDA C++ --------------------------------------------------------------------------------------------------------


def _in_gdb(item: Item, folder: Path, commands: Sequence[str]) -> Session:
    """Emulated, in check mode if that is where the failure is seen."""
    if not which("gdb"):
        raise UsageError("gdb is not installed; install it, as by apt install gdb")
    front, order = read_front_matter(resolve(item.subject), item.subject.launch), order_of(item.case, item.subject)
    kind, number = item.finding.verdict.kind if item.finding else Kind.PASS, item.case.number
    if item.finding and item.finding.verdict.rule == "check":
        order = replace(order, run=1)
    elif kind in _GUARDED and not item.case.contracted:
        order = replace(order, run=1, turn=number - number % CHECKED)
    element = wrong_element(item.finding)
    at = next((n for n, formula in enumerate(front.args) if element and formula.text == element.output), -1)
    places = places_of(item.finding)
    stops = [_break(place) for place in places if kind in _LATE]
    stops += [f"disable {n}" for n in range(2, len(stops) + 1)]  # the other access of a race comes first
    if element and at >= 0:
        stops += [f"tbreak simt_launch_{n}" for n in range(len(front.instances))]
    elif not places:
        stops += [f"tbreak {instance.entry}" for instance in front.instances]
    watch = _watched(element, at) if element and at >= 0 else []
    lines = [*_SETTINGS, _HERE, *_quietly([*stops, "break simt::fail"])]
    lines += ["run", *watch, _ALIVE, "here", "else", _ENDED, "end"]
    return _session("gdb", order, front, folder, commands, lines)


def _in_cuda_gdb(item: Item, folder: Path, commands: Sequence[str]) -> Session:
    if not which("cuda-gdb"):
        raise UsageError("cuda-gdb is not on the PATH, it comes with the CUDA toolkit; --device cpu debugs it emulated")
    front = read_front_matter(resolve(item.subject), item.subject.launch)
    places = places_of(item.finding)
    stops = [_break(place) for place in places] or [f"tbreak {instance.entry}" for instance in front.instances]
    lines = [*_SETTINGS, *stops, "run", _ALIVE, *(_focus(places[0]) if places else []), _SAY_WHO, "else", _ENDED, "end"]
    return _session("cuda-gdb", order_of(item.case, item.subject), front, folder, commands, lines)


def _focus(place: Place) -> list[str]:
    return [f"cuda block {place.block} thread {place.thread}".replace(" (", " ").replace(")", "").replace(", ", ",")]


def _session(debugger: str, order: Order, front: FrontMatter, folder: Path, commands: Sequence[str], lines: Sequence[str]) -> Session:
    """The order and the script written, and the source, if that is another file's with changes."""
    order.write(folder / "order.json")
    if not front.source.place.exists():
        (folder / front.source.place.name).write_text(front.source.text, "utf-8")
        lines = [f"directory {folder.absolute()}", *lines]
    script = folder / "script.gdb"
    script.write_text("\n".join(lines) + "\n", "utf-8")
    ending = [word for command in commands for word in ("-ex", command)]
    program = command_of("kernels.nvidia.run_once", str(folder / "order.json"))
    quiet = ["-q", "-iex", "set auto-load python-scripts off", *(["-nx", "-batch"] if commands else [])]
    environment = {DEBUG: "1", "DEBUGINFOD_URLS": ""}
    return Session([debugger, *quiet, "-x", str(script), *ending, "--args", *program], environment, script)


def _quietly(commands: Sequence[str]) -> list[str]:
    """The commands, without a word on what is not loaded yet."""
    silent = ["for stop in gdb.breakpoints():", '    stop.silent = stop.location.startswith("simt_launch")']
    return ["python", f"for one in {list(commands)!r}:", "    gdb.execute(one, to_string=True)", *silent, "end"]


def _break(place: Place) -> str:
    at = [(f"threadIdx.{a}", n) for a, n in zip("xyz", place.thread, strict=True)]
    at += [(f"blockIdx.{a}", n) for a, n in zip("xyz", place.block, strict=True)]
    return f"break {place.file}:{place.line} if {' && '.join(f'{name} == {n}' for name, n in at)}"


def _watched(element: WrongElement, at: int) -> list[str]:
    """Commands, once the kernel is launched: go on to the store that makes the element what it is."""
    size = format_of(element.dtype).dtype.itemsize
    value = f"*(unsigned {_WHOLE[size]}*)$element"
    return [
        _ALIVE,
        f"set $element = (char*)arguments[{at}].address + {element.at * size}",
        f"watch -location *({CUDA_TYPES[element.dtype]}*)$element if {value} == {element.bits:#x}",
        "continue",
        "end",
    ]


_WHOLE = {1: "char", 2: "short", 4: "int", 8: "long"}
