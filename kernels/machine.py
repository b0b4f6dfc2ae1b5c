"""Facts about this machine that times depend on: the cache, clocks, and why a clock is low; read, and never set."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from kernel_assay.corpus.model.timing import ClockSample
from kernel_assay.kernels.boundary.devices import VISIBLE

_CACHES, _CPUS = Path("/sys/devices/system/cpu/cpu0/cache"), Path("/proc/cpuinfo")
_USUAL = 32 << 20
"""Bytes of a last level cache of which the system says nothing."""
_QUERY = "clocks.sm,clocks.mem,temperature.gpu,clocks_throttle_reasons.active"
_PAUSE_MS, _MOST = "250", 64
"""Between two looks of nvidia-smi, and samples that are kept."""
_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
    0x2: "clocks set by applications",
    0x10: "sync boost",
}
"""NVML's reasons (nvmlClocksThrottleReasons), without that of a GPU that has nothing to do."""


def cache_bytes() -> int:
    """Bytes of the largest cache of the processor."""
    found = [_bytes(path.read_text("ascii")) for path in _CACHES.glob("index*/size")]
    return max(found, default=0) or os.sysconf("SC_LEVEL3_CACHE_SIZE") or _USUAL


def _bytes(text: str) -> int:
    """A size as the system writes it: 32768K."""
    return int(text.strip().rstrip("KM")) << (20 if "M" in text else 10)


@contextmanager
def clocks_watched(device: str, environment: Mapping[str, str]) -> Iterator[list[ClockSample]]:
    """Fill a list with samples of a device's clocks; those of a GPU are there when the context ends.

    environment: of the device's place, which says which GPU it is. Without nvidia-smi there are none.
    """
    samples: list[ClockSample] = []
    if device == "cpu":
        samples += _processor(0.0)
        began = time.monotonic()
        yield samples
        samples += _processor(time.monotonic() - began)
        return
    command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits", "-lms", _PAUSE_MS]
    command += ["-i", environment[VISIBLE]] if VISIBLE in environment else []
    try:
        watcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        yield samples
        return
    try:
        yield samples
    finally:
        watcher.terminate()
        lines = watcher.communicate()[0].splitlines()
        step = int(_PAUSE_MS) / 1000
        every = -(-len(lines) // _MOST) or 1
        samples += [one for n, line in enumerate(lines) if n % every == 0 and (one := _sample(n * step, line))]


def _processor(at: float) -> list[ClockSample]:
    """The highest clock of a processor now; nothing where the system does not say."""
    with suppress(OSError, ValueError):
        lines = [line for line in _CPUS.read_text("utf-8", "replace").splitlines() if line.startswith("cpu MHz")]
        if lines:
            return [ClockSample(at=at, mhz=max(float(line.partition(":")[2]) for line in lines))]
    return []


def _sample(at: float, line: str) -> ClockSample | None:
    """A line of nvidia-smi's; None for another."""
    try:
        mhz, memory, celsius, reasons = (word.strip() for word in line.split(","))
        bits = int(reasons, 16)
        throttled = tuple(words for bit, words in _REASONS.items() if bits & bit)
        return ClockSample(at=at, mhz=float(mhz), memory_mhz=float(memory), celsius=float(celsius), throttled=throttled)
    except ValueError:
        return None
