"""Say what a run found, as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from corpus.campaign import Campaign
from corpus.records import BLAMELESS, Finding, Kind
from reports.text import planted_missed

SUMMARY_VERSION = 1


def campaign_summary(c: Campaign, findings: Sequence[Finding]) -> dict[str, Any]:
    """Totals, subjects, findings and goals of a run; everything else is in the records it names."""
    return {
        "summary_version": SUMMARY_VERSION,
        "run": c.run,
        "seed": c.seed,
        "finished": c.finished,
        "cases": c.cases,
        "judged": c.judged,
        "seconds": round(c.seconds, 3),
        "kinds": c.kinds,
        "subjects": {
            s.key: {"kinds": c.by_subject.get(s.key, {}), "max_rho": c.max_rho.get(s.key)} for s in c.subjects
        },
        "planted_missed": planted_missed(c),
        "findings": [finding_summary(f) for f in findings],
        "failing": sum(n for k, n in c.kinds.items() if Kind(k) not in BLAMELESS),
        "coverage_cells": len(c.coverage),
        "goals_open": [name for name, index in c.goals.items() if index < 0],
        "environment": c.environment.model_dump(mode="json"),
    }


def finding_summary(f: Finding) -> dict[str, Any]:
    """One finding in short."""
    return {
        "id": f.id,
        "subject": f.subject.key,
        "planted": bool(f.subject.planted),
        "kind": f.verdict.kind.value,
        "rule": f.verdict.rule,
        "message": f.verdict.message,
        "signature": f.signature.key,
        "state": f.state.value,
        "count": f.count,
        "probability": f.probability,
        "gates": list(f.gates),
        "case": f.case.model_dump(mode="json"),
        "case_id": f.case.id,
        "elements": f.case.elements,
        "original_elements": f.original.elements,
    }


def to_json(summary: Any) -> str:
    """Indented JSON; infinities and NaN as strings, which JSON has no numbers for."""
    return json.dumps(_plain(summary), indent=2)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in {float("inf"), float("-inf")}):  # noqa: PLR0124  NaN
        return str(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
