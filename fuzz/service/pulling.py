"""A finding of a server, with the files that it needs, in a local corpus: what `pull` does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.storage.protocol import CorpusStore
from kernel_assay.fuzz.judge import FOLDER
from kernel_assay.fuzz.service.client import Client, ServiceError
from kernel_assay.fuzz.service.protocol import MADE, SENT, FindingTold, Sources
from kernel_assay.fuzz.service.queue.ownership import judged_by
from kernel_assay.fuzz.service.work.portable import BUNDLE


def pulled(
    client: Client,
    name: str,
    store: CorpusStore,
    checkout: Path | None,
    *,
    project: str | None = None,
    trust: bool = False,
) -> Finding:
    """Store a finding of the server here; its files come with it, or are those of a checkout.

    trust: also one with a reference that was sent, which whoever replays it runs with all rights. Raises UsageError for
    another such one, which names other files, or has none, and for files that cannot be written.
    """
    told = client.finding(name, project)
    text, files = told.record.canonical(), _bundle(client, told)
    if files is None and (SENT in text or MADE in text) and checkout is None:
        raise UsageError(f"{told.id} comes without files: if they are those of a commit, name its --checkout")
    if not isinstance(store.place, Path):
        raise UsageError(f"a finding comes with files, which lie beside a corpus: name a folder, not {store.name}")
    folder = (store.place / FOLDER / told.id).resolve()
    there = {SENT: str(checkout.resolve() if checkout else folder / "sources"), MADE: str(folder / "adapters")}
    for path, body in (files.files if files and checkout is None else {}).items():
        _write(folder / path, _here(body, there))
    finding = Finding.model_validate(json.loads(_here(text, there)))
    _check(finding, [Path(place) for place in there.values()], trust=trust or checkout is not None)
    store.prepare()
    return store.save_finding(finding)


def _check(finding: Finding, folders: Sequence[Path], *, trust: bool) -> None:
    """Raise UsageError for what nobody should run who has this from somebody else."""
    subject = finding.subject
    if subject.python:
        raise UsageError(f"{finding.id} names a program to run it with ({subject.python}), which no worker may")
    reference = judged_by(finding)
    for file in filter(None, (subject.path if subject.is_own else "", reference)):
        if not any(Path(file).resolve().is_relative_to(folder.resolve()) for folder in folders):
            raise UsageError(f"{finding.id} names {file}, which is none of its files")
    if reference and not trust:
        raise UsageError(
            f"{finding.id} has a reference of its own, which will run with your rights: read {reference}, "
            "then pull it with --trust"
        )


def _bundle(client: Client, told: FindingTold) -> Sources | None:
    """The files that were sent with the job that has met it. Raises UsageError if a worker reported what is none."""
    try:
        return Sources.model_validate_json(client.artifact(told.job, BUNDLE))
    except ServiceError as error:
        if error.status == 404:
            return None
        raise
    except ValidationError as error:
        said = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise UsageError(f"the files of {told.id}, as a worker reported them, cannot be taken: {said}") from error


def _here(text: str, there: dict[str, str]) -> str:
    for name, place in there.items():
        text = text.replace(name, place)
    return text


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", errors="surrogatepass")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror})") from error
