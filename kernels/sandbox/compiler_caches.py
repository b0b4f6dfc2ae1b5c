"""Caches of compilers that subjects call, kept so that a worker's end does not lose them."""

from __future__ import annotations

import os
from contextlib import suppress

from kernel_assay.kernels.backends.simt.toolchain import cache_folder

_FOLDERS = {
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
