"""Options that the commands of fuzz and of reports share."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from kernel_assay.corpus.storage.opening import existing
from kernel_assay.corpus.storage.place import Place, place_of


class PlaceType(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """A folder, or the URL of a database."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """Any text is one or the other."""
        del param, ctx
        return place_of(value) if isinstance(value, str) else value


def existing_corpus(context: click.Context, option: click.Parameter, place: Place) -> Place:
    """The place; one that was named and where nothing is, is refused."""
    named = context.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT
    return existing(place) if named else place
