"""`remote`: jobs, findings and projects of a server, from the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.program import program
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.fuzz.cli.options import AtLeast, corpus_option, dtype_option
from kernel_assay.fuzz.cli.output import FOUND, UNJUDGED
from kernel_assay.fuzz.cli.toolbox.server_options import secret_of, server_options, with_service
from kernel_assay.fuzz.settings import seconds_of
from kernel_assay.reports.book import elsewhere
from kernel_assay.reports.bugs import grouped
from kernel_assay.reports.plain.terminal import say, table, visible
from kernel_assay.reports.words import count

if TYPE_CHECKING:
    from kernel_assay.fuzz.service.client import Client
    from kernel_assay.fuzz.service.protocol import Job, JobRequest, ProjectTold, Sources

SENT_SUFFIXES = frozenset({".py", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".toml", ".yaml", ".yml", ".json", ".jsonl"})
"""Files of a folder that are sent."""
IDS = frozenset({"JOB", "FINDING", "JOB|FINDING"})
"""Names, in help texts, of options and arguments that are ids."""
MOST_TOLD = 10
"""Findings of a job that are named."""
NEWS_SECONDS = 10.0
"""Between two lines that say how far a job is, if nothing else happens."""


def asks(command: Callable[..., Any]) -> Callable[..., Any]:
    """Make a command that is given a client in the place of a server and a token."""

    @server_options
    @with_service
    @wraps(command)
    def made(*, server: str, token: str, token_file: Path | None, **rest: Any) -> Any:
        from kernel_assay.fuzz.service.client import Client  # noqa: PLC0415  an extra that need not be installed

        _check_ids(click.get_current_context().command.params, rest)
        with Client(server, secret_of(token, token_file)[0]) as client:
            return command(client=client, **rest)

    return made


of_project = click.option("--project", metavar="NAME", help="Of which, where several have the finding.")


def utc(moment: str | None) -> str:
    """A time of the server as people read it, to the second; empty: there is none."""
    return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M:%S}" if moment else ""


def _check_ids(parameters: Iterable[click.Parameter], given: Mapping[str, Any]) -> None:
    """Raise UsageError for what can be no id of a job or a finding, and name the option."""
    from kernel_assay.fuzz.service.protocol import FORMS, ID  # noqa: PLC0415  as above

    for one in parameters:
        value = given.get(one.name or "") if getattr(one, "metavar", "") in IDS else None
        if value and not re.fullmatch(ID, value):
            name = one.metavar if isinstance(one, click.Argument) else one.opts[0]
            raise UsageError(f"{name} {value!r}: {FORMS[ID]}")


@click.group("remote")
def command() -> None:
    """Submit jobs to a server, read what came of them, and pull findings.

    The server and the token are named by options, KASSAY_SERVER and KASSAY_TOKEN, or in ~/.config/kassay/remote.toml.
    """


def request_options(made: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that a job may set."""
    options = (
        click.option("--op", "ops", multiple=True, metavar="OP", help="Repeatable."),
        click.option("--reference", "references", multiple=True, metavar="FILE[:NAME]", help="Instead of an op."),
        click.option("--include", multiple=True, type=click.Path(path_type=Path), help="A file to send along."),
        click.option("--cases", type=AtLeast(1), help="So many cases."),
        click.option("--budget", metavar="TIME", help="Or so long: 90s, 5m."),
        click.option("--timeout", metavar="TIME", help="Of one execution of a kernel, 60s at most.  [default: 10s]"),
        click.option("--seed", type=AtLeast(0), help="Makes the same cases again.  [default: random]"),
        click.option("--cuda", is_flag=True, help="On a GPU."),
        click.option("--strict", is_flag=True, help="Failures on NaN, Inf, and very large inputs count, too."),
        click.option("--project", metavar="NAME"),
        click.option("--priority", type=AtLeast(0, 9), default=5, show_default=True, help="9 comes first."),
        click.option("--json", "as_json", is_flag=True, help="Print the job as JSON."),
    )
    for option in reversed(options):
        made = option(made)
    return dtype_option(made)


