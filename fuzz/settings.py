"""Settings of a run: what it searches for, with what, for how long; one record, checked when it is made."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.campaign import DEFAULT_SECONDS, RunOptions

TIMEOUT, MEMORY_MB = 10.0, 4096
LONGEST, LARGEST, MOST_MB, MOST_JOBS = 86_400.0, 2**63 - 1, 1 << 40, 4096
"""Of a limit in seconds, of whole numbers that nothing else bounds, of megabytes, and of processes."""
YEAR = 365 * 86_400.0
ENGINES = ("conjecture", "given")
_WHOLE = (
    ("cases", 1, LARGEST),
    ("seed", 0, LARGEST),
    ("jobs", 1, MOST_JOBS),
    ("max_elements", 1, LARGEST),
    ("case_memory", 1, MOST_MB),
)
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float:
    """`90`, `90s`, `5m` or `8h` in seconds, a year at most. Raises UsageError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not match or float(match[1]) == 0:
        raise UsageError(f"{text!r} is no length of time above 0; write 90s, 5m or 8h")
    seconds = float(match[1]) * _UNITS[match[2]]
    if seconds > YEAR:
        raise UsageError(f"{text!r} is longer than a year; write 90s, 5m or 8h")
    return seconds


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of the sandbox: seconds for one execution (two runs), megabytes that a kernel may allocate."""

    timeout: float = TIMEOUT
    memory_mb: int = MEMORY_MB
    closed: bool = True
    """Whether kernels are closed in, where the system allows it: no network, files read-only (docs/sandbox.md)."""

    def __post_init__(self) -> None:
        """Raises UsageError for limits in which nothing could run."""
        _within("timeout", self.timeout, 0.01, LONGEST)
        _within("memory_mb", self.memory_mb, 16, MOST_MB)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """One search. Raises UsageError, one sentence, for settings that make no sense."""

    ops: tuple[str, ...] = ()
    """Names of ops; none: those of the subjects, or all."""
    subjects: tuple[str, ...] = ()
    """Kernels of your own: `FILE[:NAME]`."""
    references: tuple[str, ...] = ()
    """References of your own, each an op: `FILE[:NAME]` or `module:NAME`, a function or a class of torch modules."""
    held: tuple[str, ...] = ()
    """The op of each of `subjects`, or one of `references`; empty: it says so itself, or there is but one."""
    grad: bool = False
    """Whether kernels are held to the gradients of these, by what torch's autograd makes of them."""
    launch: tuple[str, ...] = ()
    """Lines of front matter (TOML) for the CUDA files among them."""
    python: str = ""
    """The interpreter in which your kernels run, or the folder of its environment; empty: this one."""
    backends: tuple[str, ...] = ()
    """Only built-in implementations of these backends."""
    peers: tuple[str, ...] = ()
    """Built-in implementations that run beside your own; `none`: nobody."""
    dtypes: tuple[str, ...] = ()
    """Only these dtypes of the first input."""
    planted: bool = False
    """Whether the built-in seeded bugs take part."""
    as_is: bool = False
    """Whether Triton's interpreter runs unmended."""
    seconds: float | None = None
    """How long to search; None, and no cases: a minute."""
    after_seconds: float | None = None
    """How long its end may take, in which failures are shrunk and filed; None: a tenth of `seconds`, at least 10."""
    cases: int | None = None
    """Stop after so many cases instead."""
    seed: int | None = None
    """The same seed makes the same cases; None: a random one."""
    engine: str = "conjecture"
    device: str = "cpu"
    """`cpu`, `cuda`, `cuda:NUMBER` or `cuda:all`."""
    jobs: int | None = None
    """Processes that search; None: one, and more on GPUs."""
    ray: str = ""
    """Address of a Ray cluster whose processors, or GPUs, search: `auto`, `local`, `HOST:PORT`, `ray://HOST:PORT`."""
    max_elements: int | None = None
    """Of the largest tensor of a case."""
    case_memory: int | None = None
    """Megabytes of all tensors of a case; with it, shapes of language models that fit are tried."""
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    shapes: tuple[Mapping[str, int], ...] = ()
    """The only extents of cases, in turn, of every op that has dims of these names; none: they are drawn."""
    layouts: tuple[str, ...] = ()
    """Only these memory layouts of inputs, where an input can have one of them; none: all."""
    workload: Path | None = None
    """Calls of a model run, as `record` writes them: their shapes come first and are drawn more often."""
    strict: bool = False
    """Whether failures that did not show again count."""
    judged: bool = False
    """Whether the kernels solve the problem of a folder: then they are to compute by themselves, in torch, too."""
    base: Path | None = None
    """A checkout to compare with: what fails there, too, does not count."""

    def __post_init__(self) -> None:
        """Raises UsageError."""
        if self.seconds is not None and self.cases is not None:
            raise UsageError("seconds and cases exclude one another; name one of them")
        if self.seconds is not None and not self.seconds > 0:
            raise UsageError(f"seconds must be above 0, not {self.seconds!r}")
        if self.grad and not self.references:
            raise UsageError("gradients are those of a reference of your own: name one, as ref.py:fn")
        if self.engine not in ENGINES:
            raise UsageError(f"engine {self.engine!r} is not known; the known ones are {', '.join(ENGINES)}")
        if self.workload is not None and self.engine != "conjecture":
            raise UsageError(f"a workload needs the engine 'conjecture', and not {self.engine!r}")
        if self.shapes and self.engine != "conjecture":
            raise UsageError(f"given shapes need the engine 'conjecture', and not {self.engine!r}")
        for name, least, most in _WHOLE:
            _within(name, getattr(self, name), least, most)

    @property
    def jobs_here(self) -> int | None:
        """Processes of this machine that search: on a cluster, others do."""
        return None if self.ray else self.jobs

    @property
    def until(self) -> tuple[float, int | None]:
        """Seconds and cases, one of them without end."""
        return (math.inf, self.cases) if self.cases is not None else (self.seconds or DEFAULT_SECONDS, None)

    @property
    def options(self) -> RunOptions:
        """The part that the record of a run keeps."""
        seconds, cases = self.until
        return RunOptions(
            timeout=self.limits.timeout,
            memory_mb=self.limits.memory_mb,
            closed=self.limits.closed,
            max_elements=self.max_elements or 0,
            device=self.device,
            jobs=self.jobs or 0,
            case_memory=self.case_memory or 0,
            seconds=seconds if cases is None else 0.0,
            cases=cases or 0,
            strict=self.strict,
        )


def _within(name: str, value: float | None, least: float, most: float) -> None:
    if value is not None and not value >= least:
        raise UsageError(f"{name} must be at least {least:g}, not {value!r}")
    if value is not None and value > most:
        raise UsageError(f"{name} must be at most {most}, not {value!r}")
