"""A debugger's command line, and what it reads: the order for the process that it runs, and where to stop."""

from __future__ import annotations

import ast
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
from kernel_assay.fuzz.triage.sanitize import order_of, placed_here
from kernel_assay.kernels.backend_registry import is_on_gpu
from kernel_assay.kernels.backends.cuda_support.front_matter import CUDA_TYPES, read_front_matter
from kernel_assay.kernels.backends.simt.schedule import CHECKED
from kernel_assay.kernels.backends.simt.toolchain import DEBUG, HOME
from kernel_assay.kernels.catalog import resolve
from kernel_assay.kernels.nvidia.run_once import Order
from kernel_assay.reports.book import stopped_at

NOWHERE = 3
"""Exit code of a debugger that came to nothing to stop at."""
_GUARDED = {Kind.OUT_OF_BOUNDS, Kind.INPUT_MUTATED}
"""Seen by what a run has left; in check mode at the access itself."""
_LATE = {Kind.RACE, Kind.UNINITIALIZED}
"""Known to check mode only some accesses later, and, as nothing orders the accesses, not always of the same ones."""
_SETTINGS = (
    *("set pagination off", "set confirm off", "set breakpoint pending on"),
    *("set print thread-events off", "set print inferior-events off"),
)
_ALIVE = "if $_isvoid($_exitcode) && $_isvoid($_exitsignal)"
_OVER = "if !($_isvoid($_exitcode) && $_isvoid($_exitsignal))"
_ENDED = (r"echo The kernel ran to its end, and stopped nowhere on the way.\n", f"quit {NOWHERE}")
_SAY_WHO = (
    r'printf "thread (%u, %u, %u) of block (%u, %u, %u)\n", '
    "threadIdx.x, threadIdx.y, threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z"
)
_RUNTIME = f"/{HOME.parent.name}/{HOME.name}/"
"""The emulator's files, wherever they lay when the library was built, which is kept by what stands in them."""
_HERE = f"""\
define here
python
frame = gdb.newest_frame()
while frame and (not frame.find_sal().symtab or frame.find_sal().symtab.fullname().count({_RUNTIME!r})):
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
_WHOLE = {1: "char", 2: "short", 4: "int", 8: "long"}


@dataclass(frozen=True, slots=True)
class Session:
    """A debugger to be started, and the file that says where it stops."""

    command: list[str]
    script: Path
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *, attended: bool) -> tuple[int, str]:
        """Run it to its end: its exit code, and what it printed, unless a person sits at the terminal.

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
        """Say what a person types to start it."""
        return " ".join([*(f"{name}={value}" for name, value in self.environment.items()), shlex.join(self.command)])


def session_of(item: Item, folder: Path, commands: Sequence[str]) -> Session:
    """Write into a folder what the debugger of an item's kernel reads, and say how it is started.

    commands: run at the first stop, and then it ends; (): a person goes on. Raises UsageError if there is no such
    debugger, or the kernel does not run here.
    """
    subject = placed_here(item.subject)
    make = _in_pdb if subject.backend != "cuda" else _in_cuda_gdb if is_on_gpu(subject) else _in_gdb
    return make(item, folder, commands)


# ---- Python ----------------------------------------------------------------------------------------------------------


def program_session(program: str, commands: Sequence[str]) -> Session:
    """A reproducer, or any program in Python, stopped at its first line."""
    words = [word for command in [*commands, "quit"] for word in ("-c", command)] if commands else []
    return Session([sys.executable, "-m", "pdb", *words, program], Path(program))


def _in_pdb(item: Item, folder: Path, commands: Sequence[str]) -> Session:
    """Stopped where the function begins, and next in the line that raised."""
    order, script, file = folder / "order.json", folder / "stops.json", str(resolve(item.subject))
    order_of(item.case, item.subject).write(order)
    raised = stopped_at(item.finding) if item.finding else 0
    stops = [_first_stop(file, item.subject), *([(file, raised, None)] if raised else [])]
    script.write_bytes(to_json({"stops": stops, "commands": [*commands, "quit"] if commands else []}))
    return Session(command_of("kernels.debugging.in_pdb", str(order), str(script)), script)


def _first_stop(file: str, subject: Subject) -> tuple[str, int, str]:
    """The line where the code of a subject's function begins, which is that of its first decorator, and its name.

    Of a class it is that of its method.
    """
    tree = ast.parse(Path(file).read_bytes())
    scope = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == subject.function), tree)
    wanted = {"forward", "__call__"} if scope is not tree else {subject.function}
    for node in ast.walk(scope):
        if isinstance(node, ast.FunctionDef) and node.name in wanted:
            return file, min([node.lineno, *(n.lineno for n in node.decorator_list)]), node.name
    return file, subject.line, subject.function


# ---- CUDA C++ --------------------------------------------------------------------------------------------------------


