"""JSON for programs; its schema is reports/schema.json."""

from kernel_assay.reports.book import Book
from kernel_assay.reports.form import Format
from kernel_assay.reports.json_model import report, to_json


def render(book: Book) -> str:
    """The whole report."""
    return to_json(report(book)) + "\n"


FORMAT = Format("json", "JSON for programs (schema: kassay report --schema).", render)
