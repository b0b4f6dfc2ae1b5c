"""One self-contained page: no network, no fonts from outside, readable without scripts."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.reports.book import Book
from kernel_assay.reports.bugs import grouped
from kernel_assay.reports.form import Format
from kernel_assay.reports.page.coverage import coverage_of
from kernel_assay.reports.page.finding import Sheet, meanings, sheet
from kernel_assay.reports.page.matrix import cells_of
from kernel_assay.reports.page.subjects import anchor, kernels_of
from kernel_assay.reports.page.summary import (
    choices,
    circumstances,
    environment,
    facts,
    figures,
    groups,
    matrix_facts,
    planted,
    remarks,
    sentence,
    tone_of,
)
from kernel_assay.reports.reproducer.script import reproducer
from kernel_assay.reports.words import count, figure, moment, short

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""What kernels print may hold; HTML has no place for it."""


def render(book: Book) -> str:
    """The whole page; the same book gives the same text."""
    templates = pages()
    c = book.campaign
    made = groups(book)
    text = templates.get_template("page.html.j2").render(
        book=book,
        campaign=c,
        tone=tone_of(book),
        sentence=sentence(book),
        cells=cells_of(book.matrix) if book.matrix else None,
        facts=facts(c) if c else matrix_facts(book.matrix) if book.matrix else [],
        circumstances=environment(book.matrix.environment) if book.matrix else circumstances(c, book.findings),
        figures=figures(book),
        remarks=list(remarks(book)),
        groups=made,
        choices=choices(made),
        planted=planted(book),
        coverage=coverage_of(c) if c else None,
        kernels=kernels_of(c) if c else (),
        known_subjects={s.key for s in c.subjects if not s.planted} if c else set(),
        sheets=sheets(book),
        meanings=meanings(book.findings),
        script=asset("script.js"),
        script_digest=digest(asset("script.js")),
        style=asset("style.css"),
    )
    visible = CONTROL.sub(lambda found: chr(0x2421 if found[0] == "\x7f" else 0x2400 + ord(found[0])), text)
    return visible.encode("utf-8", "replace").decode("utf-8")


def sheets(book: Book) -> list[Sheet]:
    """All findings in the order in which the page lists them; planted ones last."""
    order = [[e.finding for e in group.entries] for group in groups(book)] + grouped(book.planted, book.news)
    return [sheet(book, finding, group, _reproducer(finding)) for group in order for finding in group]


def _reproducer(finding: Finding) -> str:
    """A finding whose recipe cannot be made any more still has its section."""
    try:
        return reproducer(finding)
    except UsageError as error:
        return f"# There is no reproducer: {error}\n"


@cache
def pages() -> Environment:
    """Templates: everything from a record is escaped; a name that a template gets wrong is an error."""
    made = Environment(
        loader=PackageLoader("kernel_assay.reports", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "counted": count,
        "figure": figure,
        "moment": moment,
        "short": short,
        "anchor": anchor,
        "code": _code,
    }
    return made


def _code(text: str) -> Markup:
    """Escaped for the inside of an element, where quotes need no escape: programs are full of them."""
    return Markup(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))  # noqa: S704 (escaped here)


def asset(name: str) -> str:
    """The text of a file that is no template."""
    templates = pages()
    assert templates.loader is not None
    return templates.loader.get_source(templates, name)[0]


def digest(text: str) -> str:
    """The digest by which a browser knows the one script that may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


FORMAT = Format("html", "One self-contained page: findings, coverage, kernels, reproducers.", render)
