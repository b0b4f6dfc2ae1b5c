"""Workloads: calls of a model run, one a line of a JSONL file, as `record` writes them and people do by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, PositiveInt, ValidationError

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.base import Record, unnamed

_TENSOR = re.compile(r"(\w+)\s*\[([\d,\s]*)\]")


def _by_name(said: Any) -> Any:
    """Inputs that have no names are called after their positions."""
    return {str(i): text for i, text in enumerate(said)} if isinstance(said, list) else said


class Call(Record):
    """One call, and how often it was made."""

    call: str = ""
    """The operator, function or class: `aten._softmax`, `model.rope:apply`, `RMSNorm`; empty: any that it fits."""
    inputs: Annotated[dict[str, str], BeforeValidator(_by_name)]
    """Name -> `float32[8, 64]`; by hand a list will do."""
    strides: dict[str, tuple[int, ...]] = {}
    """Of inputs that are not contiguous, in elements."""
    attrs: dict[str, Any] = {}
    """Numbers, and lists of a few."""
    count: PositiveInt = 1
    line: int = 0
    """Of the file; it is not written."""

    @property
    def tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Dtype and shape of each input. Raises UsageError for words that are not understood."""
        found = {}
        for name, text in self.inputs.items():
            match = _TENSOR.fullmatch(text.strip())
            if match is None:
                raise UsageError(f"{name} = {text!r} is not understood; write a dtype and extents, as 'float32[8, 64]'")
            found[name] = match[1], tuple(int(n) for n in match[2].split(",") if n.strip())
        return found


def read_calls(path: Path) -> list[Call]:
    """Read the calls of a file. Raises UsageError for one that cannot be read, has no line, or one that is no call."""
    if path.exists() and not path.is_file():
        raise UsageError(f"the workload {path} is no file")
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the workload {path} cannot be read: {getattr(error, 'strerror', error)}") from error
    found = [_read(path, number, text) for number, text in enumerate(lines, 1) if text.strip()]
    if not found:
        raise UsageError(f"the workload {path} has no line")
    return found


def _read(path: Path, number: int, text: str) -> Call:
    try:
        call = Call.model_validate({**json.loads(text), "line": number})
        attrs = {name: unnamed(value) for name, value in call.attrs.items()}
        assert call.tensors
        return call.but(attrs=attrs)
    except (ValueError, TypeError, AssertionError, RecursionError) as error:
        why = f"{error.errors()[0]['msg']}" if isinstance(error, ValidationError) else ""
        raise UsageError(
            f'{path}, line {number}, is no call ({why or "no JSON object with inputs"}); write at least {{"inputs": '
            '{"x": "float32[8, 64]"}}'
        ) from error
    except UsageError as error:
        raise UsageError(f"{path}, line {number}: {error}") from error


def text_of(calls: Iterable[Call]) -> str:
    """The calls as lines of a file."""
    told = (one.but(line=0).model_dump(mode="json", exclude_defaults=True) for one in calls)
    return "".join(f"{json.dumps(one)}\n" for one in told)
