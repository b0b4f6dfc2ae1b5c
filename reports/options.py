"""Options that the commands of fuzz and of reports share."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from kernel_assay.corpus.errors import UsageError


def existing_corpus(context: click.Context, option: click.Parameter, folder: Path) -> Path:
    """The folder; one that was named and is not there is refused, for it would look as if nothing had been found."""
    named = context.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT
    if named and not folder.is_dir():
        what = "is no folder" if folder.exists() else "does not exist"
        raise UsageError(f"the corpus {folder} {what}; name a folder in which a run has left something")
    return folder
