"""The forms a report can have. One file each in reports/formats/, found by its name: the folder is the list."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.reports import formats as folder
from kernel_assay.reports.form import Format


@cache
def formats() -> dict[str, Format]:
    """All forms by name. Raises InternalError if a file and its format have different names."""
    found: dict[str, Format] = {}
    for module in sorted(iter_modules(folder.__path__), key=lambda m: m.name):
        form: Format = import_module(f"kernel_assay.reports.formats.{module.name}").FORMAT
        if form.name != module.name:
            raise InternalError(f"reports/formats/{module.name}.py must define {module.name!r}, not {form.name!r}")
        found[form.name] = form
    return found


def write(path: Path, text: str) -> None:
    """Write a report, making its folder. Raises UsageError if the disk refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror})") from error
