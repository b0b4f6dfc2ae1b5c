"""JSON for programs; its schema is reports/schema.json."""

from reports.book import Book
from reports.form import Format
from reports.model import report, to_json


def render(book: Book) -> str:
    """The whole report."""
    return to_json(report(book)) + "\n"


FORMAT = Format("json", "JSON for programs (schema: python -m reports --schema).", render)
