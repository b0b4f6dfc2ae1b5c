"""Caches of compilers that subjects call, kept so that a worker's end does not lose them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kernel_assay.kernels.backends.simt.toolchain import cache_folder

_FOLDERS = {
    "CUDA_CACHE_PATH": "nvidia",
    "CUPY_CACHE_DIR": "cupy",
    "NUMBA_CACHE_DIR": "numba",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "torch-extensions",
    "TRITON_CACHE_DIR": "triton",
}
"""Environment variable -> folder beside the one of compiled CUDA kernels."""


def compiler_caches() -> dict[str, str]:
    """Variables for workers; what a user has set stays, and nothing is set where no folder can be made."""
    home = cache_folder().parent
    with suppress(OSError):
        home.mkdir(parents=True, exist_ok=True)
    if not os.access(home, os.W_OK):
        return {}
    return {name: str(home / folder) for name, folder in _FOLDERS.items() if name not in os.environ}


def cache_folders(environment: Mapping[str, str]) -> list[str]:
    """All folders that compilers keep something in; environment: what workers get besides this process's."""
    known = {**os.environ, **environment}
    return [str(cache_folder().parent), *(known[name] for name in _FOLDERS if name in known)]


def cache_home() -> Path:
    """The folder that holds ours, as XDG_CACHE_HOME would name it."""
    return cache_folder().parents[1]
