"""The page of a duel: tables, and pictures of how soon each tool found what it found."""

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from kernel_assay.reports.formats.html import CONTROL, asset, digest, pages
from kernel_assay.reports.page.plots import Plot, Tick, Trace
from kernel_assay.reports.page.timing_plots import BOTTOM, HEIGHT, LEFT, MARKS, RIGHT, TOP, WIDTH, _with_legend

HEADS = ["tool", "found", "accused", "within claims", "alone", "late", "errors", "start"]
"""Of the table of tools: `within claims` are accused, but only this project can know that they are right."""
LEAST = 0.05
"""Seconds at which the time axis begins."""
STEPS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0)
TONES = (1, 2, 3, 4, 6, 5)
"""Colours in their order: the two that are alike are far apart."""


def page(result: dict[str, Any], left: Sequence[str] = ()) -> str:
    """The whole page; the same result gives the same text. left: sentences about what there was no time for."""
    template = Path(__file__).with_name("duel.html.j2").read_text("utf-8")
    script = asset("script.js")
    text = pages().from_string(template).render(
        r=result, s=result["summary"], plots=plots(result), script=script, script_digest=digest(script),
        style=asset("style.css"), facts=facts(result), left=left,
        right=len({a["kernel"] for a in result["answers"] if a["kind"] == "right"}), heads=HEADS,
        rows=[tool_row(result, tool) for tool in result["summary"]["found"]],
        most=max((len(one["kernels"]) for one in result["summary"]["sets"]), default=1),
    )  # fmt: skip
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def tool_row(result: dict[str, Any], tool: str) -> list[str]:
    """A line of the table of tools; the last number is the median time until a tool begins to search."""
    s = result["summary"]
    starts = [a["start"] for a in result["answers"] if a["tool"] == tool and a.get("start") is not None]
    return [
        tool, f"{s['found'][tool]} of {s['wrong']}", f"{len(s['accused'][tool])} of {s['right'][tool]}",
        f"{len(s['claims_accused'][tool])} of {s['claims_right'][tool]}", str(len(s["only"][tool])),
        str(s["late"][tool]), str(s["errors"][tool]), f"{median(starts):.1f} s" if starts else "",
    ]  # fmt: skip


def facts(result: dict[str, Any]) -> list[tuple[str, str]]:
    """The circumstances."""
    e = result["environment"]
    packages = ", ".join(f"{name} {version}" for name, version in e["packages"].items())
    return [
        ("processor", e["processor"] or e["machine"]), ("machine", result["machine"]), ("Python", e["python"]),
        ("packages", packages), ("seconds for each tool and kernel", f"{result['seconds']:g}"),
        ("seconds before the search that are free", f"{result['allowance']:g}"),
        ("seed", f"{result['seed']}, trials {result['trials']}, tools at once {result['jobs']}"),
        ("the whole duel", f"{result['took']:.0f} s"),
        ("Kernel Assay", f"{result['version']}, revision {result['revision'] or 'not known'}"),
        *((tool, shlex.join(one["command"])) for tool, one in result["tools"].items()),
    ]  # fmt: skip


def plots(result: dict[str, Any]) -> list[Plot]:
    """Bugs found over time, and the share of trials in which a bug is not found yet."""
    counted = {k for one in result["summary"]["sets"] for k in one["kernels"]}
    times: dict[str, list[float]] = {}
    trials: dict[str, int] = {}
    for a in result["answers"]:
        if a["kernel"] in counted:
            trials[a["tool"]] = trials.get(a["tool"], 0) + 1
            times.setdefault(a["tool"], []).extend([a["seconds"]] if a["found"] else [])
    found = {t: [(s, float(n)) for n, s in enumerate(sorted(some), 1)] for t, some in times.items()}
    left = {t: [(s, 1 - n / trials[t]) for s, n in some] for t, some in found.items()}
    most = max(trials.values(), default=1)
    counts = [(n, str(n)) for n in range(0, most + 1, math.ceil(most / 4))]
    shares = [(i / 4, f"{25 * i} %") for i in range(5)]
    return [
        stairs(found, 0.0, counts, "bugs found", result["seconds"]),
        stairs(left, 1.0, shares, "share not found yet", result["seconds"]),
    ]


def stairs(
    series: dict[str, list[tuple[float, float]]], begin: float, ticks: Sequence[tuple[float, str]], up: str, end: float
) -> Plot:
    """Steps over a logarithmic time axis up to `end`, a series a tool; begin: what each is before its first step."""
    most = max([1.0, begin, *(v for some in series.values() for _, v in some)])
    last = max(end, 2 * LEAST)

    def x(seconds: float) -> float:
        share = math.log(min(max(seconds, LEAST), last) / LEAST) / math.log(last / LEAST)
        return LEFT + share * (WIDTH - RIGHT - LEFT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / most * (HEIGHT - BOTTOM - TOP)

    traces = []
    for number, (name, some) in enumerate(series.items()):
        path = f"M{LEFT},{y(begin):.1f}" + "".join(f"H{x(s):.1f}V{y(v):.1f}" for s, v in some) + f"H{x(last):.1f}"
        tone = TONES[number % len(TONES)]
        spots = [(s, v) for s, v in some] + [(last, some[-1][1] if some else begin)]
        traces.append(Trace(name, tone, path, "".join(f"M{x(s):.1f} {y(v):.1f}{MARKS[tone - 1]}" for s, v in spots)))
    said = "; ".join(f"{name}: {some[-1][1] if some else begin:g} in the end" for name, some in series.items())
    plot = Plot(
        width=WIDTH, height=HEIGHT, left=LEFT, right=WIDTH - RIGHT,
        across=tuple(Tick(round(x(s)), f"{s:g} s") for s in STEPS if LEAST < s <= last),
        up=tuple(Tick(round(y(value)), label) for value, label in ticks if value <= most),
        across_name="seconds of search", up_name=up, words=f"{up.capitalize()} over time. {said}.",
    )  # fmt: skip
    return _with_legend(plot, traces)