@command.command("judge")
@click.argument("places", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER | FILE...")
@request_options
@click.option("--wait", default="60s", show_default=True, metavar="TIME", help="For the verdict.")
@asks
def judge_command(
    *, client: Client, places: tuple[Path, ...], ops: tuple[str, ...], wait: str, as_json: bool, **given: Any
) -> int:
    """Judge a folder, as `judge` does here, or a file that is a kernel of an OP (--op).

    Exit code 0 if nothing wrong was found, 1 if it is wrong, 2 if it could not be judged.
    """
    from kernel_assay.fuzz.service.protocol import JobKind, Target  # noqa: PLC0415  as above

    if ops or given["references"]:
        sources, files = sent_of(places, given["references"], given["include"])
        names = files[: len(places)]
        target = Target(ops=ops, subjects=names, references=files[len(places) :])
    else:
        sources, folder = folder_of(places)
        target = Target(folder=folder)
    job = client.judge(_request(JobKind.JUDGE, target, sources, **given), min(seconds_of(wait), 300.0))
    return told(client, job, as_json=as_json, waited=True)


@command.command("submit")
@click.argument("kind")
@click.option("--subject", "subjects", multiple=True, metavar="FILE[:NAME]|NAME", help="A kernel; repeatable.")
@click.option(
    "--finding",
    metavar="FINDING",
    help="Of the server: what replay, shrink, bisect, verify are about.",
)
@click.option("--repository", metavar="URL", help="Instead of files: a repository.  [default: the project's]")
@click.option("--commit", metavar="COMMIT", help="Of the repository.")
@click.option(
    "--good",
    metavar="COMMIT",
    help="Of bisect: where the finding does not show yet (if it is fixed: where it did); of verify: where it does.",
)
@request_options
@click.option("--key", default="", help="The same key is the same job, however often it is sent.")
@click.option("--follow", is_flag=True, help="Wait for its end, and say what came of it.")
@asks
def submit_command(
    *,
    client: Client,
    kind: str,
    subjects: tuple[str, ...],
    ops: tuple[str, ...],
    follow: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Queue a job of a KIND: fuzz, judge, replay, shrink, prove, time, bisect or verify."""
    from kernel_assay.fuzz.service.protocol import Checkout, JobKind, Target  # noqa: PLC0415  as above

    if kind not in set(JobKind):
        raise UsageError(f"{kind!r} is no kind of job; there are {', '.join(JobKind)}")
    if kind == JobKind.FUZZ and not (subjects or ops or given["references"] or given["project"]):
        raise UsageError("fuzz what? name a kernel (--subject FILE), an --op, or a --project")
    names, repository, commit, good = (given.pop(name) for name in ("finding", "repository", "commit", "good"))
    about = client.finding(names, given["project"]) if names else None
    given["project"] = given["project"] or (about.project if about else None)
    more: dict[str, Any] = {"finding": about.record if about else None, "good": good}
    if commit:
        known = repository or (client.project(given["project"]).project.repository if given["project"] else "")
        if not known:
            raise UsageError("a commit of which repository? name it with --repository, or a --project")
        with sendable():
            more["checkout"] = Checkout(repository=known, commit=commit)
        sources, target = None, Target(ops=ops, subjects=subjects, references=given["references"])
    else:
        files = [one for one in subjects if Path(one.partition(":")[0]).suffix]
        sources, sent = sent_of(files, given["references"], given["include"])
        built_in = [one for one in subjects if one not in files]
        target = Target(ops=ops, subjects=(*sent[: len(files)], *built_in), references=sent[len(files) :])
    job = client.submit(_request(JobKind(kind), target, sources, **given, **more))
    if follow:
        return told(client, followed(client, job), as_json=as_json)
    say(job.model_dump_json(indent=2) if as_json else f"{job.id} {job.state.value}; {program()} remote show {job.id}")
    return 0


def _request(kind: Any, target: Any, sources: Sources | None, **given: Any) -> JobRequest:
    from kernel_assay.fuzz.service.protocol import JobRequest, Settings  # noqa: PLC0415  as above

    settings = Settings(
        seconds=seconds_of(given["budget"]) if given["budget"] else None,
        cases=given["cases"],
        timeout=seconds_of(given["timeout"]) if given["timeout"] else None,
        seed=given["seed"],
        device="cuda" if given["cuda"] else "cpu",
        dtypes=given["dtypes"],
        strict=given["strict"],
    )
    kept = {
        name: given[name] for name in ("project", "priority", "finding", "checkout", "good", "key") if name in given
    }
    with sendable():
        return JobRequest(kind=kind, target=target, sources=sources, settings=settings, **kept)


@contextmanager
def sendable() -> Iterator[None]:
    """Say in one sentence what of a request no server would take."""
    from pydantic import ValidationError  # noqa: PLC0415  as above

    from kernel_assay.fuzz.service.protocol import sentence_of  # noqa: PLC0415

    try:
        yield
    except ValidationError as error:
        raise UsageError(sentence_of(error, "the request")) from error


def sent_of(
    subjects: Any, references: tuple[str, ...], include: tuple[Path, ...]
) -> tuple[Sources | None, tuple[str, ...]]:
    """The files of kernels and references, and how they are called there; none, if there are none."""
    from kernel_assay.fuzz.service.protocol import Sources  # noqa: PLC0415  as above

    files: dict[str, str] = {}
    names = []
    for text in [*map(str, subjects), *references, *map(str, include)]:
        path, colon, name = text.partition(":")
        if files.setdefault(Path(path).name, body := _read(Path(path))) != body:
            raise UsageError(f"two files are called {Path(path).name}: rename one")
        names.append(f"{Path(path).name}{colon}{name}")
    with sendable():
        return Sources(files=files) if files else None, tuple(names[: len(names) - len(include)])


def folder_of(places: tuple[Path, ...]) -> tuple[Sources, str]:
    """The files of a folder, or of a pair, in a folder that is called as theirs: it names what is found in them."""
    from kernel_assay.fuzz.service.protocol import Sources  # noqa: PLC0415  as above

    where = places[0] if places[0].is_dir() else places[0].parent
    name = re.sub(r"[^A-Za-z0-9_-]", "_", where.resolve().name)[:50] or "problem"
    if len(places) == 1 and places[0].is_dir():
        paths = [p for p in sorted(places[0].rglob("*")) if p.suffix in SENT_SUFFIXES and p.is_file()]
        files = {str(p.relative_to(places[0])): _read(p) for p in paths if ".git" not in p.parts}
    else:
        files = {place.name: _read(place) for place in places}
    if len(files) < 2:
        raise UsageError(f"{places[0]} is no problem with its solution: name a folder, a pair of files, or an --op")
    with sendable():
        return Sources(files={f"{name}/{path}": text for path, text in files.items()}), name


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


BAD = frozenset({"wrong", "fails"})
GOOD = frozenset({"right", "right_if_ordinary", "fixed", "passes"})


def told(client: Client, job: Job, *, as_json: bool, advice: str = "", waited: bool = False) -> int:
    """Say how a job stands, and what to do about it; the exit code of that.

    waited: a verdict was asked for, and who runs still has none.
    """
    from kernel_assay.fuzz.service.protocol import OVER, JobState  # noqa: PLC0415  as above

    if waited and job.state not in OVER:
        advice = f"there is no verdict yet: {program()} remote show {job.id}"
    say(job.model_dump_json(indent=2) if as_json else "\n".join(_lines(job, advice, _bugs(client, job))))
    if job.state is not JobState.DONE:
        return UNJUDGED if waited or job.state in OVER or job.state is JobState.QUEUED else 0
    return FOUND if job.verdict in BAD else 0 if job.verdict in GOOD else UNJUDGED


def followed(client: Client, job: Job) -> Job:
    """The job at its end; how far it is, and each finding that is stored, is told on standard error until then."""
    said: tuple[Any, ...] = ()
    known: set[str] = set()
    for at in client.follow(job.id):
        for one in [name for name in at.findings if name not in known]:
            known.add(one)
            say(f"finding   {visible(client.finding(one, job.project).title)}; {program()} pull {one}", err=True)
        news = (at.started, len(at.findings), at.attempts)
        if at.ended is None and (news != said[1:] or monotonic() - said[0] >= NEWS_SECONDS):
            said = (monotonic(), *news)
            say(". ".join(filter(None, (_so_far(at), _untaken(client, at)))), err=True)
    return at


def _so_far(job: Job) -> str:
    p = job.progress
    if not p.judged:
        return _state(job)
    looked = ", failures are looked into" if p.findings > len(job.findings) else ""
    return f"{_state(job)}, {p.judged:,} outputs judged, {count(len(job.findings), 'finding')} stored{looked}"


def _state(job: Job) -> str:
    return job.state.value + (f", {job.position} before it" if job.position is not None else "")


def _untaken(client: Client, job: Job) -> str:
    """Say that no worker takes a job that waits, and how to start one; empty: one does, or may."""
    from kernel_assay.fuzz.service.client import untaken  # noqa: PLC0415  as above

    return untaken(job, client.workers()) if job.state.value == "queued" else ""


def _bugs(client: Client, job: Job) -> list[list[str]]:
    """The ids of a job's findings, those of one bug together; each alone, where they may not be read."""
    from kernel_assay.fuzz.service.client import ServiceError  # noqa: PLC0415  as above

    try:
        records = [client.finding(one, job.project).record for one in job.findings[:MOST_TOLD]]
    except ServiceError:
        return [[one] for one in job.findings[:MOST_TOLD]]
    return [list(dict.fromkeys(f.id for f in bug)) for bug in grouped(records, lambda _: True)]


def _lines(job: Job, advice: str, bugs: Iterable[list[str]]) -> Iterator[str]:
    state = _state(job)
    yield f"{visible(job.verdict) or state}: {job.kind.value} {job.id}" + (f" ({state})" if job.verdict else "")
    if job.reason:
        yield f"reason    {visible(job.reason)}"
    if advice:
        yield f"advice    {advice}"
    if job.message:
        yield f"says      {visible(job.message)}"
    if job.progress.judged:
        yield f"tried     {job.progress.cases:,} cases, {job.progress.judged:,} outputs judged"
    for first, *others in bugs:
        yield f"finding   {program()} pull {first}" + (f" (also {', '.join(others)})" if others else "")
    if job.artifacts:
        yield f"texts     {visible(', '.join(job.artifacts))}"


@command.command("list")
@click.argument("what", type=click.Choice(["jobs", "findings", "projects", "workers"]), default="jobs")
@click.option("--state", metavar="STATE", help="Only those in this state.")
@click.option("--project", metavar="NAME")
@click.option("--limit", type=AtLeast(1, 500), default=50, show_default=True)
@asks
def list_command(*, client: Client, what: str, state: str | None, project: str | None, limit: int) -> None:
    """List jobs, findings, projects or workers, the latest first."""
    chosen: dict[str, Any] = {"state": state, "project": project, "limit": limit}
    if what == "jobs":
        head: tuple[str, ...] = ("job", "kind", "state", "verdict", "project", "about", "")
        found = client.jobs(**chosen).items
        rows: list[tuple[str, ...]] = [
            (j.id, j.kind.value, j.state.value, j.verdict, j.project or "", _about(j), j.reason or j.message)
            for j in found
        ]
    elif what == "findings":
        head = ("finding", "state", "kernel", "verdict", "project", "")
        listed = client.findings(**chosen).items
        rows = [(f.id, f.state.value, f.subject, f.kind, f.project or "", f.title) for f in listed]
    elif what == "projects":
        head = ("project", "commit", "open", "fixed", "last search", "repository")
        rows = [_project(one) for one in client.projects()]
    else:
        head = ("worker", "there", "tasks", "GPUs", "drained", "seen, UTC")
        rows = [
            (
                w["name"],
                "yes" if w["alive"] else "no",
                *(str(len(w[k])) for k in ("tasks", "devices")),
                str(w["drain"]),
                utc(w["seen"]),
            )
            for w in client.workers()
        ]
    say(table(head, [tuple(visible(cell[:90]) for cell in row) for row in rows]) if rows else f"no {what}")


def _about(job: Job) -> str:
    """The finding, or the kernels, or what else a job is about."""
    commit = f"commit {job.checkout.commit[:12]}" if job.checkout else ""
    return job.finding or ", ".join((*job.target.subjects, *job.target.ops)) or job.target.folder or commit


def _project(told: ProjectTold) -> tuple[str, str, str, str, str, str]:
    unresolved = sum(told.findings.get(state, 0) for state in ("new", "open", "reopened"))
    counts = str(unresolved), str(told.findings.get("fixed", 0))
    return told.name, told.head[:12], *counts, told.last.state.value if told.last else "none", told.project.repository


@command.command("show")
@click.argument("name", metavar="JOB|FINDING")
@click.option("--text", metavar="NAME", help="A text that a job made, as report.txt; or `reproducer` of a finding.")
@click.option("--json", "as_json", is_flag=True)
@of_project
@asks
def show_command(*, client: Client, name: str, text: str | None, as_json: bool, project: str | None) -> int:
    """Show a job, or a finding with its life."""
    from kernel_assay.fuzz.service.client import ServiceError  # noqa: PLC0415  as above

    try:
        job = client.job(name)
    except ServiceError as error:
        if error.status not in {404, 422}:
            raise
        finding = client.finding(name, project)
        if text or as_json:
            say(readable(client.reproducer(name, project)) if text else finding.model_dump_json(indent=2))
            return 0
        what = visible(f"{finding.subject}: {finding.title}")
        until = f" until {finding.until:%Y-%m-%d %H:%M}" if finding.until else ""
        say(f"{finding.state.value} since {finding.since:%Y-%m-%d %H:%M}{until}: {what}")
        say(f"smallest  {visible(finding.record.case.label)}")
        for line in [*(f"condition {gate}" for gate in finding.record.gates), *(map(_event, finding.events))]:
            say(visible(line))
        say(f"replay    {program()} pull {finding.id}")
        return 0
    if text:
        say(readable(client.artifact(name, text)))
        return 0
    return told(client, job, as_json=as_json, advice=_untaken(client, job))


def readable(text: str) -> str:
    """A text of a stranger, of many lines, without what a terminal obeys."""
    return re.sub(r"[^\n\t]+", lambda found: visible(found[0]), text)


def _event(event: dict[str, str]) -> str:
    return f"{event.get('at', '')[:16]} {event.get('what', '')} {event.get('words', '')}".rstrip()


@command.command("cancel")
@click.argument("name", metavar="JOB")
@asks
def cancel_command(*, client: Client, name: str) -> None:
    """Take a job back; what runs is stopped within seconds."""
    say(f"{name} {client.cancel(name).state.value}")


@command.command("log")
@click.argument("name", metavar="JOB")
@click.option("--follow", is_flag=True, help="Until the job is over.")
@asks
def log_command(*, client: Client, name: str, follow: bool) -> None:
    """Print the log of a job."""
    text, end = client.log(name)
    click.echo(readable(text), nl=False)
    for _ in client.follow(name) if follow else ():
        text, end = client.log(name, end)
        click.echo(readable(text), nl=False)


@click.command("pull")
@click.argument("name", metavar="FINDING")
@click.option("--checkout", type=click.Path(path_type=Path, exists=True, file_okay=False), help="With its files.")
@click.option("--trust", is_flag=True, help="Also with a reference that was sent: it will run with your rights.")
@of_project
@corpus_option
@asks
def pull_command(
    *, client: Client, name: str, checkout: Path | None, trust: bool, project: str | None, corpus: Place
) -> None:
    """Take a finding of a server into the corpus here, with the files that it needs.

    Its kernel will run closed in. A reference of its own does not: read it, and then say --trust.
    """
    from kernel_assay.fuzz.service.pulling import pulled  # noqa: PLC0415  an extra that need not be installed

    with open_store(corpus) as store:
        finding = pulled(client, name, store, checkout, project=project, trust=trust)
    what = visible(f"{finding.subject.key}: {finding.verdict.message}")
    files = f"\nfiles     {visible(finding.subject.path)}" if finding.subject.is_own else ""
    say(f"{what}\nstored    in {store.name}{files}\nreplay    {program()} replay {finding.id}{elsewhere(corpus)}")


command.add_command(pull_command)
