"""NVIDIA's compute-sanitizer: how it is called, and what its reports say, in plain sentences.

A report is a line that says what is wrong, and lines with more of it, indented, all behind a prefix. The versions of
2021 to 2026 differ in where they put the name of the kernel, and in their words for an address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from shutil import which

from kernel_assay.kernels.backends.cuda_support.driver import EXACT, device_count
from kernel_assay.kernels.environment import tool_version

PROGRAM = "compute-sanitizer"
TOOLS = {
    "memcheck": "accesses outside of allocations, and misaligned ones",
    "racecheck": "accesses to shared memory that nothing orders",
    "initcheck": "reads of global memory that nobody has written",
    "synccheck": "barriers that not all threads reach",
}
"""What each looks for."""
ENVIRONMENT = {EXACT: "1", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Of the program: an overrun within a pool of memory would be none."""
_MOST_PRINTED = 20
_PADDING = 512
"""Bytes behind every allocation that belong to nobody: else one may begin where another ends."""


def missing(program: str = PROGRAM) -> str:
    """The reason why nothing can be asked of it here, or an empty string."""
    if which(program) is None:
        return f"{program} is not on the PATH; it comes with the CUDA toolkit"
    return "" if device_count() else "there is no CUDA device"


@cache
def version() -> str:
    """The version, as `2025.3.1.0`; empty if it does not say."""
    found = re.search(r"[Vv]ersion\s+(\d[\w.]*)", tool_version(PROGRAM))
    return found[1] if found else ""


def command(tool: str) -> list[str]:
    """The command line up to the program. Errors of the driver's interface are left out: loaders try what may fail."""
    options = ["--tool", tool, "--log-file", "log", "--target-processes", "application-only"]
    options += ["--print-limit", str(_MOST_PRINTED), "--show-backtrace", "device"]
    options += ["--check-exit-code", "no"]
    options += ["--destroy-on-device-error", "kernel"]  # one that is stopped need not take the process with it
    if tool == "memcheck":
        options += ["--report-api-errors", "no", "--padding", str(_PADDING)]
    return [PROGRAM, *options]


@dataclass(frozen=True, slots=True)
class Report:
    """All that one run of a tool has said."""

    errors: int
    """Of kernels."""
    first: str
    """The first of them, in a sentence without a full stop."""
    counted: int
    """By its own summary; -1 without one."""
    remark: str
    """The first line about anything but a kernel, in its words."""

    @property
    def nothing_wrong(self) -> bool:
        """Whether it has looked, and says so: it may have missed what made it stumble itself."""
        return self.counted == 0 and not self.errors and not self.remark.startswith(_STUMBLED)


def read(log: str) -> Report:
    """Read a log. Hazards that racecheck calls warnings are no errors."""
    blocks = list(_blocks(log))
    alarms = [block for block in blocks if _is_alarm(block)]
    remarks = [block[0] for block in blocks if not _is_alarm(block) and not _NOISE.match(block[0])]
    summary = _SUMMARY.search(log)
    counted = int((summary["errors"] or summary["hazards"]).replace(",", "")) if summary else -1
    errors = max(counted, len(alarms)) if alarms else 0
    return Report(errors, _sentence(alarms[0]) if alarms else "", counted, remarks[0] if remarks else "")


_Block = list[str]
_STUMBLED = ("Internal Sanitizer Error", "Error: ")
_SUMMARY = re.compile(
    r"\bERROR SUMMARY: (?P<errors>[\d,]+) error|RACECHECK SUMMARY: .*?\((?P<hazards>[\d,]+) errors?,", re.ASCII
)
_ALARM = re.compile(r"Invalid |Uninitialized |Barrier error|Malloc/Free error|Error: (?:Race|Potential)")
_NOISE = re.compile(r"COMPUTE-SANITIZER|Warning: |[A-Z]+ SUMMARY:|\d+ errors? w(?:as|ere) not printed")


def _blocks(log: str) -> Iterator[_Block]:
    """A line that says something and those that say more of it, without the prefix."""
    block: _Block = []
    for match in re.finditer(r"^=+(?P<space>[ \t]*)(?P<text>.*?)\s*$", log, re.MULTILINE):
        if len(match["space"]) > 1 and block:
            block.append(match["text"])
            continue
        if block:
            yield block
        block = [match["text"]] if match["text"] else []
    if block:
        yield block


def _is_alarm(block: _Block) -> bool:
    return bool(_ALARM.match(block[0])) or any(line.startswith("by thread") for line in block)


# ---- in words --------------------------------------------------------------------------------------------------------

