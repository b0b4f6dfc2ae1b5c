"""Write JUnit XML, for runs (formats/junit.py) and replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET


@dataclass(frozen=True, slots=True)
class Result:
    """One test: it passed unless it says why it failed or was skipped."""

    name: str
    group: str
    """Shown as the test's class."""
    failure: str = ""
    skipped: str = ""
    text: str = ""
    """More about a failure."""


def junit(suite: str, results: Sequence[Result]) -> str:
    """The XML of one suite."""
    root = ET.Element("testsuite", name=suite, tests=str(len(results)))
    root.set("failures", str(sum(bool(r.failure) for r in results)))
    root.set("skipped", str(sum(bool(r.skipped) for r in results)))
    for r in results:
        test = ET.SubElement(root, "testcase", name=_clean(r.name), classname=_clean(r.group))
        if r.failure:
            ET.SubElement(test, "failure", message=_clean(r.failure)).text = _clean(r.text or r.failure)
        elif r.skipped:
            ET.SubElement(test, "skipped", message=_clean(r.skipped))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _clean(text: str) -> str:
    """XML 1.0 has no control characters, not even escaped ones."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
