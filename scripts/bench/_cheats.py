"""The catalogue of cheats and of honest kernels that do unusual things: their files, and what a search says of them."""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kernel_assay.corpus.model.findings import Finding
from kernel_assay.fuzz.api import RunSettings, SandboxLimits, Store, run
from kernel_assay.kernels.sandbox import sandbox
from kernel_assay.kernels.sandbox.worker_pool import WorkerPool
from kernel_assay.oracles.catalog import forget_contracts

FOLDER = Path(__file__).parent / "cheat_kernels"
HONEST = "honest"
"""The file of those that are right; all others hold cheats."""
HEADS = {
    "silu": """import numpy as np

OP = "silu"
BACKEND = "numpy"
DTYPES = ("float32",)


@np.errstate(all="ignore")
def right(x):
    wide = x.astype(np.float64)
    return (wide / (1 + np.exp(-wide))).astype(x.dtype)


""",
    "softmax": """import torch

OP = "softmax"
BACKEND = "torch"
DTYPES = ("float32",)


def right(x):
    return torch.softmax(x, dim=-1)


""",
    "gemm": """import torch

OP = "gemm"
BACKEND = "torch"
DTYPES = ("float32",)


def right(a, b):
    return a @ b


""",
    "mine": """import torch

OP = "scaled"
BACKEND = "torch"


""",
}
"""Op -> how each of its kernels begins; `mine` is an op of a user's own."""
PROBLEM = '''"""An op of a user's own."""

import torch


def scaled(x: "float32[rows, cols]", w: "float32[cols]"):
    return x * torch.sigmoid(x) * w
'''
LIMITS, AFTER = SandboxLimits(timeout=1.0), 3.0


@dataclass(frozen=True)
class Entry:
    """One kernel of the catalogue."""

    theme: str
    op: str
    name: str
    source: str

    @property
    def honest(self) -> bool:
        """Whether it is right."""
        return self.theme == HONEST

    def written(self, folder: Path) -> Path:
        """Its file, in a folder of its own."""
        place = folder / re.sub(r"\W+", "_", f"{self.theme}_{self.op}_{self.name}")
        place.mkdir(parents=True)
        (place / "problem.py").write_text(PROBLEM, "utf-8")
        path = place / "cheat.py"
        path.write_text(HEADS[self.op] + self.source, "utf-8")
        return path


def entries() -> Iterator[Entry]:
    """All of them, in the order of the files."""
    for path in sorted(FOLDER.glob("*.txt")):
        for part in re.split(r"^### ", path.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            title, _, source = part.partition("\n")
            op, _, name = title.partition(": ")
            yield Entry(path.stem, op, name, source.strip() + "\n")


@dataclass(frozen=True)
class Tried:
    """What a search said of a kernel."""

    seconds: float
    refused: bool
    """Whether the command would end with exit code 1."""
    findings: tuple[Finding, ...]

    @property
    def kinds(self) -> str:
        """Its verdicts, the most important first."""
        return ", ".join(dict.fromkeys(f.verdict.kind.value for f in self.findings)) or "-"

    @property
    def said(self) -> str:
        """The words of the first."""
        return self.findings[0].verdict.message if self.findings else ""


def tried(entry: Entry, folder: Path, *, cases: int, seed: int) -> Tried:
    """Search with one, through the Python API."""
    began, path = time.perf_counter(), entry.written(folder)
    references = (f"{path.with_name('problem.py')}:scaled",) if entry.op == "mine" else ()
    settings = RunSettings(
        subjects=(str(path),),
        references=references,
        peers=("none",),
        cases=cases,
        seed=seed,
        limits=LIMITS,
        after_seconds=AFTER,
    )
    with Store(path.parent / "corpus") as store:
        result = run(settings, store=store)
    forget_contracts()  # the next reference of that name is another file
    return Tried(time.perf_counter() - began, result.failed, result.findings)


@contextmanager
def shared_zygotes() -> Iterator[None]:
    """Searches within it fork the zygotes of those before them, which spares each of them the import of torch."""
    roots: dict[tuple[tuple[str, ...], int, str], WorkerPool] = {}

    def pool(
        backends: tuple[str, ...], memory_mb: int, environment: Mapping[str, str] | None = None, why_open: str = ""
    ) -> WorkerPool:
        key = backends, memory_mb, why_open
        if key not in roots:
            roots[key] = WorkerPool(backends, memory_mb, {}, why_open)
        return roots[key].branch(dict(environment or {}))

    vars(sandbox).update(WorkerPool=pool)
    try:
        yield
    finally:
        vars(sandbox).update(WorkerPool=WorkerPool)
        for root in roots.values():
            root.close()
