"""What compute-sanitizer prints, of several versions, becomes plain sentences; what is about no kernel becomes none."""

import pytest

from kernel_assay.kernels.nvidia import sanitizer
from kernel_assay.kernels.nvidia.sanitizer import TOOLS, command, plain_name, read

HEAD = "========= COMPUTE-SANITIZER\n"
SILENT = HEAD + "========= ERROR SUMMARY: 0 errors\n"
NO_HAZARD = HEAD + "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"

BEYOND = (
    HEAD
    + """========= Invalid __global__ write of size 4 bytes
=========     at void scale<float>(T1 *, const T1 *, int)+0x90 in mine.cu:12
=========     by thread (32,0,0) in block (1,0,0)
=========     Access at 0x7f25aee00200 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f25aee00000 of size 512 bytes
=========
========= Invalid __global__ write of size 4 bytes
=========     at void scale<float>(T1 *, const T1 *, int)+0x90 in mine.cu:12
=========     by thread (33,0,0) in block (1,0,0)
=========     Access at 0x7f25aee00204 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7f25aee00000 of size 512 bytes
=========
========= ERROR SUMMARY: 2 errors
"""
)
CALLED = """========= Invalid __shared__ read of size 1 bytes
=========     at out_of_bounds_function()+0xb0 in demo.cu:39
=========     by thread (1,2,0) in block (0,3,0)
=========     Address 0x87654320 is out of bounds
=========     Device Frame: middle(int)+0x10 in demo.cu:42
=========     Device Frame: kernel(int *)+0x30 in demo.cu:44
========= ERROR SUMMARY: 1 error
"""
OLD = """========= Invalid __global__ read of size 8 bytes
=========     at 0xd80 in /data/src/paged.cu:162:void add_bias<(bool)1, __half>(T2 *, int)
=========     by thread (63,0,0) in block (506,0,0)
=========     Address 0x7fcd07a0312c is out of bounds
=========     and is 12,589 bytes before the nearest allocation at 0x7fcd079ffc00 of size 1,024 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========     Host Frame: [0x2ea231]
=========                in /usr/lib/x86_64-linux-gnu/libcuda.so.1
=========
========= ERROR SUMMARY: 1 error
"""
ODD = """========= Invalid __global__ atomic of size 4 bytes
=========     at unaligned_kernel():0x160
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f6510c00001 is misaligned
=========     and is inside the nearest allocation at 0x7f6510c00000 of size 4 bytes
=========
========= ERROR SUMMARY: 1 error
"""
RACE = (
    HEAD
    + """========= Error: Race reported between Write access at sumKernel(int *, int *)+0x90 in /src/block_error.cu:41
=========     and Read access at sumKernel(int *, int *)+0x100 in /src/block_error.cu:51 [508 hazards]
=========     and Write access at sumKernel(int *, int *)+0x120 in /src/block_error.cu:53 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
)
WARNED = (
    HEAD
    + """========= Warning: Race reported between Read access at compress(int)+0x260 in dxtc.cu:9
=========     and Write access at compress(int)+0x200 in dxtc.cu:7 [32 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
)
UNINITIALIZED = (
    HEAD
    + """========= Uninitialized __global__ memory read of size 4 bytes
=========     at vectorAdd(int *)+0x70 in /src/memset_error.cu:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
=========     96 errors were not printed. Use --print-limit option to adjust the number of printed errors
========= ERROR SUMMARY: 1,096 errors
"""
)
DIVERGENT = (
    HEAD
    + """========= Barrier error detected. Divergent thread(s) in block.
=========     at myKernel(int *, int *)+0x11f0 in test.cu:42
=========     by thread (32,0,0) in block (0,0,0)
=========
========= Barrier error detected. Divergent thread(s) in block.
=========     at myKernel(int *, int *)+0x11f0 in test.cu:42
=========     by thread (33,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 2 errors
"""
)
HARDWARE = """========= Warp illegal instruction parameter
=========     at k(float *)+0x40
=========     by thread (0,0,0) in block (7,0,0)
=========
========= ERROR SUMMARY: 1 error
"""


@pytest.mark.parametrize(
    ("log", "errors", "sentence"),
    [
        (
            BEYOND,
            2,
            (
                "thread 32 of block 1 writes 4 bytes of global memory, 1 byte after the nearest allocation, which has"
                " 512, in scale<float> (mine.cu, line 12)"
            ),
        ),
        (
            CALLED,
            1,
            "thread (1, 2) of block (0, 3) reads 1 byte of shared memory out of bounds in kernel (demo.cu, line 39)",
        ),
        (
            OLD,
            1,
            (
                "thread 63 of block 506 reads 8 bytes of global memory, 12,589 bytes before the nearest allocation,"
                " which has 1,024, in add_bias<(bool)1, __half> (paged.cu, line 162)"
            ),
        ),
        (
            ODD,
            1,
            "thread 0 of block 0 changes 4 bytes of global memory at a misaligned address in unaligned_kernel",
        ),
        (
            RACE,
            1,
            (
                "nothing orders a write (block_error.cu, line 41) and a read (block_error.cu, line 51) of shared memory"
                " in sumKernel"
            ),
        ),
        (
            UNINITIALIZED,
            1096,
            (
                "thread 31 of block 1 reads 4 bytes of global memory, which nobody has written, in vectorAdd"
                " (memset_error.cu, line 41)"
            ),
        ),
        (
            DIVERGENT,
            2,
            (
                "thread 32 of block 0 waits at a barrier that not all threads of its block reach in myKernel"
                " (test.cu, line 42)"
            ),
        ),
        (HARDWARE, 1, "Warp illegal instruction parameter, by thread 0 of block 7 in k"),
    ],
)
def test_a_report_is_a_sentence(log, errors, sentence):
    report = read(log)
    assert (report.errors, report.first) == (errors, sentence)


@pytest.mark.parametrize(("log", "counted"), [(SILENT, 0), (NO_HAZARD, 0), (WARNED, 0), ("", -1), (HEAD, -1)])
def test_where_nothing_is_wrong_nothing_is_said(log, counted):
    report = read(log)
    assert (report.errors, report.first, report.counted, report.remark) == (0, "", counted, "")
    assert report.nothing_wrong == (counted == 0)


def test_a_tool_that_stumbled_may_have_missed_something():
    missed = "Internal Sanitizer Error: The Sanitizer encountered an error and didn't track the launch"
    report = read(f"{HEAD}========= {missed}\n=========\n========= ERROR SUMMARY: 0 errors\n")
    assert (report.errors, report.counted, report.remark, report.nothing_wrong) == (0, 0, missed, False)
    assert not read(BEYOND).nothing_wrong


@pytest.mark.parametrize(
    "remark",
    [
        "Error: Target application terminated before first instrumented API call",
        "Device not supported. Please refer to the documentation",
        'Program hit cudaErrorNotSupported (error 801) due to "operation not supported" on CUDA API call to cudaFree.',
    ],
)
def test_what_is_about_no_kernel_is_no_error_of_one(remark):
    report = read(f"{HEAD}========= {remark}\n=========     Saved host backtrace\n========= ERROR SUMMARY: 1 error\n")
    assert (report.errors, report.first, report.counted, report.remark) == (0, "", 1, remark)


def test_a_log_that_was_cut_off_still_tells_what_it_has():
    cut = BEYOND[: BEYOND.index("Access at 0x7f25aee00204")]
    assert (read(cut).errors, read(cut).first) == (2, read(BEYOND).first)


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("k", "k"),
        ("k(float *, int)", "k"),
        ("void k<float, (int)3>(T1 *, void (*)(int))", "k<float, (int)3>"),
        ("triton_kernel_0d1d2d", "triton_kernel_0d1d2d"),
    ],
)
def test_a_kernel_is_named_without_its_parameters(signature, name):
    assert plain_name(signature) == name


