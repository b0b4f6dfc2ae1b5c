"""A pytest plugin: every finding under the folders named in `kassay_corpus`, and every cell of a matrix, is a test.

    [tool.pytest.ini_options]
    kassay_corpus = ["corpus/regressions"]
    kassay_matrix = ["kernels.yaml"]

A finding that is expected to fail is an xfail; if it passes, the test fails and says that it started to pass. A matrix
need not be named in the settings if it is named on the command line and called so: `pytest matrix.yaml`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernel_assay.corpus.program import program

if TYPE_CHECKING:
    from kernel_assay.corpus.storage.matrix_record import CellResult
    from kernel_assay.fuzz.api import Item, Replayed, Replayer
    from kernel_assay.fuzz.matrix.run import CellRunner


def pytest_addoption(parser: pytest.Parser) -> None:
    """The settings that turn the plugin on."""
    parser.addini("kassay_corpus", "Folders with findings of Kernel Assay that are replayed as tests.", type="paths")
    parser.addini("kassay_matrix", "Test matrices of Kernel Assay, of which each cell is a test.", type="paths")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.File | None:
    """Findings are .json files under one of the folders; a matrix is named by somebody."""
    if file_path.suffix in {".yaml", ".yml"}:
        asked = "matrix" in file_path.name and parent.session.isinitpath(file_path)
        named = asked or file_path in parent.config.getini("kassay_matrix")
        return _MatrixFile.from_parent(parent, path=file_path) if named else None
    folders: list[Path] = parent.config.getini("kassay_corpus")
    if file_path.suffix != ".json" or not any(file_path.is_relative_to(folder) for folder in folders):
        return None
    return _FindingFile.from_parent(parent, path=file_path)


class _FindingFile(pytest.File):
    """A finding, or a bare case, which becomes a test for every subject of its op."""

    def collect(self) -> Iterator[pytest.Item]:
        from kernel_assay.fuzz.api import Store, UsageError, gather  # noqa: PLC0415  runs of others must not wait for us

        try:
            items = gather(Store(self.path.parent), [str(self.path)])
        except UsageError as error:
            raise self.CollectError(str(error)) from error
        for item in items:
            yield FindingItem.from_parent(self, name=f"{item.subject.key}[{item.case.label}]", item=item)


_REPLAYER = pytest.StashKey["Replayer"]()


def _replayer(config: pytest.Config) -> Replayer:
    """The one of this session."""
    from kernel_assay.fuzz.api import Replayer, SandboxLimits  # noqa: PLC0415  as above

    limits = SandboxLimits()
    return config.stash.setdefault(
        _REPLAYER, Replayer(timeout=limits.timeout, memory_mb=limits.memory_mb, closed=limits.closed)
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the sandboxes."""
    if _RUNNERS in config.stash:
        for runner in config.stash[_RUNNERS].values():
            runner.close()
    if _REPLAYER in config.stash:
        config.stash[_REPLAYER].close()


class FindingItem(pytest.Item):
    """One case that is run again by one subject."""

    def __init__(self, *, item: Item, **parts: Any) -> None:
        super().__init__(**parts)
        self.item = item

    def runtest(self) -> None:
        """Replay it. Nothing is written to the corpus."""
        from kernel_assay.fuzz.api import Outcome  # noqa: PLC0415  as above

        replayed = _replayer(self.config).replay(self.item)
        if replayed.outcome is Outcome.FAILS_AS_EXPECTED:
            pytest.xfail(replayed.verdict.message)
        if replayed.outcome is Outcome.NOT_TOLD:
            pytest.skip(replayed.verdict.message)
        if not replayed.good or replayed.outcome is Outcome.STARTED_TO_PASS:
            raise ReplayError(replayed)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Say what is wrong, instead of a traceback through the tool."""
        from kernel_assay.fuzz.api import UsageError  # noqa: PLC0415  as above

        if isinstance(excinfo.value, ReplayError | UsageError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """The finding's file."""
        return self.path, None, self.name


class _MatrixFile(pytest.File):
    """A test matrix, of which every cell is a test."""

    def collect(self) -> Iterator[pytest.Item]:
        from kernel_assay.fuzz.api import Store, UsageError  # noqa: PLC0415  as above
        from kernel_assay.fuzz.matrix.cells import Cells  # noqa: PLC0415  as above
        from kernel_assay.fuzz.matrix.run import CellRunner  # noqa: PLC0415  as above
        from kernel_assay.fuzz.matrix.spec import load  # noqa: PLC0415  as above

        try:
            cells = Cells(load(self.path))
            planned = cells.plan()
        except UsageError as error:
            raise self.CollectError(str(error)) from error
        runner = CellRunner(cells, Store(self.config.rootpath / "corpus"))
        self.config.stash.setdefault(_RUNNERS, {})[self.path] = runner
        for one in planned:
            yield CellItem.from_parent(self, name=one.cell.name, runner=runner, planned=one)


_RUNNERS = pytest.StashKey[dict[Path, "CellRunner"]]()


class CellItem(pytest.Item):
    """One cell of a test matrix."""

    def __init__(self, *, runner: CellRunner, planned: CellResult, **parts: Any) -> None:
        super().__init__(**parts)
        self.runner, self.planned = runner, planned

    def runtest(self) -> None:
        """Run it; what it finds is kept in the folder corpus beside pytest's settings."""
        found = self.runner.run(self.planned) if self.planned.to_run else self.planned
        issue = f" ({found.issue}, until {found.until})" if found.issue else ""
        if found.standing == "skipped":
            pytest.skip(found.reason)
        if found.standing == "xfailed":
            pytest.xfail(f"{found.reason}{issue}")
        if found.standing != "passed":
            raise CellError(found, issue)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Say what is wrong, instead of a traceback through the tool."""
        return str(excinfo.value) if isinstance(excinfo.value, CellError) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """The file of the matrix."""
        return self.path, None, self.name


class CellError(AssertionError):
    """A cell that did not end as it should."""

    def __init__(self, found: CellResult, issue: str) -> None:
        show = [f"see it    {program()} show {finding}" for finding in found.findings[:1]]
        super().__init__("\n".join([f"{found.cell.name}: {found.standing}{issue}", found.reason, *show]))


class ReplayError(AssertionError):
    """A replay that did not go as it should."""

    def __init__(self, replayed: Replayed) -> None:
        item, verdict = replayed.item, replayed.verdict
        lines = [
            f"{item.subject.key}: {replayed.outcome.value}",
            f"{verdict.kind}: {verdict.message}" if verdict.message else "",
            f"case      {item.case.label}",
            f"see it    {program()} show {shlex.quote(item.name)}",
        ]
        super().__init__("\n".join(line for line in lines if line))
