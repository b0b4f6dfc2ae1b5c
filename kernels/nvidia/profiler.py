"""NVIDIA's Nsight Compute, ncu: how it is called, and what it measured of each kernel."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kernel_assay.kernels.nvidia.sanitizer import plain_name

PROGRAM = "ncu"
_TIME = "gpu__time_duration.sum"
_DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
_SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
_REGISTERS = "launch__registers_per_thread"
_OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
METRICS = (_TIME, _DRAM, _SM, _REGISTERS, _OCCUPANCY)
_UNITS = {"n": 1e-3, "u": 1.0, "m": 1e3, "": 1e6}
_MICROSECONDS = {f"{prefix}{name}": size for prefix, size in _UNITS.items() for name in ("s", "second")}
"""By what its versions call a unit of time."""
_MOST_LAUNCHES = 64


@dataclass(frozen=True, slots=True)
class Profile:
    """One launch of a kernel. None: it was not measured."""

    kernel: str
    microseconds: float | None
    dram: float | None
    """Percent of what the memory can move."""
    sm: float | None
    """Percent of what the multiprocessors can do."""
    registers: float | None
    """Of a thread."""
    occupancy: float | None
    """Percent of the warps that a multiprocessor has room for."""


def command() -> list[str]:
    """The command line up to the program. The card keeps the clocks that it has: others may be using it."""
    options = ["--clock-control", "none", "--target-processes", "application-only"]
    options += ["--launch-count", str(_MOST_LAUNCHES), "--metrics", ",".join(METRICS)]
    return [PROGRAM, *options, "--csv", "--page", "raw", "--print-units", "base", "--log-file", "log"]


def read(log: str) -> list[Profile]:
    """The kernels of a log, in the order of their launches; what ncu itself says stands between `==`."""
    lines = [line for line in log.splitlines() if line.startswith('"')]
    table = list(csv.DictReader(lines))
    return [_profile(row, units) for row, units in _rows(table)]


def complaint(log: str) -> str:
    """The error, or else the warning, of ncu in its words; empty if it complains about nothing."""
    for mark in ("==ERROR==", "==WARNING=="):
        for line in log.splitlines():
            if line.startswith(mark):
                return line.removeprefix(mark).strip()
    return ""


_Row = dict[str, str]


def _rows(table: Iterable[_Row]) -> Iterator[tuple[_Row, _Row]]:
    """Metrics by name of one launch after the other, and their units; from a column for each, or from a row."""
    units: _Row = {}
    launches: dict[str, tuple[_Row, _Row]] = {}
    for row in table:
        if "Metric Name" in row:
            values, of = launches.setdefault(row["ID"], ({"Kernel Name": row["Kernel Name"]}, {}))
            values[row["Metric Name"]], of[row["Metric Name"]] = row["Metric Value"], row["Metric Unit"]
        elif row["ID"]:
            yield row, units
        else:
            units = row
    yield from launches.values()


def _profile(row: _Row, units: _Row) -> Profile:
    time, scale = _number(row.get(_TIME)), _MICROSECONDS.get(units.get(_TIME, ""), 1e-3)
    dram, sm, registers, occupancy = (_number(row.get(name)) for name in (_DRAM, _SM, _REGISTERS, _OCCUPANCY))
    took = None if time is None else time * scale
    return Profile(plain_name(row["Kernel Name"]), took, dram, sm, registers, occupancy)


def _number(text: str | None) -> float | None:
    """Thousands may be grouped; what was not measured is no number."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None
