"""The page of times, its pictures in numbers, and the same pictures as SVG and PNG."""

import sys
import types
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from _timing_run import SIZES, SPEEDS, timing_run

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.timing import Change
from kernel_assay.reports.page.timing import compared_sentence, plots, sentence, speed_ups, tables, trouble_of
from kernel_assay.reports.page.timing_plots import distribution, roofline, time_over_size
from kernel_assay.reports.timing import page, svg, write_png
from kernel_assay.reports.words import DASH, time_of


def test_the_sentence_says_what_matters_most():
    run = timing_run()
    assert {one.comparison.change for one in run.compared} == {Change.FASTER}
    assert sentence(run) == "4 comparisons with an earlier version: 4 faster"
    assert sentence(run.but(compared=())) == "softmax/torch is the fastest on 4 of 4 cases"
    assert sentence(run.but(compared=(), timed=run.timed[:1])) == "softmax/my_softmax timed on 1 case"
    assert sentence(run.but(compared=(), timed=run.timed[-1:])) == "Nothing could be timed"
    wrong = run.timed[0].but(finding="it is faster than this machine can be")
    assert sentence(run.but(timed=(wrong, *run.timed[1:]))) == "softmax/my_softmax: wrong, or times that cannot be true"
    assert "1 comparison" in compared_sentence(run.compared[:1])


def test_tables_show_every_subject_and_why_times_do_not_count():
    found = tables(timing_run())
    assert len(found) == len(SIZES)
    assert [line.subject for line in found[0].lines if line.best] == ["softmax/torch"]
    assert found[0].lines[-1].trouble == "it crashed: killed by SIGSEGV"
    assert set(found[0].lines[-1].cells) == {DASH}
    assert all(trouble_of(one) == "" for one in timing_run().timed[:-1])


def test_speed_ups_are_over_the_baseline():
    found = speed_ups(timing_run())
    assert found.base == "softmax/torch"
    assert found.subjects == ("softmax/my_softmax", "softmax/my_softmax@HEAD~1", "softmax/numpy_float32")
    label, cells = found.rows[-1]
    assert "256x4096" in label
    assert [float(cell[:-1]) for cell in cells] == pytest.approx([0.7, 0.66, 0.28], abs=0.015)
    assert speed_ups(timing_run().but(timed=timing_run().timed[:1])) is None


def test_the_roofline_lies_above_what_is_below_it():
    plot = roofline(timing_run())
    roof, *series = plot.traces
    assert roof.name == "the roofline of this machine"
    assert [trace.name for trace in series] == [f"softmax/{name}" for name in SPEEDS]
    (x0, y0), (x1, y1), (_, y2) = (tuple(map(float, spot.split(","))) for spot in roof.line[1:].split())
    assert y0 > y1 == y2, "the slope of the bandwidth, and then the largest product"
    for mark in (mark for trace in series for mark in trace.marks.split("M")[1:]):
        x, y = map(float, mark.split("m")[0].split())
        assert y > y0 + (x - x0) * (y1 - y0) / (x1 - x0)
    assert "softmax/torch reaches" in plot.words
    assert roofline(timing_run(peaks=None)) is None


def test_time_over_size_rises_and_needs_two_sizes():
    (plot,) = time_over_size(timing_run())
    for trace in plot.traces:
        spots = [tuple(map(float, spot.split(","))) for spot in trace.line[1:].split()]
        assert len(spots) == len(SIZES)
        assert all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(spots))
    assert time_over_size(timing_run(sizes=(64,))) == []


def test_every_round_is_a_stroke():
    run = timing_run(sizes=(64,))
    plot = distribution("x", run.timed)
    assert len(plot.traces) == len(SPEEDS)
    assert all(1 < trace.marks.count("M") <= 144 for trace in plot.traces)
    assert "softmax/torch 13.9 µs" in plot.words
    assert distribution("x", run.timed[-1:]) is None


def test_the_page_holds_all_of_it_and_nothing_from_elsewhere():
    text = page(timing_run(command="time <b>"))
    assert text.count("<figure") == 2 + len(SIZES)
    for words in ("Compared with an earlier version", "Speed-up over softmax/torch", "held down", "time &lt;b&gt;"):
        assert words in text
    assert "//" not in text.replace("// ", "")
    assert "<b>" not in text.partition("Circumstances</h2>")[2]
    assert page(timing_run()) == page(timing_run())


def test_a_run_without_times_is_a_page_without_pictures():
    run = timing_run(sizes=(64,), compared=())
    run = run.but(timed=run.timed[-1:], peaks=None)
    assert plots(run) == []
    assert "<figure" not in page(run)
    with pytest.raises(UsageError, match="no pictures"):
        svg(run)


def test_the_picture_of_a_png_knows_its_colours():
    text = svg(timing_run())
    root = ET.fromstring(text)
    assert root.tag.endswith("svg")
    assert "var(" not in text
    assert "light-dark" not in text
    assert ".s1 { color: #0a4fb3; }" in text


def test_png_is_drawn_by_a_library_or_refused(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(UsageError, match="pip install 'kernel-assay\\[png\\]'"):
        write_png(tmp_path / "x.png", timing_run())
    drawn = types.SimpleNamespace(svg_to_bytes=lambda svg_string, zoom: [len(svg_string) % 7, zoom])
    monkeypatch.setitem(sys.modules, "resvg_py", drawn)
    write_png(tmp_path / "x.png", timing_run())
    assert (tmp_path / "x.png").read_bytes()[1] == 2
    with pytest.raises(UsageError, match="cannot be used"):
        write_png(tmp_path / "nowhere" / "x.png", timing_run())


def test_durations_are_in_the_unit_that_suits_them():
    assert [time_of(t) for t in (2.0, 0.0123, 4.5e-5, 7e-9, 0.9999)] == ["2 s", "12.3 ms", "45 µs", "7 ns", "1 s"]
    assert time_of(float("nan")) == DASH
