"""Searches the inputs of a kernel by Hypothesis, which shrinks what it finds; runs in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, NoSuchExample, Unsatisfiable

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.process.child import Answer
from kernel_assay.kernels.backends.simt.emulator import ORDERS, Module
from kernel_assay.kernels.backends.simt.toolchain import Mode
from kernel_assay.kernels.programs.drawing import Draw, Marked
from kernel_assay.kernels.programs.kernel_launch import Expectations, Launcher, Problem
from kernel_assay.kernels.programs.witness import HEAD, Given, Witness, extent_of

_SEEDS = 1 << 16
_SHRINK_SECONDS = 15.0
_KEYS = {"grid", "block", "shared", "args"}


class _Over(BaseException):
    """The time is up."""


class _Refused(BaseException):
    """A person's file is wrong; the words say how."""


def answer_of(told: Message) -> Answer:
    """Load what the settings name; a message is a search, or a launch (`case`). Raises UsageError."""
    path, source = Path(told["inputs"]), Path(told["kernel"])
    module = _loaded(path) if told["inputs"] else ModuleType("none")
    expected = _expectations(module, path)
    launcher = Launcher(Module(source, [told["entry"]], Mode.CHECK), source, expected)
    search = Search(launcher, module, told)

    def answer(message: Message) -> Message:
        try:
            return search.again(message["case"]) if "case" in message else search.run(message)
        except _Refused as refused:
            raise UsageError(str(refused)) from refused

    return answer


def _loaded(path: Path) -> ModuleType:
    """Import a person's file."""
    sys.path.insert(0, str(path.absolute().parent))
    spec = importlib.util.spec_from_file_location(f"inputs_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} cannot be imported: {_words(error, path)}") from error
    return module


def _words(error: BaseException, path: Path) -> str:
    """An exception in a person's file, and its last line there."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path.absolute()]
    at = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {error}{at}"


def _expectations(module: ModuleType, path: Path) -> Expectations:
    tolerance = getattr(module, "TOLERANCE", None)
    if tolerance is not None and not (isinstance(tolerance, (int, float)) and tolerance >= 0):
        raise UsageError(f"{path}: TOLERANCE must be a number that is not negative, not {tolerance!r}")
    serial = getattr(module, "serial", None)
    guarded = None if serial is None else lambda **given: _called(path, serial, **given)
    return Expectations(guarded, tolerance, bool(getattr(module, "DETERMINISTIC", False)), str(path))


def _called(path: Path, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call what a person has written."""
    try:
        return function(*arguments, **named)
    except HypothesisException:  # how it steers a draw
        raise
    except (Exception, SystemExit) as error:
        raise _Refused(f"{path}: {function.__name__}() raises {_words(error, path)}") from error


@dataclass(slots=True)
class Search:
    """One search."""

    launcher: Launcher
    module: ModuleType
    told: Message
    """kernel, entry, inputs; memory: the file of the launch that is under way."""
    cases: int = 0
    found: Problem | None = None
    """The problem that was found first: only its kind is shrunk."""
    best: Witness | None = None
    limit: float = 0.0
    launches: int = 0
    shrunk: bool = True

    def run(self, how: Message) -> Message:
        """Search, and shrink. how: cases at most, seconds, seed."""
        inputs = getattr(self.module, "inputs", None)
        if inputs is None:
            raise UsageError(f"{self.told['inputs']} has no function inputs(draw)")
        self.limit = time.monotonic() + how["seconds"]
        chosen = settings(
            max_examples=how["cases"],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        )
        try:
            self.best = find(self._cases(inputs), self._fails, settings=chosen, random=Random(how["seed"]))
        except NoSuchExample:
            pass
        except Unsatisfiable as error:
            raise UsageError(f"{self.told['inputs']}: inputs() rejects what it draws, again and again") from error
        except _Over:
            self.shrunk = self.best is None
        if self.best is None:
            return self._answer(None)
        problem = self._tried(self.best)
        return self._answer(self.best, problem)

    def again(self, case: Message) -> Message:
        """Repeat a launch."""
        witness = Witness.model_validate(case)
        self.cases = 1
        return self._answer(witness, self._tried(witness))

    def _answer(self, case: Witness | None, problem: Problem | None = None) -> Message:
        finding = case.but(kind=problem.kind, message=problem.message).plain() if case and problem else None
        notes = list(self.launcher.notes.values())
        compared = self.launcher.expected.serial is not None
        return {"cases": self.cases, "shrunk": self.shrunk, "compared": compared, "finding": finding, "notes": notes}

    def _cases(self, inputs: Callable[[Draw], Any]) -> st.SearchStrategy[Witness]:
        @st.composite
        def cases(draw: Any) -> Witness:
            order, seed = draw(st.sampled_from(ORDERS)), draw(st.integers(0, _SEEDS - 1))
            given = _called(Path(self.told["inputs"]), inputs, Draw(draw))
            return self._case(given, order, seed)

        return cases()

    def _case(self, given: Any, order: str, seed: int) -> Witness:
        """The record of what inputs() gives."""
        if not isinstance(given, dict) or not {"grid", "block", "args"} <= given.keys() <= _KEYS:
            raise _Refused(f"{self.told['inputs']}: inputs() must return a dict of args, grid, block, and maybe shared")
        try:
            arguments = tuple(_given(name, value) for name, value in dict(given["args"]).items())
            grid, block, shared = extent_of(given["grid"]), extent_of(given["block"]), int(given.get("shared", 0))
        except (TypeError, ValueError) as error:
            raise _Refused(f"{self.told['inputs']}: inputs() returns what cannot be launched: {error}") from error
        names = {name: self.told[name] for name in ("kernel", "entry", "inputs")}
        return Witness(**names, grid=grid, block=block, shared=shared, order=order, seed=seed, arguments=arguments)

    def _fails(self, case: Witness) -> bool:
        """Whether a case shows what was found first, or, as long as nothing was, anything."""
        if time.monotonic() > self.limit:
            raise _Over
        self.cases += self.found is None
        problem = self._tried(case)
        if problem is None or (self.found is not None and problem.kind != self.found.kind):
            return False
        if self.found is None:
            self.found, self.limit = problem, time.monotonic() + _SHRINK_SECONDS
        if self.best is None or _size(case) < _size(self.best):
            self.best = case
        return True

    def _tried(self, case: Witness) -> Problem | None:
        """Launch it; who has started this process reads which launch it is, should that not end."""
        self.launches += 1
        text = json.dumps(case.plain()).encode()
        os.pwrite(self.told["memory"], HEAD.pack(self.launches, len(text)) + text, 0)
        try:
            return self.launcher.problem(case)
        except UsageError as error:
            raise _Refused(str(error)) from error
        finally:
            os.pwrite(self.told["memory"], HEAD.pack(self.launches, 0), 0)


def _given(name: str, value: Any) -> Given:
    """An argument as inputs() gives it: an array, marked or not, or a number."""
    role, array = value if isinstance(value, Marked) else ("in", np.asarray(value))
    role = "value" if role == "in" and not array.ndim else role
    if array.dtype.kind not in "iufb":
        raise TypeError(f"{name} is neither a number nor an array of numbers")
    return Given.of(name, role, array)


def _size(case: Witness) -> tuple[int, int, int]:
    """Small is what is easy to read."""
    threads = int(np.prod(case.grid) * np.prod(case.block))
    return threads + sum(len(a.data) for a in case.arguments), ORDERS.index(case.order), case.seed
