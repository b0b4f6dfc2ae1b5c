"""Facts about this machine that an observation may depend on."""

from __future__ import annotations

import ctypes
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Collection
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np

from kernel_assay.corpus.model.findings import Environment
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.process.interpreter import LIBRARIES, interpreter
from kernel_assay.kernels.backend_registry import is_on_gpu, loader_of, loaders

_ALWAYS = ("numpy", "hypothesis", "numba", "pydantic", "ml_dtypes")

OPTIONAL = {
    "torch": "kernels in torch; inputs that are made on a GPU",
    "triton": "kernels in Triton, on the CPU by its interpreter",
    "gguf": "packed blocks (q4_0, q8_1, ...): dequantize, quantize, qgemv, qgemm",
}
"""Packages that only some subjects need, and what for."""

OPENBLAS = "openblas core"
"""Among the versions: products differ from one to another in their last digits."""

TOOLS = ("g++", "nvcc", "nvidia-smi", "compute-sanitizer", "ncu")
"""Programs that only some subjects need."""


@cache
def environment() -> Environment:
    """Versions of everything that computes, and the machine."""
    versions = {name: version for name in _ALWAYS if (version := version_of(name))}
    if core := openblas_core():
        versions[OPENBLAS] = core
    for loader in loaders().values():
        versions |= loader.versions()
    return Environment(
        python=platform.python_version(),
        platform=platform.platform(),
        machine=platform.machine(),
        processor=_processor(),
        packages=dict(sorted(versions.items())),
    )


_VERSIONS = """
import json, sys
from importlib.metadata import packages_distributions, version
found = packages_distributions()
print(json.dumps({name: version(name) for module in sys.argv[1:] for name in found.get(module, ())}))
"""


def environment_of(subject: Subject, modules: Collection[str]) -> Environment:
    """Facts that outputs of a subject may depend on: versions in the interpreter that it runs in, and its GPUs.

    modules: what it imports, besides the libraries of its backend. Raises UsageError if its interpreter is gone.
    """
    here, names = environment(), {"numpy", *LIBRARIES.get(subject.backend, ()), *modules}
    said = _output([subject.python or sys.executable, "-P", "-c", _VERSIONS, *sorted(names)])
    versions: dict[str, str] = json.loads(said or "{}")
    if not subject.python:
        versions |= loader_of(subject.loader).versions()
        versions |= {OPENBLAS: core} if (core := here.packages.get(OPENBLAS)) else {}
    return here.but(
        python=".".join(map(str, interpreter(subject.python).version)) if subject.python else here.python,
        packages=dict(sorted(versions.items())),
        devices=tuple(f"{name}, driver {driver}" for name, driver in gpus()) if is_on_gpu(subject) else (),
    )


def openblas_core() -> str:
    """Ask numpy's OpenBLAS for which processor it computes, as OPENBLAS_CORETYPE names it; empty: it is no OpenBLAS."""
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    for file in sorted(folder.glob("libscipy_openblas*")):
        library = ctypes.CDLL(str(file))  # the one that numpy has loaded
        for name in ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename"):
            if asked := getattr(library, name, None):
                asked.restype = ctypes.c_char_p
                return str((asked() or b"").decode("ascii", "replace"))
    return ""


def version_of(package: str) -> str:
    """The installed version of a package; an empty string if there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


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


def tool_version(tool: str) -> str:
    """A program's word on its own version, in one line, or that it is not there."""
    if shutil.which(tool) is None:
        return "not found"
    lines = [line.strip() for line in _output([tool, "--version"]).splitlines() if line.strip()]
    return next((line for line in lines if "release" in line), lines[0] if lines else "found, but it does not run")


def gpus() -> list[tuple[str, str]]:
    """Name and driver of every GPU that nvidia-smi sees. Asks the driver only: no context is made."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    rows = [line.split(", ") for line in _output(query).splitlines()]
    return [(f"{name}, {memory}", driver) for name, memory, driver in (r for r in rows if len(r) == 3)]


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
