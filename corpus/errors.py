"""Three kinds of trouble that never mix.

Two are exceptions, one is a record:

    Exception
    ├── UsageError      about the request: one clear sentence, exit code 2
    ├── InternalError   about this tool: stops the campaign, exit code 3, never filed as a finding
    └── (a Verdict is not an exception: it is about the subject, see corpus/model/verdict.py)
"""

from collections.abc import Iterator
from contextlib import contextmanager


class UsageError(Exception):
    """The user asked for something that cannot be done; the message says what, why and what to do instead."""


@contextmanager
def about(place: str) -> Iterator[None]:
    """Whatever UsageError is raised within begins with the place that it speaks of, such as the name of a file."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error


class InternalError(Exception):
    """The tool broke a promise of its own; never blamed on a subject."""
