"""Starts the search over the inputs of a kernel in a process of its own, and watches it: it may die, or never end."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.process.child import ChildProcess, GoneError
from kernel_assay.corpus.process.scratch_folders import Scratch
from kernel_assay.kernels.backends.simt.program.compile import sentence_of
from kernel_assay.kernels.backends.simt.toolchain import BuildError, Mode, build, missing, runtime
from kernel_assay.kernels.programs.witness import HEAD, KernelSearch, Witness
from kernel_assay.kernels.sandbox.closing import enclosure_of
from kernel_assay.kernels.sandbox.compiler_caches import cache_home

_SCRATCH_MB = 1024
_LOAD_SECONDS = 100.0
_LOOK_SECONDS = 0.25
_KERNEL = re.compile(r"__global__[^;{}()]*(?:__launch_bounds__\s*\([^)]*\)[^;{}()]*)?\b(\w+)\s*\(")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a search."""

    cases: int
    seconds: float
    timeout: float
    """Seconds that one launch may take."""
    seed: int = 0
    closed: bool = True


def search_kernel(kernel: Path, entry: str, inputs: Path, limits: Limits) -> KernelSearch:
    """Search for inputs, launches and orders that a kernel gets wrong. Raises UsageError.

    entry: the kernel's name, with template arguments; empty: the only one of the file.
    """
    if not inputs.is_file():
        raise UsageError(f"{inputs} is no file; it must have a function inputs(draw)")
    began = time.monotonic()
    entry = _compiled(kernel, entry)
    message = {"cases": limits.cases, "seconds": limits.seconds, "seed": limits.seed}
    found = _asked(str(kernel), entry, str(inputs), limits, message)
    return found.model_copy(update={"seconds": round(time.monotonic() - began, 3)})


def repeat(witness: Witness, limits: Limits) -> KernelSearch:
    """Launch a kernel as a finding has it. Raises UsageError."""
    entry = _compiled(Path(witness.kernel), witness.entry)
    if witness.inputs and not Path(witness.inputs).is_file():
        raise UsageError(f"{witness.inputs}, which the finding belongs to, is not there any more")
    return _asked(witness.kernel, entry, witness.inputs, limits, {"case": witness.plain()})


def read_witness(path: Path) -> Witness:
    """Read what `KernelSearch.file` names. Raises UsageError."""
    try:
        return Witness.model_validate_json(path.read_text("utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no record of one"
        raise UsageError(f"{path} cannot be read as a finding of fuzz-kernel: {why}") from error


def _compiled(kernel: Path, entry: str) -> str:
    """Compile it, and find its only kernel where none is named; the child takes what is built here."""
    if why := missing():
        raise UsageError(f"{kernel} cannot be compiled, because {why}")
    try:
        text = kernel.read_text("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"{kernel} cannot be read ({error.strerror})") from error
    names = list(dict.fromkeys(_KERNEL.findall(text)))
    if not entry and len(names) != 1:
        said = f"has the kernels {', '.join(names)}" if names else "has no __global__ function"
        raise UsageError(f"{kernel} {said}: name one by --kernel, with its template arguments")
    try:
        runtime()
        build(kernel, [entry or names[0]], Mode.CHECK)
    except BuildError as error:
        said = sentence_of(str(error), {kernel.name})
        if said.startswith("entries"):
            wanted, why = entry or names[0], said.partition("says: ")[2]
            template = _of_template(text, wanted)
            said = f"{kernel} {template or f'has no kernel {wanted!r} that can be launched: {why}'}"
        raise UsageError(said) from error
    except OSError as error:
        raise UsageError(f"{kernel} cannot be compiled: {error}") from error
    return entry or names[0]


def _of_template(text: str, name: str) -> str:
    """Ask for an instance of a template; empty if that is none."""
    head = re.search(rf"template\s*<([^;{{}}]+?)>[\s\w]*__global__[^;{{}}]*?\b{re.escape(name)}\s*\(", text)
    if not head:
        return ""
    there = dict.fromkeys(re.findall(rf"\b{name}<[^;{{}}()]*?>(?=\s*(?:\(|<<<))", text))
    made = ["float" if re.match(r"\s*(?:typename|class)\b", part) else "1" for part in head[1].split(",")]
    names = " or ".join(f"'{its}'" for its in there or [f"{name}<{', '.join(made)}>"])
    return f"has {name} as a template: name an instance, --kernel {names}"


@contextmanager
def _child(told: Message, *, closed: bool) -> Iterator[tuple[ChildProcess, int]]:
    memory = os.memfd_create("launch")
    with closing(Scratch("kernel-")) as scratch:
        enclosure = enclosure_of(scratch.path, _SCRATCH_MB, {}) if closed else None
        told = {**told, "scratch": str(scratch.path), "enclosure": enclosure}
        # Where the file system is read-only the cache folder would be another, and all be compiled again.
        cache = {"XDG_CACHE_HOME": str(cache_home())}
        child = ChildProcess("kernels.programs.search_child", memory, told, cache)
        try:
            yield child, memory
        finally:
            child.close()
            os.close(memory)


def _asked(kernel: str, entry: str, inputs: str, limits: Limits, message: Message) -> KernelSearch:
    """Have it done, and tell what came of it."""
    told = {"kernel": kernel, "entry": entry, "inputs": inputs}
    with _child(told, closed=limits.closed) as (child, memory):
        try:
            _heard(child.hear(_LOAD_SECONDS, inputs))
        except GoneError as gone:
            raise UsageError(f"{inputs or kernel} cannot be loaded: {gone}") from gone
        answer = _watched(child, memory, message, limits.timeout)
    return KernelSearch.model_validate({"kernel": kernel, "entry": entry, "seed": limits.seed, **_heard(answer)})


def _heard(answer: Message) -> Message:
    if "refused" in answer:
        raise UsageError(answer["refused"])
    return answer


def _watched(child: ChildProcess, memory: int, message: Message, timeout: float) -> Message:
    """The answer; if the process dies, or stays in one launch for too long, that launch is what was found."""
    number, since = 0, time.monotonic()
    ask = True
    while True:
        try:
            answer = child.ask(message, _LOOK_SECONDS) if ask else child.hear(_LOOK_SECONDS)
        except GoneError as gone:
            ask = False
            now, case = _under_way(memory)
            if now != number:
                number, since = now, time.monotonic()
            if gone.silent and time.monotonic() - since < timeout:
                continue
            words = f"did not end in {timeout:g} s" if gone.silent else f"ended the search: {gone}"
            if case is None:
                raise UsageError(f"inputs() {words}") from gone
            kind, words = "timeout" if gone.silent else "crashed", f"the launch, or serial(), {words}"
            finding = {**case, "kind": kind, "message": words}
            return {"cases": number, "shrunk": False, "finding": finding}
        else:
            return answer


def _under_way(memory: int) -> tuple[int, Message | None]:
    """The number of the launch that is under way, and its record, if it is whole."""
    head = os.pread(memory, HEAD.size, 0)
    if len(head) < HEAD.size:
        return 0, None
    number, size = HEAD.unpack(head)
    try:
        case: Message = json.loads(os.pread(memory, size, HEAD.size))
    except ValueError:  # it is being written
        return number, None
    return number, case
