"""SARIF 2.1.0 (OASIS), which GitHub's code scanning and editors show at the line of the kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.program import program
from kernel_assay.reports.book import Book, code_file, stopped_at
from kernel_assay.reports.explain import explain, short
from kernel_assay.reports.form import Format

FINGERPRINT = "kernelAssay/v1"


def render(book: Book) -> str:
    """One result a finding; rules are the verdicts."""
    kinds = [k for k in Kind if k.facts.fails]
    return log([_rule(k) for k in kinds], [_result(book, f, kinds.index(f.verdict.kind)) for f in book.real])


def log(rules: list[dict[str, Any]], results: list[dict[str, Any]]) -> str:
    """Write the log of one run."""
    run = {
        "tool": {"driver": {"name": "Kernel Assay", "rules": rules}},
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The folder the run was started in."}}},
        "results": results,
        "columnKind": "unicodeCodePoints",
    }
    whole = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _rule(kind: Kind) -> dict[str, Any]:
    return {
        "id": kind.value,
        "shortDescription": {"text": short(kind.value)},
        "help": {"text": f"{program()} explain {kind.value}", "markdown": explain(kind.value)},
        "defaultConfiguration": {"level": "error"},
    }


def _result(book: Book, f: Finding, rule: int) -> dict[str, Any]:
    line = stopped_at(f) if code_file(f) == Path(f.subject.path).name else 0  # of edits: a line of what they make
    region = {"startLine": line or f.subject.line}
    told = [f.verdict.message, f.verdict.blame, f.claim]
    lines = [*told, f"smallest case: {f.case.label}", *f.gates, *book.commands(f).values()]
    return {
        "ruleId": f.verdict.kind.value,
        "ruleIndex": rule,
        "level": "error" if book.news(f) else "note",
        "baselineState": "new" if book.news(f) else "unchanged",
        "message": {"text": "\n".join(line for line in lines if line)},
        "locations": [location(f.subject.path, region)],
        "partialFingerprints": {FINGERPRINT: f.id},
        "properties": {"standing": book.standing(f), "probability": f.probability, "case": f.case.id},
    }


def location(path: str, region: dict[str, int]) -> dict[str, Any]:
    """Say where a result is."""
    return {"physicalLocation": {"artifactLocation": _place(path), "region": region}}


def _place(path: str) -> dict[str, str]:
    """Relative to where the run was started, if it lies below: that is what links it to a repository."""
    where, here = Path(path), Path.cwd()
    if not where.is_absolute():
        return {"uri": where.as_posix(), "uriBaseId": "SRCROOT"}
    if where.is_relative_to(here):
        return {"uri": where.relative_to(here).as_posix(), "uriBaseId": "SRCROOT"}
    return {"uri": where.as_uri()}


FORMAT = Format("sarif", "SARIF for code scanning and editors.", render)
