"""What the benchmarks share. Importing it chooses the project's interpreter and puts the repository on the path."""

import argparse
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
_VENV = ROOT / ".venv"
if (_VENV / "bin" / "python").exists() and Path(sys.prefix).resolve() != _VENV.resolve():
    os.execv(_VENV / "bin" / "python", [str(_VENV / "bin" / "python"), *sys.argv])
sys.path.insert(0, str(ROOT))

from kernel_assay.corpus.errors import UsageError  # noqa: E402  where it lies is known by now

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGESIZE")


class Parser(argparse.ArgumentParser):
    """What is wrong with an argument is one sentence, without the usage around it."""

    def __init__(self, text: str | None) -> None:
        super().__init__(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def parser(text: str | None, budget: float) -> Parser:
    made = Parser(text)
    made.add_argument("--budget", type=amount, default=budget, help="seconds to spend, about (default %(default)g)")
    return made


def natural(text: str) -> int:
    """A whole number that is not negative."""
    return int(_number(text, int, 0))


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return int(_number(text, int, 1))


def amount(text: str) -> float:
    """A number that is not negative."""
    return _number(text, float, 0)


def _number(text: str, kind: type[int] | type[float], least: int) -> float:
    try:
        number = kind(text)
    except ValueError:
        number = math.nan
    if least <= number < math.inf:
        return number
    noun = "whole number" if kind is int else "number"
    raise argparse.ArgumentTypeError(f"{text!r} is no {noun} of at least {least}")


def _say(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """One sentence of what somebody asked for and cannot have; a traceback of anything else, which is our fault."""
    if isinstance(error, UsageError | MemoryError):
        said = str(error) or "there is not enough memory for that"
        sys.stderr.write(f"{Path(sys.argv[0]).name}: {said}\n")
    else:
        sys.__excepthook__(kind, error, where)


sys.excepthook = _say


@contextmanager
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        yield Path(folder)


def copy_headers(folder: Path) -> None:
    """A folder for each op, in which a changed copy of its kernels finds the built-in headers where it looks."""
    for original in (ROOT / "kernels").iterdir():
        for header in original.glob("*.cuh"):
            (folder / original.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(header, folder / original.name)


def machine() -> str:
    """The line that says how far to trust absolute values."""
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return f"{os.cpu_count()} processors, load before we start {load}; busy besides us: {others() or 'nobody'}"


def others(seconds: float = 0.5) -> str:
    """Processes that are not ours and use more than a tenth of a processor now."""
    ours = {os.getpid(), *descendants(os.getpid())}
    before = _usage()
    time.sleep(seconds)
    found = []
    for pid, (name, ticks) in _usage().items():
        share = (ticks - before.get(pid, (name, ticks))[1]) / TICK / seconds
        if share > 0.1 and pid not in ours:
            found.append(f"{name} {share:.0%}")
    return ", ".join(found)


def _usage() -> dict[int, tuple[str, int]]:
    return {pid: (s[0], int(s[12]) + int(s[13])) for pid, s in _stats().items()}


def _stats() -> dict[int, list[str]]:
    """pid -> [name, state, parent, ...]: the fields of /proc/<pid>/stat from the second on."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text("utf-8", "replace")
        except OSError:
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        found[int(path.parent.name)] = [name, *rest.split()]
    return found


def descendants(root: int) -> dict[int, str]:
    """pid -> time of start (with the pid, a name that is never used again), for all below a process."""
    stats = _stats()
    below = {root}
    while more := {pid for pid, s in stats.items() if int(s[2]) in below and pid not in below}:
        below |= more
    return {pid: stats[pid][20] for pid in below - {root} if pid in stats}


def alive(pids: dict[int, str]) -> list[int]:
    """Those that still run (a zombie does not)."""
    stats = _stats()
    return [pid for pid, born in pids.items() if pid in stats and stats[pid][20] == born and stats[pid][1] != "Z"]


def cpu_below(root: int) -> float:
    """CPU seconds of all descendants, with those that have ended and were waited for."""
    stats = _stats()
    return sum(sum(map(int, stats[pid][12:16])) for pid in descendants(root) if pid in stats) / TICK


def rss() -> int:
    """Bytes of memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
