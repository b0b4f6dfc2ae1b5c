"""What workers may write to and must not see, where they are closed in (kernels/worker/enclosure.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_assay.corpus.process.child import HOME, command_of, handed
from kernel_assay.corpus.process.scratch_folders import Scratch
from kernel_assay.corpus.storage.file_store import FOLDERS, hidden
from kernel_assay.kernels.sandbox.compiler_caches import cache_folders

ASKED = "that was asked for"
"""Why workers are not closed in where nothing is in the way."""
TRIAL = "kernels.worker.enclosure"
_JUDGE = ("fuzz", "oracles", "reports")
"""Packages of this project's that code under test has no business with."""


def enclosure_of(scratch: Path, memory_mb: int, environment: Mapping[str, str]) -> dict[str, Any]:
    """What a zygote makes its closed place of; environment: what it gets besides this process's."""
    ours = HOME / "kernel_assay"
    copies = {ours, *(Path(place, "kernel_assay") for place in sys.path)}  # as one that is installed beside a checkout
    judges = [copy / package for copy in copies for package in _JUDGE if (copy / package).is_dir()]
    unseen = [*hidden(), *judges, *(ours / "corpus" / folder for folder in FOLDERS)]
    return {
        "scratch": str(scratch),
        "megabytes": memory_mb,
        "writable": cache_folders(environment),
        "hidden": sorted({str(folder.resolve()) for folder in unseen}),
    }


def why_open() -> str:
    """Why workers cannot be closed in on this machine; empty: they can."""
    scratch = Scratch()
    try:
        settings = handed(enclosure_of(scratch.path, 16, {}))
        command = command_of(TRIAL, str(settings))
        tried = subprocess.run(command, capture_output=True, text=True, check=False, pass_fds=(settings,))
        os.close(settings)
        return tried.stdout if tried.returncode == 0 else f"the trial fails: {tried.stderr.strip()[-200:]}"
    finally:
        scratch.close()
