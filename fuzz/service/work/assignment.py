"""A task as an executor has it: what is asked, the folders, and what it is executed with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz import api
from kernel_assay.fuzz.checking.head_start import HeadStart
from kernel_assay.fuzz.service.protocol import LONGEST, JobRequest, Progress
from kernel_assay.fuzz.service.work.portable import Places

TIMEOUT = 10.0
"""Seconds for one execution of a kernel, if a job says nothing; LONGEST at most."""
MOST_MB = 4096


@dataclass(frozen=True)
class Work:
    """A task, and what it is executed with."""

    request: JobRequest
    places: Places
    tell: Callable[[Progress], None] = lambda _: None
    ahead: Callable[[api.SandboxLimits], HeadStart] = lambda _: HeadStart()
    """Makes what kernels' processes come from, warm."""
    stop: api.Stop = field(default_factory=api.Stop)
    seed: int = 0
    cases: int = 0
    device: str = "cpu"
    """Where kernels run that a job wants on a GPU."""
    times: int = 0
    """Of a replay: runs of a case that passes, before it is said that it does; 0: as many as are usual."""
    memory_mb: int = MOST_MB
    held: tuple[str, ...] = ()
    """What each file is held to, if kassay.toml says it."""
    left_out: tuple[str, ...] = ()
    """Files of kassay.toml that do not load, with the reason of each."""

    @property
    def limits(self) -> api.SandboxLimits:
        """Limits of the job, within the worker's own."""
        wanted = self.request.settings.timeout or TIMEOUT
        return api.SandboxLimits(timeout=min(max(wanted, 0.01), LONGEST), memory_mb=self.memory_mb)

    @property
    def where(self) -> str:
        """The device of the job, as the library names it."""
        return "cpu" if self.request.settings.device == "cpu" else self.device

    def files(self, places: Sequence[str]) -> tuple[str, ...]:
        """`FILE[:NAME]` of files that were sent, with whole paths. Raises UsageError for others."""
        return tuple(self._file(text) for text in places)

    def _file(self, text: str) -> str:
        where, colon, name = text.partition(":")
        if "@" in name:
            raise UsageError(f"{text!r} names an interpreter, which is the worker's own affair")
        return f"{self.places.inside(where)}{colon}{name}"

    def split(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Subjects that are files, and names of built-in implementations."""
        is_file = {text: "/" in text or "." in text.partition(":")[0] for text in self.request.target.subjects}
        files = self.files([text for text, yes in is_file.items() if yes])
        return files, tuple(text for text, yes in is_file.items() if not yes)
