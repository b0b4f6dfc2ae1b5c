"""Opens the store of a place: a folder, or a database."""

from __future__ import annotations

from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.corpus.storage.place import DatabaseUrl, Place, place_of
from kernel_assay.corpus.storage.protocol import CorpusStore


def open_store(place: Place | str) -> CorpusStore:
    """Open the store of a folder, `sqlite:///FILE` or `postgresql://...`; nothing is created by that.

    Raises UsageError for a URL of anything else, and where what a database needs is not installed.
    """
    found = place_of(place) if isinstance(place, str) else place
    if isinstance(found, Path):
        return Store(found)
    try:
        from kernel_assay.corpus.storage.sql.store import SqlStore  # noqa: PLC0415  it needs more than a folder does
    except ModuleNotFoundError as error:
        raise UsageError(
            f"a corpus in a database needs {error.name}: pip install 'kernel-assay[sql]', or name a folder"
        ) from error
    return SqlStore(found.url)


def existing(place: Place) -> Place:
    """The place. Raises UsageError if there is nothing: it would look as if nothing had been found."""
    if isinstance(place, DatabaseUrl):
        with open_store(place) as store:
            if not store.exists():
                raise UsageError(f"there is no corpus in {place}; name a database in which a run has left something")
    elif not place.is_dir():
        what = "is no folder" if place.exists() else "does not exist"
        raise UsageError(f"the corpus {place} {what}; name a folder in which a run has left something")
    return place
