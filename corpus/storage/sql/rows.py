"""Rows of records: the columns that are asked for, and the record as JSON."""

from __future__ import annotations

from typing import Any

from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.storage.base_store import one_line

Values = dict[str, Any]


def _sound(said: str) -> str:
    """A text without lone surrogates, which file names may have and no database takes."""
    return said.encode("utf-8", "backslashreplace").decode()


def finding_row(finding: Finding) -> Values:
    """Columns of a finding, but its keys."""
    signature = finding.signature
    return {
        "op": signature.op,
        "subject": _sound(signature.subject),
        "kind": finding.verdict.kind.value,
        "dtype": signature.dtype,
        "signature": _sound(signature.key),
        "state": finding.state.value,
        "expect": finding.expect,
        "seeded": bool(finding.subject.planted),
        "count": finding.count,
        "first_seen": finding.first_seen,
        "last_seen": finding.last_seen,
        "record": one_line(finding.plain()),
    }


def regression_row(finding: Finding) -> Values:
    """Columns of a finding that is kept for good, but its keys."""
    return {"op": finding.signature.op, "finding": finding.id, "record": one_line(finding.plain())}


def run_row(campaign: Campaign) -> Values:
    """Columns of a run, but its keys."""
    return {
        "started": campaign.started,
        "updated": campaign.updated or campaign.started,
        "finished": campaign.finished,
        "next_index": campaign.next_index,
        "cases": campaign.cases,
        "judged": campaign.judged,
        "record": one_line(campaign.plain()),
    }


def lines_row(lines: str) -> Values:
    """Columns of outputs that were kept, a line each, but their keys."""
    return {"size": len(lines), "record": lines}
