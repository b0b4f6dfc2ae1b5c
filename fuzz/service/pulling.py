"""A finding of a server, with the files that it needs, in a local corpus: what `pull` does."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.storage.protocol import CorpusStore
from kernel_assay.fuzz.judge import FOLDER
from kernel_assay.fuzz.service.client import Client, ServiceError
from kernel_assay.fuzz.service.protocol import MADE, SENT, FindingTold, Sources
from kernel_assay.fuzz.service.work.portable import BUNDLE


def pulled(client: Client, name: str, store: CorpusStore, checkout: Path | None) -> Finding:
    """Store a finding of the server here; its files come with it, or are those of a checkout.

    Raises UsageError if it has none, and for files that cannot be written.
    """
    told = client.finding(name)
    text, files = told.record.canonical(), _bundle(client, told)
    if files is None and (SENT in text or MADE in text) and checkout is None:
        raise UsageError(f"the files of {told.id} are those of a commit: name a checkout of it with --checkout")
    if not isinstance(store.place, Path):
        raise UsageError(f"a finding comes with files, which lie beside a corpus: name a folder, not {store.name}")
    folder = (store.place / FOLDER / told.id).resolve()
    there = {SENT: str(checkout.resolve() if checkout else folder / "sources"), MADE: str(folder / "adapters")}
    for path, body in (files.files if files and checkout is None else {}).items():
        _write(folder / path, _here(body, there))
    finding = Finding.model_validate(json.loads(_here(text, there)))
    store.prepare()
    return store.save_finding(finding)


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
