"""What ncu prints becomes numbers of each launch, in either of its forms."""

import pytest

from kernel_assay.kernels.nvidia.profiler import METRICS, Profile, command, complaint, read

WIDE = """==PROF== Connected to process 4242 (/usr/bin/python3.12)
==PROF== Profiling "silu" - 0: 0%....50%....100% - 1 pass
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","launch__registers_per_thread",\
"sm__throughput.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","%","ns","register/thread","%","%"
"0","4242","python3.12","127.0.0.1","void silu<float>(T1 *, const T1 *, int)","1","7","(256, 1, 1)","(4, 1, 1)","0",\
"9.0","12.5","2,848","16","0.09","65.1"
"1","4242","python3.12","127.0.0.1","tail","1","7","(256, 1, 1)","(4, 1, 1)","0","9.0","n/a","1000","18","1","2"
==PROF== Disconnected from process 4242
"""
LONG_HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Section Name",'
    '"Metric Name","Metric Unit","Metric Value"\n'
)


def row(number, kernel, metric, unit, value):
    return (
        f'"{number}","1","app","h","{kernel}","1","7","Command line profiler metrics","{metric}","{unit}","{value}"\n'
    )


def test_a_column_for_each_metric():
    assert read(WIDE) == [
        Profile("silu<float>", 2.848, 12.5, 0.09, 16.0, 65.1),
        Profile("tail", 1.0, None, 1.0, 18.0, 2.0),
    ]


@pytest.mark.parametrize(
    ("unit", "microseconds"), [("ns", 2e-3), ("nsecond", 2e-3), ("usecond", 2.0), ("ms", 2e3), ("second", 2e6)]
)
def test_a_row_for_each_metric_in_any_unit(unit, microseconds):
    time, dram, sm, registers, occupancy = METRICS
    log = LONG_HEAD + row(0, "copy(float *)", time, unit, "2.00") + row(1, "other(int)", registers, "register", "40")
    first, second = read(log)
    assert first == Profile("copy", pytest.approx(microseconds), None, None, None, None)
    assert second == Profile("other", None, None, None, 40.0, None)
    assert {dram, sm, occupancy} < set(METRICS)


@pytest.mark.parametrize("log", ["", "==PROF== Connected to process 1\n==WARNING== No kernels were profiled.\n"])
def test_where_nothing_was_measured_there_is_no_row(log):
    assert read(log) == []


def test_an_error_comes_before_a_warning():
    warning = "==PROF== Connected\n==WARNING== No kernels were profiled.\n"
    error = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n"
    assert complaint(warning) == "No kernels were profiled."
    assert complaint(warning + error) == "ERR_NVGPUCTRPERM - The user does not have permission"
    assert complaint(WIDE) == ""


def test_the_clocks_of_the_card_are_left_alone():
    words = command()
    assert words[:3] == ["ncu", "--clock-control", "none"]
    assert words[words.index("--metrics") + 1] == ",".join(METRICS)
