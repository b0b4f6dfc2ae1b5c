"""The process that becomes a program: closed in where the system allows it, in the folder it was started from."""

from __future__ import annotations

import os
import sys

from kernel_assay.corpus.process.child import taken
from kernel_assay.corpus.process.parent_death import die_with_parent
from kernel_assay.kernels.worker.enclosure import Enclosure


def main() -> None:
    """Become the program that the settings name. They are sys.argv[1]: see `run`."""
    settings = taken(sys.argv[1])
    die_with_parent()
    if settings["enclosure"]:
        Enclosure(**settings["enclosure"]).close_in()
    words = [settings["name"], *settings["arguments"]]
    os.execve(settings["executable"], words, {**os.environ, **settings["environment"]})  # noqa: S606  no shell is wanted
