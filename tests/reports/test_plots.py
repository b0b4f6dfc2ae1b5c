"""Pictures of the page in numbers, and its words for them."""

import math

from kernel_assay.corpus.model.findings import Picture
from kernel_assay.reports.page.plots import budget_labels, failure_map, growth, histogram, ulps_labels
from kernel_assay.reports.words import DASH, MINUS, TIMES, bits, extent, figure, moment, place, short, span, value


def test_histograms_speak():
    plot = histogram(["0", "1"], [0, 12_000], "distance", "elements")
    assert plot.words == "Elements by distance. 1: 12,000."
    assert plot.bars[0].y == plot.floor
    assert [b.count for b in plot.bars] == ["", "12k"]
    crowded = histogram(ulps_labels(64), [1] * 64, "distance")
    assert [b.count for b in crowded.bars] == [""] * 64
    assert crowded.up


def test_buckets_have_the_names_of_their_bounds():
    assert budget_labels(10)[0] == "0"
    assert budget_labels(10)[1:3] == ["2⁻⁸", "2⁻⁷"]
    assert budget_labels(10)[-1] == "1"
    assert budget_labels(0) == []
    assert ulps_labels(8) == [
        "0",
        "1",
        "2",
        *(f"{low}{DASH}{high}" for low, high in ((3, 4), (5, 8), (9, 16), (17, 32), (33, 64))),
    ]
    assert ulps_labels(64)[-1] == "≤2⁶²"


def test_growth_speaks():
    plot = growth([(0.0, 0.0), (10.0, 80.0), (60.0, 100.0)], "cells")
    assert plot.words == "Cells over time: 100 after 1 min, half of them after 10 s."
    assert growth([], "cells").words == "No cells recorded."
    assert growth([(0.0, 0.0), (0.0, 0.0)], "cells").line


def test_maps_merge_what_is_equal():
    m = failure_map(Picture(lines=("..##", "..#5"), height=2, width=4))
    assert dict(m.levels) == {"a": "M2 0.5h2M2 1.5h1", "5": "M3 1.5h1"}
    assert m.words == "4 of 8 cells hold failures: all rows, columns 2 to 3."
    assert m.caption == f"2 {TIMES} 4, a cell is an element"
    large = failure_map(Picture(lines=("#.", ".."), height=64, width=128))
    assert large.caption == f"64 {TIMES} 128, a cell is 32 {TIMES} 64 elements"
    assert large.words == "1 of 4 cells hold failures: rows 0 to 31, columns 0 to 63."
    assert (large.across, large.down) == ("columns 0 to 127", "rows 0 to 63")
    assert failure_map(Picture(lines=("##",), height=1, width=2)).words == "Every element fails."
    assert failure_map(Picture(lines=("3#",), height=9, width=2)).words == "Every cell holds failures."
    assert failure_map(Picture(lines=("#",), height=1, width=1)) is None
    assert failure_map(Picture(lines=(), height=0, width=3)) is None
    assert failure_map(Picture(lines=("...",), height=1, width=3)).words == "No element of the map fails."


def test_a_worst_map_stays_small():
    lines = tuple("#." * 32 if i % 2 else ".#" * 32 for i in range(32))
    m = failure_map(Picture(lines=lines, height=32, width=64))
    assert sum(len(path) for _, path in m.levels) < 12_000


def test_words():
    assert [short(n) for n in (0, 950, 999.9, 1234, 9_960, 48_211, 3_140_000)] == [
        *("0", "950", "1k", "1.2k", "10k", "48k", "3.1M")
    ]
    assert [figure(x) for x in (None, math.nan, math.inf, -math.inf, 7.25, 1200.0, 8388608, 1 << 62)] == [
        *(DASH, "nan", "∞", f"{MINUS}∞", "7.25", "1,200", "8,388,608", "4.61e+18")
    ]
    assert [value(1 / 3, t) for t in ("float64", "float32", "bfloat16")] == [
        *("0.33333333333333331", "0.333333333", "0.333333")
    ]
    assert (value(7.0, "int8"), value(math.nan, "int8")) == ("7", "nan")
    assert (bits(1, "float16"), bits(0x7FC0, "bfloat16"), bits(9, "float7")) == ("0x0001", "0x7fc0", "0x9")
    assert [span(s) for s in (0.0, 2.0, 2.5, 61, 7200, 90_061, math.inf)] == [
        *("0 s", "2 s", "2.5 s", "1 min 1 s", "2 h", "25 h 1 min", "?")
    ]
    assert (moment("2026-11-21T12:00:00+02:00"), moment("once")) == ("2026-11-21 10:00 UTC", "once")
    assert (place(None), place(()), place((0, 3)), extent(())) == ("", "the only one", "[0, 3]", "scalar")
