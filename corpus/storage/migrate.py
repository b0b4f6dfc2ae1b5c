"""Bring records of older schemas up to date, one step at a time, and refuse those that no step is known for."""

import copy
from collections.abc import Callable
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.model.base import GENERATOR_VERSION, SCHEMAS

Raw = dict[str, Any]


def _only_more_fields(raw: Raw) -> Raw:
    """Every new field has a default that says `not known`."""
    return raw


def _declined_apart(raw: Raw) -> Raw:
    """Cases that a subject declined were counted among those judged; of the moments before the end by their share."""
    judged, kinds = raw.get("judged"), raw.get("kinds")
    if not isinstance(judged, int) or not isinstance(kinds, dict) or not isinstance(kinds.get("unsupported", 0), int):
        return raw  # validation says what is wrong with it
    rest = max(0, judged - kinds.get("unsupported", 0))
    for moment in raw.get("timeline", ()):
        if judged and isinstance(moment, dict) and isinstance(moment.get("judged"), int):
            moment["judged"] = moment["judged"] * rest // judged
    return {**raw, "judged": rest}


MIGRATIONS: dict[tuple[str, int], Callable[[Raw], Raw]] = {
    ("finding", 1): _only_more_fields,
    ("finding", 2): _only_more_fields,
    ("finding", 3): _only_more_fields,
    ("finding", 4): _only_more_fields,
    ("finding", 5): _only_more_fields,
    ("campaign", 1): _only_more_fields,
    ("campaign", 2): _declined_apart,
    ("campaign", 3): _only_more_fields,
}
"""(Kind of record, version) -> the step to the next, a JSON object to a JSON object; it may change its argument.

A step sees one record; those in it, such as a finding's cases, come to it as records of their own.
"""

_NESTED = {
    "finding": {"case": "case", "original": "case", "before": "case", "cliff": "cliff"},
    "cliff": {"neighbour": "case"},
    "kept": {"case": "case"},
    "golden": {"cases": "goldencase"},
    "goldencase": {"case": "case"},
    "timingrun": {"timed": "timed"},
    "timed": {"case": "case"},
}
"""Kind of record -> its fields that hold a record, or several, and the kind of those."""


def _unscaled(tensor: Raw) -> None:
    """Drop scale and shift, which meant nothing for float64 in recipes of version 1."""
    fill = tensor.get("fill", {})
    known = DISTRIBUTIONS.get(fill.get("distribution", ""))
    if tensor.get("dtype") == "float64" and not (known and known.patterns):
        fill.pop("scale", None)
        fill.get("params", {}).pop("shift", None)


RECIPES: dict[int, Callable[[Raw], None]] = {1: _unscaled}
"""Version of recipes -> what makes of a tensor's recipe one of the next version, with the same bytes, in place."""


def upgrade(raw: Raw, kind: str) -> Raw:
    """A copy of raw in the present schema, the records inside it included.

    raw: the JSON object as it was read. kind: one of SCHEMAS.
    A record that does not state its schema is taken for a current one. Raises UsageError for a newer schema, and for an
    older one from which no step leads here.
    """
    current = _stepped(dict(raw), kind)
    for name, nested in _NESTED.get(kind, {}).items():
        if isinstance(held := current.get(name), dict):
            current[name] = upgrade(held, nested)
        elif isinstance(held, list):
            current[name] = [upgrade(one, nested) if isinstance(one, dict) else one for one in held]
    return _regenerated(current) if kind == "case" else current


def _regenerated(case: Raw) -> Raw:
    """The case in the present recipes' words. One that no step is known for, or that is no case, stays as it is."""
    version = case.get("generator_version")
    if not (isinstance(version, int) and set(range(version, GENERATOR_VERSION)) <= set(RECIPES)):
        return case
    again = copy.deepcopy(case)
    try:
        for step in range(version, GENERATOR_VERSION):
            for tensor in again["tensors"].values():
                RECIPES[step](tensor)
            again["generator_version"] = step + 1
    except (AttributeError, KeyError, TypeError):  # of another shape: validation says what is wrong with it
        return case
    return again


def _stepped(raw: Raw, kind: str) -> Raw:
    present = SCHEMAS[kind]
    version = raw.get("schema_version", present)
    if type(version) is not int:
        raise UsageError(f"the {kind} has the schema_version {version!r}, which is no whole number")
    if version > present:
        raise UsageError(
            f"the {kind} was written by a newer version (schema {version}, this one reads up to {present})"
        )
    for step in range(version, present):
        if (kind, step) not in MIGRATIONS:
            raise UsageError(f"the {kind} has schema {version}, which this version can no longer read")
        raw = {**MIGRATIONS[kind, step](raw), "schema_version": step + 1}
    return raw