@pytest.mark.parametrize("tool", TOOLS)
def test_each_tool_is_asked_by_its_name_and_writes_a_log(tool):
    words = command(tool)
    assert words[:5] == ["compute-sanitizer", "--tool", tool, "--log-file", "log"]
    assert ("--padding" in words) == (tool == "memcheck"), "the others do not know the option"


def test_the_version_is_read_from_what_it_says_of_itself(monkeypatch):
    sanitizer.version.cache_clear()
    monkeypatch.setattr(sanitizer, "tool_version", lambda tool: "Version 2025.3.1.0 (build 36400806) (public-release)")
    assert sanitizer.version() == "2025.3.1.0"
    sanitizer.version.cache_clear()
    monkeypatch.setattr(sanitizer, "tool_version", lambda tool: "not found")
    assert sanitizer.version() == ""
    sanitizer.version.cache_clear()


def test_without_the_program_or_a_gpu_it_is_said_what_is_missing(monkeypatch):
    monkeypatch.setattr(sanitizer, "which", lambda name: None)
    assert sanitizer.missing() == "compute-sanitizer is not on the PATH; it comes with the CUDA toolkit"
    monkeypatch.setattr(sanitizer, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(sanitizer, "device_count", lambda: 0)
    assert sanitizer.missing() == "there is no CUDA device"
    monkeypatch.setattr(sanitizer, "device_count", lambda: 1)
    assert sanitizer.missing() == ""
