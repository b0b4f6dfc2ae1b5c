"""Words for where an interpreted Triton kernel is: its line, and the program."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import triton

_NOT_THE_KERNELS = (f"{Path(triton.__file__).parent}/", f"{Path(__file__).parent}/")


def kernel_line() -> tuple[str, int]:
    """File and line at which the kernel that is interpreted is, or a function that it has called."""
    frame = sys._getframe(1)  # noqa: SLF001  cheaper than inspect by far
    while frame.f_back is not None and not _is_kernels(frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


@cache
def _is_kernels(file: str) -> bool:
    return not file.startswith(_NOT_THE_KERNELS)


def line_words(place: tuple[str, int]) -> str:
    """A line in brackets, with a space before."""
    return f" ({Path(place[0]).name}, line {place[1]})"


def program_words(at: Sequence[Any], grid: Sequence[int]) -> str:
    """A program along x, y and z; as short as the grid allows."""
    used = max((i for i, n in enumerate(grid) if n > 1), default=0) + 1
    return f"program {int(at[0])}" if used == 1 else f"program ({', '.join(str(int(n)) for n in at[:used])})"
