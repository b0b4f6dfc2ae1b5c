"""A case under a profiler: NVIDIA's ncu and nsys, and torch's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from pydantic_core import from_json

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.fuzz.triage.sanitize import first_words, order_of, said_of
from kernel_assay.kernels.nvidia import profiler
from kernel_assay.kernels.nvidia.profiler import Profile
from kernel_assay.kernels.nvidia.run_under_tool import Watched, watch
from kernel_assay.kernels.nvidia.sanitizer import missing

TOOLS = ("ncu", "nsys", "torch")
_NSYS = ("nsys", "profile", "--trace", "cuda,nvtx", "--sample", "none", "--force-overwrite", "true", "--stats", "true")


@dataclass(frozen=True, slots=True)
class Operator:
    """All calls of one operator of torch's, without those that it makes itself."""

    operator: str
    calls: int
    cpu_microseconds: float
    gpu_microseconds: float


def lacking(tool: str) -> str:
    """The reason why nothing can be asked of a profiler here, or an empty string."""
    if tool == "torch":
        return "" if find_spec("torch") else "it is not installed"
    return missing(tool)


def by_ncu(case: Case, subject: Subject, seconds: float) -> Sequence[Profile]:
    """Profile each kernel that a subject launches for a case by ncu. Raises UsageError if it measured nothing."""
    seen = watch(profiler.command(), order_of(case, subject), seconds=seconds, env={})
    found = profiler.read(seen.log) or profiler.read(seen.out)
    if not found:
        _refuse("ncu", subject, seen, seconds, profiler.complaint(seen.log + seen.out))
    return found


def by_nsys(case: Case, subject: Subject, seconds: float, report: Path) -> str:
    """Record a subject's run of a case by nsys, in report, to which it adds .nsys-rep.

    Its own tables, as text. Raises as by_ncu does.
    """
    tool = [*_NSYS, "--output", str(report.absolute())]
    seen = watch(tool, order_of(case, subject), seconds=seconds, env={})
    if seen.code != 0 or said_of(seen.out)[0] != "ok":
        _refuse("nsys", subject, seen, seconds)
    return seen.out


def by_torch(case: Case, subject: Subject, seconds: float, trace: Path) -> Sequence[Operator]:
    """Trace a subject's second run of a case by torch.profiler, in a file that Chrome and Perfetto show.

    The operators, the most expensive first. Raises as by_ncu does.
    """
    words = "kernels.debugging.in_torch_profiler", str(trace.absolute()), "log"
    seen = watch([], order_of(case, subject), seconds=seconds, env={}, program=words)
    found = [Operator(**one) for one in from_json(seen.log)] if seen.log else []
    if not found:
        _refuse("torch.profiler", subject, seen, seconds, "it calls no operator of torch" if seen.log else "")
    return sorted(found, key=lambda one: -one.cpu_microseconds - one.gpu_microseconds)


def _refuse(program: str, subject: Subject, seen: Watched, seconds: float, complaint: str = "") -> NoReturn:
    """Raise UsageError, with the reason."""
    if seen.code is None:
        raise UsageError(f"{program} gave no answer within {seconds:.0f} s")
    status, message = said_of(seen.out)
    ran = f"the subject did not run through ({status}): {message}" if status not in {"", "ok"} else ""
    why = ran or complaint or first_words(seen) or "it ended and said nothing"
    raise UsageError(f"{program} measured nothing of {subject.key}: {why}")
