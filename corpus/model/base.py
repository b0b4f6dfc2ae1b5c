"""The base of all records: how they are frozen, written, named and copied. The nouns are in corpus/model/."""

from __future__ import annotations

import hashlib
import json
import math
from functools import cache, cached_property
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = 1
"""Of cases on disk."""

SCHEMAS = {
    "case": SCHEMA_VERSION,
    "finding": 6,
    "campaign": 4,
    "kept": 1,
    "proof": 1,
    "golden": 1,
    "goldencase": 1,
    "matrixrun": 1,
    "cellresult": 1,
    "timingrun": 1,
    "timed": 1,
    "peaks": 1,
    "cliff": 1,
}
"""Versions of all records on disk. Raise one with a migration in corpus/storage/migrate.py."""

GENERATOR_VERSION = 2
"""Of the meaning of a recipe. Raise it when the same recipe would give other bytes, and say in storage/migrate.py what
those of before are called now."""

Scalar = bool | int | float | str

_NONFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How JSON, which has no such numbers, spells them."""


def _named(value: Any) -> Any:
    """Plain JSON data with each non-finite number replaced by its name."""
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    return [_named(item) for item in value] if isinstance(value, list) else value


def unnamed(value: Any) -> Any:
    """The number that a name stands for; without it a union with str would read `Infinity` as a text."""
    return _NONFINITE.get(value, value) if isinstance(value, str) else value


@cache
def _names(kind: type[BaseModel]) -> set[str]:
    """Names of the fields of a kind of records: one set for all, for making it took longer than all the rest."""
    return set(kind.model_fields)


class Record(BaseModel):
    """Base of everything that lasts: immutable, closed to unknown fields, NaN-safe. Identity is `id`, never `==`."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        ser_json_inf_nan="strings",
        revalidate_instances="never",
    )

    def plain(self) -> dict[str, Any]:
        """The record as JSON data, fields and inputs in their order, NaN and Inf by name; what the store writes."""
        data: dict[str, Any] = _named(self.model_dump(mode="json"))
        return data

    def canonical(self) -> str:
        """The one JSON text of this record: keys sorted, no spaces, defaults written out. Not for disk."""
        return json.dumps(self.plain(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def id(self) -> str:
        """First 16 hex digits of the sha256 of the canonical JSON."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:16]

    @classmethod
    def trusted(cls, **fields: Any) -> Self:
        """A record from fields that are known to be right, all of them given: faster than validation.

        For the hot path only (a case is generated in 100 µs); a test compares its records with validated ones.
        """
        record = cls.__new__(cls)
        put = object.__setattr__
        put(record, "__dict__", fields)
        put(record, "__pydantic_fields_set__", _names(cls))
        put(record, "__pydantic_extra__", None)
        put(record, "__pydantic_private__", None)
        return record

    def but(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated; model_copy would carry cached ids along and take any name."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**fields, **changes})
