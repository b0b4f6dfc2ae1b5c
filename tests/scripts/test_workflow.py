"""The workflow that users copy, and the page about it: what a machine can tell of them is true."""

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml
from test_nightly import NIGHTLY, module_of
from test_replay_ci import REPLAY_CI

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.__main__ import cli as fuzz

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / "docs" / "examples" / "kernel-assay.yml"
PAGE = ROOT / "docs" / "nightly-and-ci.md"
END = re.compile(r"&&|\|\||[;|>]| # ")
"""Where the words of a command end."""


@pytest.fixture(scope="module")
def jobs():
    return yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"]


def lines(jobs):
    """Of all steps, without what stands behind the command."""
    runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    return [END.split(line)[0].strip() for run in runs for line in run.splitlines()]


def mistake(line, monkeypatch):
    """What the command itself would say of its words; nothing if they are right, and nothing is run."""
    words = shlex.split(line)
    try:
        if words[0] == "kassay":
            click_parses(fuzz, words[1:])
        elif words[0] in {"scripts/nightly", "scripts/replay_ci"}:
            script = module_of({NIGHTLY.name: NIGHTLY, REPLAY_CI.name: REPLAY_CI}[Path(words[0]).name], monkeypatch)
            parser = script.parser()
            (parser.parse_intermixed_args if words[0].endswith("nightly") else parser.parse_args)(words[1:])
        else:
            return f"{words[0]} is no command of ours"
    except (click.ClickException, UsageError) as error:
        return str(error)
    return ""


def click_parses(command, words):
    """Without --contract and --base, which would be looked at."""
    for option in ("--contract", "--base"):
        while option in words:
            at = words.index(option)
            words = words[:at] + words[at + 2 :]
    with command.make_context("", words) as context:
        if isinstance(command, click.Group):
            name, inner, rest = command.resolve_command(context, list(words))
            inner.make_context(name, rest, parent=context).close()


def test_every_command_of_the_workflow_parses(jobs, monkeypatch):
    found = [line for line in lines(jobs) if line.startswith("kassay ")]
    assert len(found) == 5
    assert {line: said for line in found if (said := mistake(line, monkeypatch))} == {}


def shell(text):
    """The commands in ```sh blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    joined = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for raw in joined if (line := END.split(raw)[0].strip())]


def test_every_command_of_the_page_parses(monkeypatch):
    found = shell(PAGE.read_text("utf-8"))
    assert len(found) >= 10
    assert {line: said for line in found if (said := mistake(line, monkeypatch))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "kassay run --bugdet 5s",
        "kassay report --htlm x",
        "scripts/nightly --hous 8",
        "scripts/replay_ci --bas x",
        "make everything",
    ],
)
def test_a_wrong_command_is_noticed(line, monkeypatch):
    (command,) = shell(f"text\n```sh\n{line}  # a remark\n```\n")
    assert mistake(command, monkeypatch)


def test_no_job_may_do_or_last_more_than_it_needs(jobs):
    whole = yaml.safe_load(WORKFLOW.read_text("utf-8"))
    assert whole["permissions"] == {"contents": "read"}
    assert "concurrency" in whole
    for job in jobs.values():
        assert job["permissions"] == {"contents": "read", "security-events": "write"}
        assert job["timeout-minutes"] <= 360
        uses = [step["uses"] for step in job["steps"] if "uses" in step]
        assert [name for name in uses if not re.fullmatch(r"(actions|github)/[\w/-]+@v\d+", name)] == []


def test_what_is_uploaded_is_written(jobs):
    for job in jobs.values():
        commands = " ".join(lines({"": job}))
        uploaded = [s["with"]["sarif_file"] for s in job["steps"] if "upload-sarif" in s.get("uses", "")]
        assert len(uploaded) == 1
        assert f"--sarif {uploaded[0]}" in commands


def test_the_memory_is_kept_whatever_becomes_of_a_night(jobs):
    steps = {name: [s for s in job["steps"] if "cache" in s.get("uses", "")] for name, job in jobs.items()}
    (restored, saved), (read,) = steps["nightly"], steps["pull-request"]
    assert saved["if"] == "${{ always() }}"
    assert restored["with"]["path"] == saved["with"]["path"] == read["with"]["path"] == "corpus/local"
    assert saved["with"]["key"].startswith(restored["with"]["restore-keys"])
    assert "${{ github.run_id }}" in saved["with"]["key"], "a cache is never written twice"


def test_the_base_that_is_named_is_the_base_that_is_checked_out(jobs):
    (base,) = [
        s["with"]["path"] for s in jobs["pull-request"]["steps"] if "path" in s.get("with", {}) and "ref" in s["with"]
    ]
    searched = [line for line in lines({"": jobs["pull-request"]}) if line.startswith("kassay")]
    assert len(searched) == 2
    assert all(f"--base {base}" in line for line in searched)
