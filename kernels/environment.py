"""Where we are: what an observation may depend on."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata
from pathlib import Path

from corpus.records import Environment
from kernels.loader import loaders

_ALWAYS = ("numpy", "hypothesis", "numba", "pydantic", "ml_dtypes")


@cache
def environment() -> Environment:
    """Versions of everything that computes, and the machine."""
    versions = {name: metadata.version(name) for name in _ALWAYS if _installed(name)}
    for loader in loaders().values():
        versions |= loader.versions()
    return Environment(
        python=platform.python_version(),
        platform=platform.platform(),
        machine=platform.machine(),
        processor=_processor(),
        packages=dict(sorted(versions.items())),
    )


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _processor() -> str:
    """Model and vector extensions: libraries choose their kernels by them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return platform.processor()
    model = next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")
    flags = next((set(line.split()) for line in text.splitlines() if line.startswith("flags")), set())
    known = [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f in flags]
    return f"{model} {' '.join(known)}".strip()
