"""Write a run of `time` as one self-contained page, or its pictures as PNG."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.timing import TimingRun
from kernel_assay.corpus.storage.atomic_files import named_trouble
from kernel_assay.reports.formats.html import CONTROL, asset, digest, pages
from kernel_assay.reports.page import timing

GAP, TITLE = 20, 24
"""Pixels around the pictures of a PNG, and for the name above each."""
FONTS = "'DejaVu Sans', 'Liberation Sans', 'Noto Sans', Arial, Helvetica, sans-serif"
_PAIR = re.compile(r"light-dark\(([^,()]+),[^()]+\)")
_VARIABLE = re.compile(r"(--[\w-]+):\s*([^;]+);")


def page(run: TimingRun) -> str:
    """The whole page; the same run gives the same text."""
    script = asset("script.js")
    text = (
        pages()
        .get_template("timing.html.j2")
        .render(
            run=run,
            sentence=timing.sentence(run),
            tables=timing.tables(run),
            head=timing.HEAD,
            tones=timing.TONES,
            speed_ups=timing.speed_ups(run),
            plots=timing.plots(run),
            facts=timing.facts(run),
            script=script,
            script_digest=digest(script),
            style=asset("style.css"),
        )
    )
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def svg(run: TimingRun) -> str:
    """All pictures below one another, in light colours. Raises UsageError if there are none."""
    plots = timing.plots(run)
    if not plots:
        raise UsageError("there are no pictures: nothing could be timed")
    placed, y = [], GAP + TITLE // 2
    for plot in plots:
        placed.append((GAP, y, plot))
        y += plot.height + plot.legend + TITLE + GAP
    width = 2 * GAP + max(plot.width for plot in plots)
    return pages().get_template("timing.svg.j2").render(placed=placed, width=width, height=y, style=_plain_style())


def _plain_style() -> str:
    """Rules for pictures from the page's style, for programs that know neither its variables nor light-dark()."""
    style = _PAIR.sub(r"\1", asset("style.css"))
    known = {**dict(_VARIABLE.findall(style)), "--sans": FONTS}
    rules = [line for line in style.splitlines() if re.match(r"svg|\.(rule|axis|s\d|trace|marks|rug|box)\b", line)]
    return re.sub(r"var\((--[\w-]+)\)", lambda found: known[found[1]], "\n".join(rules))


def find_painter() -> Any:
    """The library that draws SVG. Raises UsageError if it is not installed."""
    try:
        return import_module("resvg_py")
    except ImportError as error:
        raise UsageError("--png needs resvg-py: pip install 'kernel-assay[png]', or take --html") from error


def write_png(path: Path, run: TimingRun) -> None:
    """Write the pictures, twice as large as on the page. Raises UsageError if there are none, or the disk refuses."""
    drawn = find_painter().svg_to_bytes(svg_string=svg(run), zoom=2)
    with named_trouble(path):
        path.write_bytes(bytes(drawn))
