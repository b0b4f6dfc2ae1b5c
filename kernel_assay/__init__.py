"""Fuzzing and differential testing of compute kernels; its packages are the folders beside this one, by links."""

from importlib import import_module as _imported
from typing import Any

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """`kernel_assay.trace`, imported when it is asked for: commands start without it."""
    if name != "trace":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _imported("kernel_assay.kernels.recording.trace").trace
