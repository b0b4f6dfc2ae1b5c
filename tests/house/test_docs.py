"""What the documents say is true where a machine can tell."""

import re
import shlex
import subprocess
import sys

import click
import pytest
from tree import PACKAGES, ROOT

from kernel_assay import __version__
from kernel_assay.fuzz.__main__ import cli

FRAGMENTS = sorted((ROOT / "changelog.d").glob("*.md"))
DOCUMENTS = ("README.md", "ARCHITECTURE.md")


def commands(text):
    """Arguments of every `kassay` in ```sh blocks and between backquotes."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return [shlex.split(line, comments=True)[1:] for line in lines if re.match(r"kassay( |$)", line)]


def parse(arguments):
    """Parse a command line as the command itself would, and run nothing."""
    with cli.make_context("fuzz", list(arguments)) as context:
        if arguments:
            name, command, rest = cli.resolve_command(context, list(arguments))
            command.make_context(name, rest, parent=context, resilient_parsing="TARGET" in rest).close()


def parses(arguments):
    try:
        parse(arguments)
    except click.exceptions.Exit as left:
        return left.exit_code == 0
    except click.UsageError as error:
        return "Missing" in error.format_message() and len(arguments) == 1  # only the command's name is spoken of
    return True


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_parses(document):
    found = commands((ROOT / document).read_text())
    assert document != "README.md" or len(found) >= 5
    assert [arguments for arguments in found if not parses(arguments)] == []


@pytest.mark.parametrize("line", ["run --bugdet 5s", "lsit", "list opps", "run --cases many", "shrink a b"])
def test_a_wrong_command_is_noticed(line):
    (arguments,) = commands(f"text\n```sh\nkassay {line}  # a remark\n```\n")
    assert not parses(arguments)


def test_the_house_rules_fit_on_a_page():
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 60


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_that_is_named_exists(document):
    text = (ROOT / document).read_text()
    named = re.findall(rf"`((?:{'|'.join(PACKAGES)}|tests|scripts)/[\w/.-]+)`", text)
    lost = [name for name in named if not (ROOT / name).exists() and not name.startswith(WRITTEN)]
    assert lost == []


WRITTEN = ("corpus/local", "corpus/regressions", "corpus/seeds")
"""Folders that runs and people make."""


def well_formed(name, text):
    """One sentence, under a name that towncrier knows."""
    named = re.fullmatch(r"(\+[\w-]+|\d+)\.(feature|bugfix|doc|removal|misc)\.md", name)
    return (
        bool(named)
        and bool(re.fullmatch(r"[A-Z`][^\n]*[^.\n]\.\n?", text))
        and len(re.findall(r"\.\s+[A-Z]", text)) == 0
    )


def test_changelog_fragments_are_well_formed():
    assert [f.name for f in FRAGMENTS if not well_formed(f.name, f.read_text())] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("store.feature.md", "A sentence.\n"),
        ("+store.feture.md", "A sentence.\n"),
        ("+store.feature.md", "no capital.\n"),
        ("+store.feature.md", "No full stop\n"),
        ("+store.feature.md", "Two. Sentences.\n"),
    ],
)
def test_a_bad_fragment_is_noticed(name, text):
    assert well_formed("+store.feature.md", "A sentence.\n")
    assert not well_formed(name, text)


def test_towncrier_takes_the_fragments():
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "0.0", "--date", "today"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    for fragment in FRAGMENTS:
        assert " ".join(fragment.read_text().split())[:40] in " ".join(result.stdout.split())


def test_the_changelog_has_a_section_for_this_version():
    """A release consumes the fragments: `towncrier build --version X`, X as in kernel_assay/__init__.py."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    heads = re.findall(r"^# Kernel Assay (\S+) \(\d{4}-\d\d-\d\d\)$", text, re.MULTILINE)
    assert heads[0] == __version__
    assert f"kernel_assay-{__version__}-py3-none-any.whl" in (ROOT / "README.md").read_text("utf-8")
    entries = re.findall(r"^- (.+)$", text, re.MULTILINE)
    assert len(entries) == len(set(entries)) > 20


def test_every_cited_section_of_the_numerics_exists():
    text = (ROOT / "docs" / "numerics.md").read_text("utf-8")
    headings = set(re.findall(r"^#+ (\d(?:\.\d)?)\.? ", text, re.MULTILINE))
    cited = set()
    for path in [*ROOT.glob("oracles/**/*.py"), *ROOT.glob("fuzz/**/*.py")]:
        for numbers in re.findall(r"numerics\.md ([\d., ]+\d|\d)", path.read_text("utf-8")):
            cited |= set(re.findall(r"\d(?:\.\d)?", numbers))
    assert cited
    assert cited <= headings
