"""Facts about this machine that change, or that times depend on: caches, clocks, and why a clock is low."""

from __future__ import annotations

import os
from pathlib import Path

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_USUAL = 32 << 20
"""Bytes of a last level cache of which the system says nothing."""


def cache_bytes(device: str) -> int:
    """Bytes of the largest cache of a device."""
    return _cpu_cache()


def _cpu_cache() -> int:
    found = [_kibibytes(path.read_text("ascii")) for path in _CACHES.glob("index*/size")]
    return max(found, default=0) or os.sysconf("SC_LEVEL3_CACHE_SIZE") or _USUAL


def _kibibytes(text: str) -> int:
    """Bytes of a size as the kernel writes it: 32768K."""
    digits = text.strip().rstrip("KM")
    return int(digits) << (20 if text.strip().endswith("M") else 10)