_PLACES = (
    re.compile(r"(?P<kernel>\S.*?)\+0x[0-9a-f]+ in (?P<file>[^:]+):(?P<line>\d+)$"),
    re.compile(r"0x[0-9a-f]+ in (?P<file>[^:]+):(?P<line>\d+):(?P<kernel>.+)$"),
    re.compile(r"(?P<kernel>\S.*?):0x[0-9a-f]+ in (?P<file>[^:]+):(?P<line>\d+)$"),
    re.compile(r"0x[0-9a-f]+ in (?P<kernel>.+)$"),
    re.compile(r"(?P<kernel>\S.*?)(?:\+|:)0x[0-9a-f]+$"),
)
_ACCESS = re.compile(
    r"(?P<how>Invalid|Uninitialized) __(?P<space>\w+)__ (?:memory )?(?P<kind>\w+).* of size (?P<size>\d+)"
)
_THREAD = re.compile(r"by thread \((?P<thread>[\d,]+)\) in block \((?P<block>[\d,]+)\)")
_NEAR = re.compile(
    r"and is (?P<far>[\d,]+) bytes? (?P<side>before|after) the nearest allocation\b.* of size (?P<size>[\d,]+)"
)
_RACE = re.compile(r"(?P<kind>Read|Write|Atomic\w*) access (?:at|by) (?P<place>.*?)(?: \[[\d,]+ hazards?\])?$")
_BARRIER = re.compile(r"Barrier error detected\. Divergent thread\(s\) in (?P<group>\w+)")
_UNWRITTEN = ", which nobody has written,"
_VERBS = {"read": "reads", "write": "writes", "atomic": "changes"}


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in the code."""

    kernel: str = ""
    file: str = ""
    line: str = ""

    @property
    def source(self) -> str:
        """The place in the source in brackets, with a space before; empty if nobody knows."""
        return f" ({self.file.rpartition('/')[2]}, line {self.line})" if self.line else ""


def _sentence(block: _Block) -> str:
    if block[0].startswith("Error: Race"):
        return _race(block)
    place = _place(next((line[3:] for line in block if line.startswith("at ")), ""))
    kernel = _kernel(block, place)
    at = (f" in {kernel}" if kernel else "") + place.source
    return f"{_what(block)}{at}"


def _what(block: _Block) -> str:
    """Words for who did what, without the place in the code."""
    who = next((f"thread {_index(m['thread'])} of block {_index(m['block'])}" for m in _found(_THREAD, block)), "")
    access, barrier = _ACCESS.match(block[0]), _BARRIER.match(block[0])
    if access:
        size = int(access["size"])
        verb = _VERBS.get(access["kind"], f"does {access['kind']} of")
        did = f"{who or 'a thread'} {verb} {size} byte{'s' * (size != 1)} of {access['space']} memory"
        return f"{did}{_UNWRITTEN if access['how'] == 'Uninitialized' else _outside(block)}"
    if barrier:
        return f"{who or 'a thread'} waits at a barrier that not all threads of its {barrier['group']} reach"
    words = block[0].removeprefix("Error: ").rstrip(".")
    return f"{words}, by {who}" if who else words


def _outside(block: _Block) -> str:
    """Words for what is wrong with an address."""
    if any("is misaligned" in line for line in block):
        return " at a misaligned address"
    for near in _found(_NEAR, block):
        far, size = (int(near[part].replace(",", "")) for part in ("far", "size"))
        return f", {far:,} byte{'s' * (far != 1)} {near['side']} the nearest allocation, which has {size:,},"
    return " out of bounds" if any("is out of bounds" in line for line in block) else ""


def _race(block: _Block) -> str:
    """Two places that nothing orders; of more, the first two."""
    first, second = (*_found(_RACE, block), None, None)[:2]
    if first is None:
        return block[0].removeprefix("Error: ")
    places = [_place(match["place"]) for match in (first, second) if match]
    did = [f"a {m['kind'].lower()}{p.source}" for m, p in zip((first, second), places, strict=False) if m]
    kernel = f" in {places[0].kernel}" if places[0].kernel else ""
    return f"nothing orders {' and '.join(did)} of shared memory{kernel}"


def _found(pattern: re.Pattern[str], block: _Block) -> list[re.Match[str]]:
    return [match for line in block if (match := pattern.search(line))]


def _place(text: str) -> _Place:
    for pattern in _PLACES:
        if match := pattern.match(text):
            said = match.groupdict()
            return _Place(plain_name(said["kernel"]), said.get("file", ""), said.get("line", ""))
    return _Place()


def _kernel(block: _Block, place: _Place) -> str:
    """The outermost frame: the place itself may be in a function that the kernel calls."""
    frames = [_place(line.partition(":")[2].strip()).kernel for line in block if line.startswith("Device Frame:")]
    return next((name for name in reversed(frames) if name), place.kernel)


def _index(text: str) -> str:
    """Along x, y, z; zeros at the end are left out."""
    numbers = text.split(",")
    while len(numbers) > 1 and numbers[-1] == "0":
        numbers.pop()
    return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"


def plain_name(signature: str) -> str:
    """The name of a kernel without its result and the types of its parameters; templates keep their arguments."""
    name = signature.strip().removeprefix("void ")
    if not name.endswith(")"):
        return name
    depth = 0
    for at in range(len(name) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(name[at], 0)
        if depth == 0:
            return name[:at].rstrip()
    return name
