"""Where subjects run: on a GPU those that can, but no bug that it hides."""

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.checking import selection
from kernel_assay.fuzz.checking.selection import placed
from kernel_assay.kernels.boundary.devices import Place
from kernel_assay.kernels.catalog import hidden_on_gpu, shown_on_gpu, subjects_of, user_subject

FILE = """// ---
// op = "silu"
// entry = "silu"
// args = ["out", "x", "x.size"]
// grid = 1
// block = 32
{lines}// ---
__global__ void silu(float* out, const float* x, int n) {{ }}
"""
PLANTED = '// planted = "mismatch"\n'
RACE = '// planted = "race"\n'
HIDDEN = PLANTED + '// shows = "emulator"\n'
OTHERWISE = '// planted = "out_of_bounds"\n// shows = "mismatch"\n'


class Here:
    """A loader on a GPU that is there."""

    def unavailable(self):
        return ""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "places_of", lambda device: [Place(device)])
    there = {"cuda": Here(), "torch": Here()}
    monkeypatch.setattr(selection, "on_gpu", lambda: there)

    def file(name, lines):
        path = tmp_path / f"{name}.cu"
        path.write_text(FILE.format(lines=lines))
        return user_subject(str(path), ())

    return file


def test_a_bug_that_a_gpu_hides_stays_in_the_emulator(write):
    files = {"right": "", "bug": PLANTED, "hidden": HIDDEN, "race": RACE}
    subjects = [write(name, lines) for name, lines in files.items()]
    assert [s.device for s in placed(subjects, "cuda")] == ["cuda", "cuda", "cpu", "cpu"]
    assert {s.device for s in placed(subjects, "cpu")} == {"cpu"}


def test_a_bug_must_earn_there_what_its_file_says(write):
    """What is read out of bounds is a wrong value where nobody watches."""
    otherwise = write("otherwise", OTHERWISE)
    assert [placed([otherwise], device)[0].planted for device in ("cpu", "cuda")] == ["out_of_bounds", "mismatch"]
    assert placed([otherwise], "cuda")[0].device == "cuda"
    assert placed([write("bug", PLANTED)], "cuda")[0].planted == "mismatch"
    assert placed([write("right", "")], "cuda")[0].planted == ""
    (striding,) = [s for s in subjects_of("softmax") if s.name == "bug_triton_wrong_stride"]
    assert (striding.planted, shown_on_gpu(striding)) == ("out_of_bounds", "mismatch"), "in Python, too"


def test_only_kernels_in_cuda_are_hidden_by_their_verdict(write):
    assert hidden_on_gpu(write("hidden", HIDDEN))
    assert hidden_on_gpu(write("race", RACE)), "no GPU tells a race"
    assert not any(map(hidden_on_gpu, [write("bug", PLANTED), write("right", "")]))
    silu = subjects_of("silu")
    assert {s.backend for s in silu if s.planted} >= {"numpy", "cuda"}
    assert not any(hidden_on_gpu(s) for s in silu if s.backend != "cuda")


def test_what_has_no_loader_there_stays(write):
    devices = {s.backend: s.device for s in placed(subjects_of("silu"), "cuda")}
    assert devices["torch"] == "cuda"
    assert devices["numpy"] == "cpu"


def test_only_some_dtypes_are_searched():
    chosen = selection.only_dtypes(subjects_of("gemm"), ["bfloat16", "float64"])
    assert {t for s in chosen for t in s.dtypes} == {"bfloat16", "float64"}
    assert {s.key for s in subjects_of("gemm") if s.dtypes == ("float16",)}.isdisjoint(s.key for s in chosen)
    assert selection.only_dtypes(chosen, ()) == chosen


def test_a_dtype_that_nobody_takes_is_refused(write):
    with pytest.raises(UsageError, match=r"takes float32, .*, not float31$"):
        selection.only_dtypes(subjects_of("silu"), ["float31"])
    mine = write("mine", '// dtypes = ["float16"]\n')
    with pytest.raises(UsageError, match="silu/mine takes float16, not float32"):
        selection.only_dtypes([mine, *subjects_of("silu")], ["float32"])


class Nowhere:
    """A loader that refuses, as Triton's interpreter refuses a version that it does not know."""

    name = "triton"

    def unavailable(self):
        return "its version is not known"


def test_what_only_a_gpu_runs_is_selected_and_stays_there(write, monkeypatch):
    """Triton compiles in any version, and interprets in one."""
    there = selection.loader_of
    monkeypatch.setattr(selection, "loader_of", lambda name: Nowhere() if name == "triton" else there(name))
    with pytest.raises(UsageError, match="its version is not known"):
        selection.select(["silu"], backends=["triton"])
    monkeypatch.setitem(selection.on_gpu(), "triton", Here())
    found = selection.select(["silu"], backends=["triton"])
    assert {s.device for s in placed(found, "cuda")} == {"cuda"}
    with pytest.raises(UsageError, match="'triton' is not available on device 'cpu', because its version is not known"):
        placed(found, "cpu")
    assert [
        s.backend for s in placed([*found, *(s for s in subjects_of("silu") if s.name == "numpy_float32")], "cpu")
    ] == ["numpy"]
