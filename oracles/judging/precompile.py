"""Compile measure_numba in a process of its own, so that a first search does not wait some ten seconds for it.

Machine code is kept by numba, beside a stamp of ours that says when all of it is there. Until then `measure` sweeps
with numpy, which finds the same.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np

from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.corpus.process.child import start
from kernel_assay.corpus.process.parent_death import die_with_parent
from kernel_assay.oracles.judging.measure import engine, measure, prefer_numba, prefer_numpy_until

_BESIDE: list[subprocess.Popen[bytes]] = []
"""The process that this one has started; a second one would do the same."""


def compile_beside() -> None:
    """Have that process do it once numba is worth its start, if it has anything to do; it ends with this one."""
    prefer_numpy_until(compiled)


def compiled() -> bool:
    """Whether machine code is there, or none is wanted; if not, that process is started, unless it has been."""
    if engine() != "kernel_assay.oracles.judging.measure_numba" or stamp().exists():
        return True
    if not _BESIDE:
        _BESIDE[:] = [start("oracles.judging.precompile", out=subprocess.DEVNULL, err=subprocess.DEVNULL)]
    return False


@cache
def stamp() -> Path:
    """The file that says that machine code of this source, by this numba for this processor, is kept."""
    import llvmlite.binding as llvm  # noqa: PLC0415  as numba, only where it is used
    import numba  # noqa: PLC0415

    from kernel_assay.oracles.judging import measure_numba  # noqa: PLC0415

    source = Path(measure_numba.__file__)
    said = (source.stat().st_mtime_ns, source.stat().st_size, numba.__version__, llvm.get_host_cpu_name())
    folder = Path(measure_numba.kept_in())
    return folder / f"{source.stem}.{hashlib.sha256(repr(said).encode()).hexdigest()[:16]}.compiled"


def main() -> None:
    """Entry of the process: measure something of every format (or of those named), and leave the stamp."""
    die_with_parent()
    os.nice(10)  # the search goes on beside it
    prefer_numba()
    for fmt in [format_of(name) for name in sys.argv[1:] or FORMATS]:
        for want in (np.zeros(2), np.zeros(2, np.float32)):
            got = np.zeros(2, fmt.dtype)
            measure(got, want, 1.0)
            measure(got, want, np.ones(2), np.ones(2, np.uint8), np.ones(2))
    made = stamp()
    made.parent.mkdir(parents=True, exist_ok=True)
    made.touch()


if __name__ == "__main__":
    main()
