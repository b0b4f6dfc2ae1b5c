"""The JSON of pydantic_core, by the standard library."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel


def from_json(data: bytes | str) -> Any:
    """The data in a text, NaN and Infinity among it."""
    return json.loads(data)


def to_json(value: Any) -> bytes:
    """The text of a value, in which there may be records."""
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else list(value)
