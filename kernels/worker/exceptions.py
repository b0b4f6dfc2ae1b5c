"""Words for what a subject raises or returns, which it cannot break."""

from __future__ import annotations

import ctypes
import os
import time
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any

from kernel_assay.corpus.model.kinds import Status
from kernel_assay.kernels.backends.support.base import Loader
from kernel_assay.kernels.backends.support.signature import KernelFaultError

MAX_MESSAGE = 2000
"""Characters of an exception's message that are kept."""
MAX_DETAIL = 4000
"""Characters of traceback that are kept."""

_OF_NUMPY = "'Tensor' object has no attribute"

_set_rounding, _TO_NEAREST = ctypes.CDLL(None).fesetround, 0
_perf_counter_ns = time.perf_counter_ns
"""The clock as it was before a subject could put another in its place."""


class SubjectError(Exception):
    """The subject raised; what we raise ourselves stays what it is."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(type(cause).__name__)
        self.cause = cause


@cache
def mine() -> int:
    """The process that serves; asked for before the first subject runs."""
    return os.getpid()


def timed(call: Callable[[], Any]) -> tuple[Any, int]:
    """Call a subject: its result, and how many nanoseconds it took; if it has forked, its child ends here."""
    begin = _perf_counter_ns()
    try:
        answer = call()
        took = _perf_counter_ns() - begin
    finally:
        _set_rounding(_TO_NEAREST)  # who leaves another mode would change how inputs are made, for all
    if os.getpid() != mine():
        os._exit(0)
    return answer, took


def as_tuple(result: Any, count: int) -> tuple[Any, ...]:
    """The tensors that a subject returned, one for each output. Raises TypeError for anything else."""
    if count == 1 and not isinstance(result, tuple):
        return (result,)
    if not isinstance(result, tuple | list) or len(result) != count:
        raise TypeError(f"it returned {type(result).__name__}, not {count} tensors")
    return tuple(result)


def raised(error: BaseException, loader: Loader) -> dict[str, Any]:
    """The head of a message about it."""
    if isinstance(error, KernelFaultError):
        message = _printable(_words(error))[:MAX_MESSAGE]
        return {"status": Status.FAULTED, "fault": error.kind, "message": message}
    if isinstance(error, NotImplementedError):
        return {"status": Status.UNSUPPORTED, "message": _printable(_words(error)) or "NotImplementedError"}
    status = Status.OUT_OF_MEMORY if loader.is_out_of_memory(error) else Status.RAISED
    status = Status.LAUNCH_FAILED if loader.is_launch_failure(error) else status
    text = _printable("".join(traceback.format_exception(error)))
    message = _printable(f"{type(error).__name__}: {_words(error)}").rstrip()
    if loader.name == "torch" and isinstance(error, AttributeError) and _OF_NUMPY in message:
        message += ' (its file imports torch, so it was given tensors of torch; BACKEND = "numpy" says otherwise)'
    return {"status": status, "message": message[:MAX_MESSAGE], "detail": text[-MAX_DETAIL:]}


def _words(error: BaseException) -> str:
    """An exception's word on itself, if it can say it."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  its __str__ is the subject's code too
        return "(its text cannot be made)"


def _printable(text: str) -> str:
    """A subject's words without what JSON and XML cannot carry: lone surrogates and control characters."""
    if text.isprintable():
        return text
    clean = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in clean)
