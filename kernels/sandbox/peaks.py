"""Measure what a device can do: a large copy or read, and a product of matrices of each dtype, in a process of ours.

The result is kept for each machine in the user's cache, beside what compilers keep there.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.timing import Peaks
from kernel_assay.corpus.process.child import start
from kernel_assay.corpus.storage.atomic_files import write_atomic
from kernel_assay.corpus.storage.reading import read_record
from kernel_assay.kernels.backends.simt.toolchain import cache_folder
from kernel_assay.kernels.boundary.devices import Place
from kernel_assay.kernels.environment import environment, gpus
from kernel_assay.kernels.machine import cache_bytes
from kernel_assay.kernels.sandbox.worker_pool import ONE_THREAD

_SECONDS = 120.0
_COPY, _EXTENT = {"cpu": 1 << 28, "cuda": 1 << 30}, {"cpu": 1024, "cuda": 8192}
"""Bytes that are copied, and the extent of a product, by kind of device."""
_COPIES = 8
"""On a GPU, one right after the other."""
_EACH_SECONDS = 0.4
"""In which calls are repeated, the best of which counts."""
_DTYPES = ("float32", "float64", "float16", "bfloat16")
TF32 = "tf32"
"""The name of products of float32 whose operands are rounded to that."""


def peaks_of(place: Place, *, anew: bool = False) -> Peaks:
    """The peaks of a device, as they are kept, or measured now.

    anew: measure again, and keep the higher numbers: a machine that was busy had lower ones. Raises UsageError if they
    cannot be measured.
    """
    name = _name(place)
    path = cache_folder().parent / "peaks" / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
    known = _kept(path)
    if known is not None and not anew:
        return known
    found = _measured(name, place)
    if known is not None:
        products = {t: max(known.products.get(t, 0.0), rate) for t, rate in found.products.items()}
        found = found.but(bandwidth=max(found.bandwidth, known.bandwidth), products=products)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(found.plain(), indent=1) + "\n")
    except (OSError, UsageError):  # a read-only home: they are measured each time
        return found
    return found


def _name(place: Place) -> str:
    """The model of a device."""
    if place.device == "cpu":
        return environment().processor or environment().machine
    return f"{', driver '.join((gpus() or [('GPU', 'unknown')])[0])} {json.dumps(place.environment)}"


def _kept(path: Path) -> Peaks | None:
    try:
        return read_record(path, Peaks)
    except UsageError:  # there is none, or it was damaged: it is measured
        return None


def _measured(name: str, place: Place) -> Peaks:
    child = start(
        "kernels.sandbox.peaks",
        place.device,
        environment={**ONE_THREAD, **place.environment},
        out=subprocess.PIPE,
        err=subprocess.PIPE,
    )
    try:
        out, err = child.communicate(timeout=_SECONDS)
        said = json.loads(out)
    except (ValueError, subprocess.TimeoutExpired) as error:
        words = "" if isinstance(error, subprocess.TimeoutExpired) else err.decode("utf-8", "replace").strip()
        why = words.rpartition("\n")[2] or f"it took longer than {_SECONDS:g} s"
        raise UsageError(f"the peaks of {name} cannot be measured: {why}; --no-roofline goes without") from error
    finally:
        child.kill()
        child.wait()
    return Peaks(device=name, at=datetime.now(UTC).isoformat(timespec="seconds"), **said)


def main() -> None:
    """Measure the device that is named, and print what was found as JSON."""
    device = sys.argv[1]
    try:
        import torch  # noqa: PLC0415  numpy will do on the CPU
    except ImportError:
        copies, products, cache = _numpy_copies(_COPY["cpu"]), dict(_numpy_products(_EXTENT["cpu"])), cache_bytes()
    else:
        wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        copies = _torch_copies(torch, device, wait)
        products = dict(_torch_products(torch, device, wait))
        cache = torch.cuda.get_device_properties(0).L2_cache_size if device == "cuda" else cache_bytes()
    sys.stdout.write(json.dumps({"bandwidth": copies, "products": products, "cache": cache}))


def _best(call: Callable[[], Any], wait: Callable[[], Any] = lambda: None) -> float:
    """The least seconds of a call, of as many as there is time for."""
    least, end = float("inf"), time.perf_counter() + _EACH_SECONDS
    while least == float("inf") or time.perf_counter() < end:
        wait()
        began = time.perf_counter()
        call()
        wait()
        least = min(least, time.perf_counter() - began)
    return least


def _numpy_copies(size: int) -> float:
    """Bytes a second of a copy, or of a read, whichever is faster: to write costs a processor a read, too."""
    source, target = np.ones(size // 4, np.float32), np.ones(size // 4, np.float32)
    return max(2 * size / _best(lambda: np.copyto(target, source)), size / _best(source.max))


def _numpy_products(n: int) -> Iterator[tuple[str, float]]:
    for dtype in ("float32", "float64"):
        a = np.ones((n, n), dtype)
        out = np.empty_like(a)
        yield dtype, 2 * n**3 / _best(lambda a=a, out=out: np.matmul(a, a, out=out))  # type: ignore[misc]


def _torch_copies(torch: Any, device: str, wait: Callable[[], Any]) -> float:
    size = _COPY[device]
    if device == "cpu":
        return _numpy_copies(size)
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)

    def many(call: Callable[[], Any]) -> float:  # a launch, and to wait for it, takes a part of the time
        return _best(lambda: [call() for _ in range(_COPIES)], wait) / _COPIES

    return max(2 * size / many(lambda: target.copy_(source)), size / many(source.max))


def _torch_products(torch: Any, device: str, wait: Callable[[], Any]) -> Iterator[tuple[str, float]]:
    """Operations a second, by dtype: of narrow ones on the CPU at least those of float32, as they may be widened."""
    n, least = _EXTENT[device], 0.0
    for name in (*_DTYPES, *((TF32,) if device == "cuda" else ())):
        torch.backends.cuda.matmul.allow_tf32 = name == TF32
        dtype = torch.float32 if name == TF32 else getattr(torch, name)
        a = torch.randn(n, n, device=device).to(dtype)
        out = torch.empty_like(a)
        try:
            rate = 2 * n**3 / _best(lambda a=a, out=out: torch.matmul(a, a, out=out), wait)  # type: ignore[misc]
        except RuntimeError:  # this device has no such product
            continue
        if device == "cpu" and name in {"float32", "float64"}:
            rate = max(rate, dict(_numpy_products(n))[name])
        least = max(least, rate) if device == "cpu" and name == "float32" else least
        yield name, rate if name == "float64" else max(rate, least)


if __name__ == "__main__":
    main()
