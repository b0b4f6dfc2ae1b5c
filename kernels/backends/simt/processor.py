"""What this machine's processor can do that kernels are emulated with."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

_X86 = platform.machine() in {"x86_64", "AMD64"}
CONTRACTS = ("-mfma",) if _X86 else ()
PARALLEL = ("-DSIMT_PARALLEL", *(["-mcx16"] if _X86 else []))
"""Flags of a program whose blocks run on several processors, by atomic operations that are real."""


@cache
def no_contraction() -> str:
    """The reason why no kernel can be compiled with a * b + c rounded once, or an empty string."""
    if platform.machine() in {"aarch64", "arm64"}:
        return ""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        lines = []
    flags = next((line.split() for line in lines if line.startswith(b"flags")), [])
    return "" if b"fma" in flags else "this processor has no fused multiply-add"
