"""What `replay`, `list` and `doctor` do, below the command line. Nothing here needs Hypothesis."""

from __future__ import annotations

import platform
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import click

from corpus.distributions import DISTRIBUTIONS
from corpus.errors import UsageError
from corpus.layouts import LAYOUTS
from corpus.records import BLAMELESS, Kind
from corpus.specials import PLACES, VALUES
from corpus.store import Store
from fuzz.output import FOUND, write_json
from fuzz.replay import Replayed, gather, replay
from kernels.catalog import subjects_of
from kernels.environment import environment
from kernels.loader import loader_of, loaders
from oracles.catalog import load_contracts
from reports.junit import write_junit
from reports.text import claims, table


def replay_stored(**options: Any) -> int:
    """The command `replay`."""
    with Store(options["corpus"]) as store:
        items = gather(store, options["targets"], options["files"])
        results = replay(items, store, timeout=options["timeout"], memory_mb=options["memory_mb"])
    for r in results:
        click.echo(_line(r), err=options["json_path"] == "-")
    _write(results, options)
    tally = Counter(r.outcome.value for r in results)
    said = ", ".join(f"{n} {word}" for word, n in tally.items()) or "nothing to replay"
    click.echo(f"{len(results)} replayed: {said}" if results else said, err=options["json_path"] == "-")
    return 0 if all(r.good for r in results) else FOUND


def _line(r: Replayed) -> str:
    lost = " (a planted bug is not caught any more)" if r.lost else ""
    message = f"\n    {r.verdict.kind}: {r.verdict.message}" if r.verdict.message else ""
    blame = f"\n    {r.verdict.blame}" if r.verdict.blame else ""
    return f"{r.outcome.value}{lost}: {r.item.subject.key}  {r.item.case.label}  [{r.item.name}]{message}{blame}"


def _write(results: list[Replayed], options: dict[str, Any]) -> None:
    summary = [
        {
            "item": r.item.name,
            "case_id": r.item.case.id,
            "subject": r.item.subject.key,
            "outcome": r.outcome.value,
            "good": r.good,
            "kind": r.verdict.kind.value,
            "message": r.verdict.message,
        }
        for r in results
    ]
    write_json(options["json_path"], summary)
    if options["junit"]:
        rows = [
            (f"{r.item.case.label} [{r.item.name}]", r.item.subject.key, r.good, r.verdict.message) for r in results
        ]
        try:
            write_junit(options["junit"], rows)
        except OSError as error:
            raise UsageError(f"{options['junit']} cannot be written ({error.strerror})") from error


Row = tuple[str, ...]


def list_things(**options: Any) -> int:
    """The command `list`."""
    head, rows = _LISTS[options["what"]](Path(options["corpus"]))
    if options["json_path"]:
        write_json(options["json_path"], [dict(zip(head, row, strict=True)) for row in rows])
    else:
        click.echo(table(head, rows))
    return 0


def _ops(_: Path) -> tuple[Row, list[Row]]:
    rows: list[Row] = []
    for c in load_contracts().values():
        dtypes = dict.fromkeys(next(iter(v.values())) for v in c.variants)
        subjects = subjects_of(c.name)
        planted = sum(bool(s.planted) for s in subjects)
        rows.append((c.name, str(len(subjects) - planted), str(planted), " ".join(dtypes), c.summary))
    return ("op", "subjects", "planted", "dtypes", "summary"), rows


def _subjects(_: Path) -> tuple[Row, list[Row]]:
    rows: list[Row] = []
    for op in load_contracts():
        for s in subjects_of(op):
            why = loader_of(s.backend).unavailable()
            state = (
                f"not available here, because {why}" if why else "planted " + s.planted if s.planted else "runs here"
            )
            rows.append((s.key, s.backend, state, claims(s), s.summary))
    return ("subject", "backend", "state", "claims", "summary"), rows


def _backends(_: Path) -> tuple[Row, list[Row]]:
    return ("backend", "state"), [(name, _backend_state(name)) for name in loaders()]


def _backend_state(name: str) -> str:
    loader = loader_of(name)
    if why := loader.unavailable():
        return f"not available here, because {why}"
    return "runs here" + "".join(f", {p} {v}" for p, v in loader.versions().items())


def _distributions(_: Path) -> tuple[Row, list[Row]]:
    rows: list[Row] = [("distribution", d.name, d.nature, d.summary) for d in DISTRIBUTIONS.values()]
    rows += [("layout", name, "", (f.__doc__ or "").splitlines()[0]) for name, f in LAYOUTS.items()]
    rows += [("special", name, "", "") for name in VALUES]
    rows += [("place", name, "", (f.__doc__ or "").splitlines()[0]) for name, f in PLACES.items()]
    return ("what", "name", "nature", "summary"), rows


def _findings(corpus: Path) -> tuple[Row, list[Row]]:
    with Store(corpus) as store:
        found = store.findings()
    rows: list[Row] = [
        (f.id, f.subject.key, f.verdict.kind.value, f.state.value, str(f.count), f.case.label) for f in found
    ]
    return ("finding", "subject", "verdict", "state", "count", "smallest case"), rows


def _goals(_: Path) -> tuple[Row, list[Row]]:
    from fuzz.goals import GOALS  # noqa: PLC0415  listing needs no examiner

    return ("goal", "reached by"), [(name, (f.__doc__ or "").strip()) for name, f in GOALS.items()]


def _verdicts(_: Path) -> tuple[Row, list[Row]]:
    return ("verdict", "about"), [(k.value, "the question" if k in BLAMELESS else "the subject") for k in Kind]


_LISTS = {
    "ops": _ops,
    "subjects": _subjects,
    "backends": _backends,
    "distributions": _distributions,
    "findings": _findings,
    "goals": _goals,
    "verdicts": _verdicts,
}


def doctor() -> int:
    """The command `doctor`."""
    env = environment()
    click.echo(f"python {env.python} on {env.platform}\nprocessor {env.processor or env.machine}")
    click.echo("".join(f"{name} {version}\n" for name, version in env.packages.items()), nl=False)
    for tool in ("g++", "nvcc", "nvidia-smi"):
        click.echo(f"{tool} {shutil.which(tool) or 'not found'}")
    click.echo(table(("backend", "state"), [(name, _backend_state(name)) for name in loaders()]))
    if platform.system() != "Linux":
        click.echo("subjects cannot run here: the sandbox needs Linux")
        return FOUND
    return 0
