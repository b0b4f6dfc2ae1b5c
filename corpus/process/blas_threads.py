"""The number of threads that multiply matrices for numpy."""

import ctypes
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_NAMES = tuple(
    f"{prefix}openblas_{{}}_num_threads{suffix}" for prefix, suffix in itertools.product(("scipy_", ""), ("64_", ""))
)
"""Names of OpenBLAS's functions, by how it was built."""


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Have OpenBLAS use no threads of its own: for small matrices they take more time than they save.

    They spin where there is nothing to do, and take the processors that workers and other searches need.
    """
    before = [(put, get()) for get, put in _controls()]
    for put, _ in before:
        put(1)
    try:
        yield
    finally:
        for put, count in before:
            put(count)


@cache
def _controls() -> list[tuple[Callable[[], int], Callable[[int], object]]]:
    """Functions that tell and set the number, of each OpenBLAS in this process; none where numpy has another BLAS."""
    lines = _MAPS.read_text().splitlines() if _MAPS.exists() else []
    paths = {line.split(maxsplit=5)[-1] for line in lines if "openblas" in line.lower() and ".so" in line}
    libraries = [ctypes.CDLL(path) for path in sorted(paths) if Path(path).exists()]  # it may have been replaced
    pairs = ((library, name) for library in libraries for name in _NAMES if hasattr(library, name.format("get")))
    return [(getattr(library, name.format("get")), getattr(library, name.format("set"))) for library, name in pairs]