def _in_gdb(item: Item, folder: Path, commands: Sequence[str]) -> Session:
    """Emulated, in check mode if that sees the failure."""
    if not which("gdb"):
        raise UsageError("gdb is not installed; install it, as by apt install gdb")
    verdict, element = item.finding.verdict if item.finding else None, wrong_element(item.finding)
    front = read_front_matter(resolve(item.subject), item.subject.launch)
    at = next((n for n, formula in enumerate(front.args) if element and formula.text == element.output), -1)
    places, go = [_break(place) for place in places_of(item.finding)], ["run"]
    if verdict and places:  # where no access is seen to fail, the line is all there is; of a race the other comes first
        first = 2 if verdict.kind in _LATE else 1
        stops = [*places, *(f"disable {n}" for n in range(first, len(places) + 1))]
        go += [_OVER, "enable", "set $_exitcode = $void", "run", "end"]
    elif element and at >= 0:
        stops = [f"tbreak simt_launch_{n}" for n in range(len(front.instances))]
        go += _up_to_store(element, at)
    else:
        stops = [f"tbreak {instance.entry}" for instance in front.instances]
    quietly = f"for one in {[*stops, 'break simt::fail']!r}:\n    gdb.execute(one, to_string=True)"
    silent = "for stop in gdb.breakpoints():\n    stop.silent = stop.location.startswith('simt_launch')"
    lines = [_HERE, "python", quietly, silent, "end", *go]
    order = order_of(item.case, item.subject)
    seen = verdict and verdict.kind not in _LATE and (verdict.rule == "check" or verdict.kind in _GUARDED)
    if seen and not item.case.contracted:
        order = replace(order, run=1, turn=item.case.number - item.case.number % CHECKED)
    return _session("gdb", order, folder, commands, [*lines, _ALIVE, "here", "else", *_ENDED, "end"])


def _in_cuda_gdb(item: Item, folder: Path, commands: Sequence[str]) -> Session:
    if not which("cuda-gdb"):
        raise UsageError("cuda-gdb is not on the PATH, it comes with the CUDA toolkit; --device cpu debugs it emulated")
    front, places = read_front_matter(resolve(item.subject), item.subject.launch), places_of(item.finding)
    stops = [_break(place) for place in places] or [f"tbreak {instance.entry}" for instance in front.instances]
    focus = [f"cuda block {_comma(p.block)} thread {_comma(p.thread)}" for p in places[:1]]
    quietly = "set cuda api_failures hide"  # libraries ask the driver for what it does not have, a hundred times
    lines = [quietly, *stops, "run", _ALIVE, *focus, _SAY_WHO, "else", *_ENDED, "end"]
    return _session("cuda-gdb", order_of(item.case, item.subject), folder, commands, lines)


def _session(debugger: str, order: Order, folder: Path, commands: Sequence[str], lines: Sequence[str]) -> Session:
    """The order and the script written, and the source, if that is another file's with changes."""
    order.write(folder / "order.json")
    source = read_front_matter(resolve(order.subject), order.subject.launch).source
    if not source.place.exists():
        (folder / source.place.name).write_text(source.text, "utf-8")
        os.utime(folder / source.place.name, (0, 0))  # gdb warns of a source that is younger than the library
    script = folder / "script.gdb"
    script.write_text("\n".join([*_SETTINGS, f"directory {folder.absolute()}", *lines, ""]), "utf-8")
    ending = [word for command in commands for word in ("-ex", command)]
    program = command_of("kernels.nvidia.run_once", str(folder / "order.json"))
    quiet = ["-q", "-iex", "set auto-load python-scripts off", *(["-nx", "-batch"] if commands else [])]
    words = [debugger, *quiet, "-x", str(script), *ending, "--args", *program]
    return Session(words, script, {DEBUG: "1", "DEBUGINFOD_URLS": ""})


def _break(place: Place) -> str:
    at = [(f"threadIdx.{a}", n) for a, n in zip("xyz", place.thread, strict=True)]
    at += [(f"blockIdx.{a}", n) for a, n in zip("xyz", place.block, strict=True)]
    return f"break {place.file}:{place.line} if {' && '.join(f'{name} == {n}' for name, n in at)}"


def _comma(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _up_to_store(element: WrongElement, at: int) -> list[str]:
    """Commands, once the kernel is launched: go on to the store that makes the element what it is."""
    size = format_of(element.dtype).dtype.itemsize
    value = f"*(unsigned {_WHOLE[size]}*)$element"
    return [
        _ALIVE,
        f"set $element = (char*)arguments[{at}].address + {element.at * size}",
        f"set var {value} = {element.other:#x}",  # it may hold by chance what will be written
        f"watch -location *({CUDA_TYPES[element.dtype]}*)$element{element.condition(value)}",
        "continue",
        "end",
        _ALIVE,
        "info line *($pc - 1)",
        "end",
    ]
