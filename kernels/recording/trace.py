"""Trace a model in this process: who made the first NaN or Inf, and which layer leaves a narrow dtype's arithmetic."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any, Self

from kernel_assay.corpus.errors import UsageError
from kernel_assay.kernels.recording.divergence import Divergence, divergence
from kernel_assay.kernels.recording.events import Event, Story
from kernel_assay.kernels.recording.watch import Watch


class trace:  # noqa: N801  `with trace(model):` and `trace.compare(model, other, x)` read as functions
    """Watch every operator and module of this thread, forward and backward, within `with trace(model):`."""

    def __init__(
        self, *models: Any, stop: bool = False, every_call: bool = False, folder: str | Path | None = None
    ) -> None:
        """models: whose gradients are looked at in the end; those that are called within need not be named.

        stop: raise NonFiniteError, which is a FloatingPointError, at the first that comes through. every_call: watch
        all calls of models on a CPU, also where that takes more than a tenth of the program's time. folder: where the
        inputs of what made one are written, with a program that runs it again. Raises UsageError for what is no module,
        and where torch is not installed.
        """
        torch = _torch()
        for one in models:
            if not isinstance(one, torch.nn.Module):
                raise UsageError(f"trace takes modules of torch, not {type(one).__name__}")
        self._models, self._folder = models, Path(folder) if folder else None
        self._stop, self._every_call = stop, every_call
        self.story = Story()
        """All that was seen: `failures`, `gone`, and the `lines` of a report."""

    @property
    def first(self) -> Event | None:
        """The first that made something non-finite that came through."""
        return next(iter(self.story.failures), None)

    @property
    def report(self) -> str:
        """The report, in lines."""
        return "\n".join(self.story.lines())

    def __enter__(self) -> Self:
        """Begin."""
        torch, self._left = _torch(), contextlib.ExitStack()
        if "torch._dynamo" in sys.modules:  # else nothing is compiled, and to import it takes seconds
            self._left.enter_context(torch.compiler.set_stance("force_eager"))
        watch = Watch(torch, models=self._models, stop=self._stop, every_call=self._every_call, folder=self._folder)
        self.story = watch.story
        self._left.callback(watch.close)
        self._left.enter_context(watch.mode())
        return self

    def __exit__(self, *error: object) -> None:
        """Remove every hook, however the block was left."""
        self._left.close()

    @staticmethod
    def compare(model: Any, other: Any, *inputs: Any, **named: Any) -> Divergence:
        """Find the first module of a narrow copy whose output is farther from the model's than its dtype explains.

        model: the one that is right, in float32; other: its copy, as in bfloat16, with the same names of modules;
        inputs, named: what both are called with, floats in the copy's dtype. Raises UsageError where the two are no
        copies, or train. docs/trace.md has the rule.
        """
        return divergence(_torch(), model, other, inputs, named)


def _torch() -> Any:
    try:
        import torch  # noqa: PLC0415  large, and not everybody's
    except ImportError as error:
        raise UsageError("trace needs torch, which is not installed here") from error
    return torch
