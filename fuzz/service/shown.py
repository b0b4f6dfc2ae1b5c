"""Drawings of a finding that a worker has sent: it fits the schema, and may make no sense all the same."""

from __future__ import annotations

import logging

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.reports.book import Book
from kernel_assay.reports.formats import markdown
from kernel_assay.reports.page.finding import Sheet, sheet
from kernel_assay.reports.reproducer.script import reproducer

LOG = logging.getLogger("kassay.service")


def program_of(record: Finding) -> str:
    """The reproducer, or a comment that says why there is none."""
    try:
        return reproducer(record)
    except UsageError as error:
        return f"# There is no reproducer: {error}\n"
    except Exception:  # whatever a hostile record brings about
        LOG.exception("no reproducer of %s", record.id)
        return "# There is no reproducer: the record of this finding makes no sense\n"


def issue_of(record: Finding, address: str) -> str:
    """A text in Markdown for the issue of a forge, with a link to the finding; empty: its record makes no sense."""
    try:
        return f"{markdown.render(Book((record,)))}\n{address}\n"
    except Exception:  # see above
        LOG.exception("no text for an issue of %s", record.id)
        return ""


def sheet_of(record: Finding) -> Sheet | None:
    """The part of the static page that is about a finding; None: its record makes no sense."""
    try:
        return sheet(Book((record,)), record, (), program_of(record))
    except Exception:  # see above
        LOG.exception("no sheet of %s", record.id)
        return None
