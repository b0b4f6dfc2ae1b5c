"""JUnit XML, which every CI server shows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET


def write_junit(path: Path, results: Iterable[tuple[str, str, bool, str]]) -> None:
    """One test a result: (name, class name, good, message)."""
    suite = ET.Element("testsuite", name="replay")
    tests = failures = 0
    for name, group, good, message in results:
        tests += 1
        test = ET.SubElement(suite, "testcase", name=name, classname=group)
        if not good:
            failures += 1
            ET.SubElement(test, "failure", message=message).text = message
    suite.set("tests", str(tests))
    suite.set("failures", str(failures))
    path.parent.mkdir(parents=True, exist_ok=True)
    ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
