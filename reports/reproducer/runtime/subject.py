"""The way to the kernel in a reproducer."""

import inspect
import runpy
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any


def load(path: str, function: str) -> Any:
    """The kernel: from the file named on the command line, or from this path, seen from here or from this script."""
    named = Path(sys.argv[1] if len(sys.argv) > 1 else path)
    beside = Path(__file__).resolve().parent
    for place in (named, beside / named, beside / named.name):
        if place.is_file():
            return runpy.run_path(str(place), run_name="subject")[function]
    raise FileNotFoundError(f"{named} is not here; say where the kernel's file is: python {sys.argv[0]} FILE")


def tensors_taken(function: Callable[..., Any], attrs: Collection[str]) -> int:
    """Count the tensors that a function wants: positional arguments without defaults that are no attributes."""
    wanted = inspect.signature(function).parameters.values()
    return sum(p.default is p.empty and p.kind is not p.KEYWORD_ONLY and p.name not in attrs for p in wanted)
