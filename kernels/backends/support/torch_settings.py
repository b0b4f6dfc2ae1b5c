"""Settings of torch that change results: a subject runs with torch's own, and with those that its file makes.

A worker holds many files. What one of them sets when it is imported is set while its own function runs, and at no other
time; what a function sets and leaves is undone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any


@dataclass(frozen=True, slots=True)
class _Setting:
    read: Callable[[], Any]
    write: Callable[[Any], None]


_FLAGS = {
    "backends.cuda.matmul": (
        "fp32_precision",
        "allow_tf32",
        "allow_fp16_accumulation",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    ),
    "backends.cudnn": ("allow_tf32", "benchmark", "deterministic", "enabled"),
}
"""Attributes, by where they are; those that a version of torch has not are left out."""
_CALLS = {
    "get_float32_matmul_precision": "set_float32_matmul_precision",
    "get_default_dtype": "set_default_dtype",
    "are_deterministic_algorithms_enabled": "use_deterministic_algorithms",
    "is_grad_enabled": "set_grad_enabled",
    "get_num_threads": "set_num_threads",
    "backends.cuda.flash_sdp_enabled": "backends.cuda.enable_flash_sdp",
    "backends.cuda.mem_efficient_sdp_enabled": "backends.cuda.enable_mem_efficient_sdp",
    "backends.cuda.math_sdp_enabled": "backends.cuda.enable_math_sdp",
    "backends.cuda.fp16_bf16_reduction_math_sdp_allowed": "backends.cuda.allow_fp16_bf16_reduction_math_sdp",
}
"""Functions that tell, and those that set. The first comes first: it sets what others tell."""


_WORDS = ("backends", "torch.set_", "use_deterministic_algorithms")
"""In every file that sets something."""


class Settings:
    """Settings of one process."""

    def __init__(self, torch: Any) -> None:
        calls = [(_found(torch, read), _found(torch, write)) for read, write in _CALLS.items()]
        self._all = [_Setting(read, write) for read, write in calls if read and write]
        self._all.append(_Setting(_flushes, torch.set_flush_denormal))  # torch does not tell
        self._all += [_flag(_found(torch, place), name) for place, names in _FLAGS.items() for name in names]

    def now(self) -> list[Any]:
        """Current values of the settings; None for what this torch has not, or does not tell."""
        return [_told(setting) for setting in self._all]

    def set(self, wanted: list[Any]) -> None:
        """Set what is otherwise now."""
        for setting, value in zip(self._all, wanted, strict=True):
            if value is not None and _told(setting) != value:
                setting.write(value)

    def kept(self, load: Callable[[], Callable[..., Any]], source: str) -> Callable[..., Any]:
        """A function that is loaded, and its file's settings whenever it runs; source: what is loaded.

        To look at all settings takes as long as a small kernel, so it is done for those that speak of some only.
        """
        usual = self.now()
        try:
            function = load()
            own = self.now()
        finally:
            self.set(usual)
        if own == usual and not any(word in source for word in _WORDS):
            return function

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.set(own)
            try:
                return function(*args, **kwargs)
            finally:
                self.set(usual)

        return call


def _found(torch: Any, path: str) -> Any:
    """The object behind a dotted name of torch; None if there is none."""
    for name in path.split("."):
        torch = getattr(torch, name, None)
    return torch


def _flushes() -> bool:
    """Whether this thread makes zeros of subnormal numbers."""
    return sys.float_info.min * 0.5 == 0.0


def _flag(place: Any, name: str) -> _Setting:
    return _Setting(lambda: getattr(place, name), lambda value: setattr(place, name, value))


def _told(setting: _Setting) -> Any:
    with suppress(
        AttributeError, AssertionError, RuntimeError
    ):  # it has no such one, or two that contradict one another
        return setting.read()
    return None
