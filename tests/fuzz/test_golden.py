"""`kassay golden`: outputs of a kernel that are saved, and what is said of them when the same cases run again."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.storage.golden_record import Golden
from kernel_assay.corpus.storage.reading import read_record
from kernel_assay.fuzz import api
from kernel_assay.fuzz.comparing.safetensors_files import bytes_of, tensors_of
from kernel_assay.fuzz.golden import save as saving
from kernel_assay.kernels.backends.simt.toolchain import missing
from kernel_assay.kernels.sandbox.closing import why_open
from kernel_assay.oracles.catalog import forget_contracts

KERNEL = """import numpy as np
OP = "silu"
DTYPES = ("float32", "float16",)


def run(x):
    w = x.astype(np.float64)
    with np.errstate(all="ignore"):
        y = (w / (1.0 + np.exp(-w))).astype(x.dtype)
    {more}
    return y
"""
CUDA = """// ---
// op = "silu"
// entry = "f"
// args = ["out", "x", "n"]
// dims = { n = "x.size" }
// grid = "ceil_div(n, 64)"
// block = 64
// ---
__global__ void f(float* out, const float* x, int n) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) out[i] = x[i] / (1 + expf(-x[i]));
}
"""
NEXT = "y[:1, :1] = np.where(np.isfinite(y[:1, :1]), np.nextafter(y[:1, :1], x.dtype.type(1)), y[:1, :1])"
"""The next number, in one element."""
ROW = "y[2:3] *= x.dtype.type(1.01)"
FEW = ("--cases", "12")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, no_references):
    monkeypatch.chdir(tmp_path)
    write()


def write(more="pass", name="mine.py"):
    Path(name).write_text(KERNEL.format(more=more))


def one(rows=4, cols=8, dtype="float32", **more):
    return Case(op="silu", tensors={"x": TensorRecipe(shape=(rows, cols), dtype=dtype, fill=Fill(distribution="ones"))})


def own(*files):
    return api.UserKernels(files or ("mine.py",))


def save(**more):
    return api.save_golden("g", own=own(), **{"cases": 0, "given": [one()], **more})


def names(folder="."):
    return sorted(path.name for path in Path(folder).iterdir())


def refused(said, *words):
    code, out, err = said
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert all(word in err for word in words), err


def test_the_same_kernel_is_equal_to_the_bit(fuzz):
    code, out, err = fuzz("golden", "save", "--subject", "mine.py", "--out", "g", *FEW)
    assert (code, out, err) == (0, "12 cases of silu/mine saved in g\n", "")
    code, out, err = fuzz("golden", "check", "g", "--strict")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split()[:3] == ["bit-equal", "12", "0"]
    assert "the machine are what they were" in out


def test_the_list_is_that_of_its_seed_and_no_other():
    labels = []
    for folder, seed in (("a", 3), ("b", 3), ("c", 4)):
        saved = api.save_golden(folder, own=own(), cases=20, seed=seed)
        labels.append([each.case.label for each in saved.golden.cases])
    assert labels[0] == labels[1] != labels[2]
    assert len(set(labels[0])) > 15
    assert {label.split()[1] for label in labels[0]} == {"float32", "float16"}


def test_one_bit_is_told(fuzz):
    save()
    write(NEXT)
    code, out, _ = fuzz("golden", "check", "g")
    assert code == 0
    assert fuzz("golden", "check", "g", "--strict")[0] == 1
    assert "within budget" in out
    assert "its source" in out
    (found,) = api.check_golden("g").cases
    assert (found.same, found.differing, found.max_ulp) == (api.Same.WITHIN_BUDGET, {"out": 1}, 1)
    assert found.distances["out"].first.index == (0, 0)
    assert 0 < found.now.rho < 1


def test_a_row_beyond_the_budget_has_changed(fuzz):
    save(given=[one(), one(rows=2)])
    write(ROW)
    code, out, _ = fuzz("golden", "check", "g", "--json", "found.json")
    assert code == 1
    text = " ".join(out.split())
    assert "1 bit-equal, 1 changed" in text
    assert "mismatch: out[2, 0] is " in text
    assert "8 elements of out differ, by at most " in text
    cases = json.loads(Path("found.json").read_text())["cases"]
    assert [each["same"] for each in cases] == ["changed", "bit-equal"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("y = y.astype(np.float64)", "wrong_dtype: "),
        ("y = y[:, :3]", "wrong_shape: "),
        ("raise ValueError('no more')", "raised: it raised ValueError: no more"),
        ("import os; os.abort()", "crashed: "),
        ("x[0, 0] = 3", "input_mutated: "),
        ("y[0, 0] = np.nan", "nonfinite: "),
    ],
)
def test_what_is_not_a_matter_of_values_has_changed(fuzz, more, words):
    save()
    write(more)
    code, out, _ = fuzz("golden", "check", "g")
    assert code == 1
    assert f"\n   {words}" in out


def test_equal_bits_of_a_kernel_that_is_wrong_otherwise_have_changed():
    save()
    write("run.calls = getattr(run, 'calls', 0) + 1; y[0, 0] += run.calls % 2 == 0")
    (found,) = api.check_golden("g").cases
    assert (found.same, found.now.kind, found.differing) == (api.Same.CHANGED, "nondeterministic", {})


def test_the_other_zero_is_another_bit():
    save(given=[Case(op="silu", tensors={"x": TensorRecipe(shape=(1, 2), dtype="float32")})])
    write("y = -y")
    (found,) = api.check_golden("g").cases
    assert found.differing == {"out": 2}
    assert found.same is not api.Same.BIT_EQUAL


def test_a_failure_of_then_is_no_change_if_its_bits_are_the_same(fuzz):
    write(ROW)
    code, out, _ = fuzz("golden", "save", "--subject", "mine.py", "--out", "g", "--cases", "0", "--with", one().token)
    assert code == 1
    assert "1 failing already" in out
    assert "fails already: silu float32 x=4x8:ones\n   mismatch: " in out
    assert fuzz("golden", "check", "g")[0] == 0
    write()
    code, out, _ = fuzz("golden", "check", "g")
    assert (code, "1 within budget" in out) == (0, True)
    write("y[2:3] *= x.dtype.type(1.02)")
    code, out, _ = fuzz("golden", "check", "g")
    assert (code, "then, too: mismatch: " in out) == (1, True)


def test_cases_without_outputs_are_told_and_left_out():
    write("y = y if y.shape[1] > 3 else [].pop()")
    saved = save(given=[one(), one(cols=2), one(cols=3)])
    assert [case.label for case, _ in saved.lost] == [one(cols=2).label, one(cols=3).label]
    assert [case.label for case, _ in saved.failing] == [one(cols=2).label, one(cols=3).label]
    assert [each.case.id for each in saved.golden.cases] == [one().id]


def test_a_kernel_that_gives_nothing_is_refused_and_leaves_nothing(fuzz):
    write("raise ValueError('no')")
    said = fuzz("golden", "save", "--subject", "mine.py", "--out", "g", *FEW)
    refused(said, "silu/mine gave no outputs that could be saved: raised: it raised ValueError: no")
    assert names() == ["mine.py"]


def test_another_kernel_and_dtypes_it_does_not_take(fuzz):
    save(given=[one(), one(dtype="float16")])
    write(name="other.py")
    Path("other.py").write_text(Path("other.py").read_text().replace('"float32", ', ""))
    code, out, _ = fuzz("golden", "check", "g", "--subject", "other.py")
    assert code == 0
    assert "1 bit-equal, 1 cannot be told" in out
    assert "cannot be told: it is for float16 only" in out
    assert "silu/other" in out
    assert fuzz("golden", "check", "g", "--subject", "other.py", "--strict")[0] == 1


def test_a_check_that_can_tell_nothing_is_refused(fuzz):
    save()
    Path("mine.py").write_text(KERNEL.format(more="pass").replace('"float32", ', ""))
    refused(fuzz("golden", "check", "g"), "none of the 1 cases of g can be told: it is for float16 only")


def test_a_library_that_is_missing_here(fuzz):
    Path("mylib.py").write_text("")
    Path("mine.py").write_text(f"import mylib\n{KERNEL.format(more='pass')}")
    save()
    Path("mylib.py").unlink()
    refused(fuzz("golden", "check", "g"), "No module named 'mylib'")


def test_a_kernel_that_is_gone(fuzz):
    save()
    Path("mine.py").rename("moved.py")
    refused(fuzz("golden", "check", "g"), "the kernel of g is gone", "mine.py does not exist; name it with --subject")
    assert fuzz("golden", "check", "g", "--subject", "moved.py")[0] == 0


def test_versions_and_machine_that_differ_are_named(fuzz):
    save()
    manifest = Path("g/manifest.json")
    said = json.loads(manifest.read_text())
    said["environment"]["packages"] |= {"numpy": "1.0", "gone": "3"}
    said["environment"]["devices"] = ["A card, driver 1"]
    said["version"] = "0.0.9"
    manifest.write_text(json.dumps(said))
    _, out, _ = fuzz("golden", "check", "g")
    rows = [line.split("  ")[1] for line in out.splitlines() if line.endswith(("-", np.__version__, "0.2.0"))]
    assert rows == ["GPU", "kernel-assay", "numpy", "gone"]


def test_versions_are_those_of_what_the_file_imports():
    Path("mine.py").write_text(f"import click\n{KERNEL.format(more='pass')}")
    packages = save().golden.environment.packages
    assert {"click", "numpy"} <= set(packages)
    assert "pydantic" not in packages


def test_another_interpreter_is_asked_for_its_own(fuzz):
    save()
    golden = api.save_golden("h", own=api.UserKernels(("mine.py",), python=sys.executable), given=[one()], cases=0)
    assert golden.golden.environment.packages["numpy"] == np.__version__
    code, out, _ = fuzz("golden", "check", "g", "--subject", "mine.py", "--python", sys.executable)
    assert (code, "1 bit-equal" in out) == (0, True)


def test_an_op_of_ones_own_is_found_again(fuzz):
    Path("ref.py").write_text('def twice(x: "float32[n]"):\n    return x + x\n')
    Path("two.py").write_text("def run(x):\n    return 2 * x\n")
    words = ("golden", "save", "--reference", "ref.py", "--subject", "two.py", "--out", "g", *FEW)
    assert fuzz(*words)[0] == 0
    code, out, _ = fuzz("golden", "check", "g")
    assert (code, "12 bit-equal" in out) == (0, True)
    Path("ref.py").write_text('def twice(x: "float32[n]"):\n    return x + x + 1\n')
    forget_contracts()
    code, out, err = fuzz("golden", "check", "g")
    assert (code, "12 changed" in out) == (1, True)
    assert "warning: the reference of g has changed since: " in err
    Path("ref.py").unlink()
    forget_contracts()
    refused(fuzz("golden", "check", "g"), "the reference of g is gone")


def test_a_stored_case_of_another_op_is_refused(fuzz):
    case = Case(op="gelu", tensors={"x": TensorRecipe(shape=(1, 2), dtype="float32")})
    with pytest.raises(UsageError, match="silu/mine is no kernel of gelu, of which a stored case is: gelu float32"):
        save(given=[case])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda g: (g / "00000.safetensors").unlink(), "00000.safetensors cannot be read (No such file or directory)"),
        (lambda g: os.truncate(g / "00000.safetensors", 70), "00000.safetensors is not what was saved"),
        (lambda g: flipped(g / "00000.safetensors"), "00000.safetensors is not what was saved"),
        (lambda g: os.truncate(g / "manifest.json", 900), "g/manifest.json is not JSON"),
        (lambda g: (g / "manifest.json").unlink(), "g holds no golden outputs: there is no manifest.json in it"),
        (lambda g: edited(g, "schema_version", 99), "the golden was written by a newer version"),
        (lambda g: edited(g, "cases", "none"), "g/manifest.json is not a valid golden: cases: "),
        (lambda g: edited(g, "cases", []), "g/manifest.json is not a valid golden: cases: "),
        (lambda g: recipe(g, generator_version=99), "g/manifest.json was generated by recipe version 99"),
        (lambda g: recipe(g, op="gelu"), "g/manifest.json: it has cases of gelu, and a kernel of silu"),
        (lambda g: recipe(g, attrs={"eps": 1}), "g/manifest.json: "),
        (lambda g: recipe(g, tensors={"x": {"shape": [1, 1], "dtype": "float32", "layout": "spiral"}}), "spiral"),
    ],
)
def test_a_folder_that_was_spoiled(fuzz, spoil, words):
    save()
    spoil(Path("g"))
    refused(fuzz("golden", "check", "g"), words)


def flipped(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def edited(folder, name, value):
    said = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**said, name: value}))


def recipe(folder, **changes):
    said = json.loads((folder / "manifest.json").read_text())
    said["cases"][0]["case"] |= changes
    (folder / "manifest.json").write_text(json.dumps(said))


def test_a_recipe_of_an_older_version_is_brought_up_to_date(fuzz):
    save()
    recipe(Path("g"), generator_version=1)
    code, out, _ = fuzz("golden", "check", "g")
    assert (code, "1 bit-equal" in out) == (0, True)


@pytest.mark.skipif(bool(missing()), reason="no compiler")
def test_what_was_saved_on_the_cpu_is_checked_on_a_gpu():
    Path("mine.cu").write_text(CUDA)
    golden = ("golden", "save", "--subject", "mine.cu", "--out", "g", *FEW)
    assert on_gpu(*golden)[0] == 0
    code, out, err = on_gpu("golden", "check", "g", "--device", "cuda")
    assert (code, err) == (0, "")
    assert "12 bit-equal" in out
    assert ["its device", "cpu", "cuda"] in [re.split(" {2,}", line.strip()) for line in out.splitlines()]
    code, _, err = on_gpu("golden", "check", "g", "--device", "cuda", "--subject", "mine.py")
    assert (code, err) == (2, "kassay: silu/mine does not run on device 'cuda'\n")


def on_gpu(*words):
    """A command where the stand-in for a GPU is: exit code, output, and what it says beside."""
    paths = [str(Path(__file__).with_name("_gpu")), str(Path(__file__).parents[2])]
    done = subprocess.run(
        [sys.executable, "-m", "kernel_assay.fuzz", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_recipe_that_makes_other_inputs_tells_nothing(fuzz):
    save(given=[one(), one(rows=2)])
    said = json.loads(Path("g/manifest.json").read_text())
    said["cases"][0]["case"]["tensors"]["x"]["fill"]["scale"] = 2.0
    Path("g/manifest.json").write_text(json.dumps(said))
    code, out, _ = fuzz("golden", "check", "g")
    assert (code, "1 bit-equal, 1 cannot be told" in out) == (0, True)
    assert "its recipe makes other inputs here than it did there" in out


def test_a_save_that_is_killed_leaves_nothing_that_is_taken_for_whole(fuzz):
    program = (
        "import sys; from kernel_assay.fuzz import api; "
        "api.save_golden('g', own=api.UserKernels(('mine.py',)), cases=5000)"
    )
    child = subprocess.Popen([sys.executable, "-c", program])
    half = Path(".g.tmp")
    end = time.monotonic() + 60
    while len(list(half.glob("*.safetensors"))) < 3:
        assert time.monotonic() < end
        assert child.poll() is None
        time.sleep(0.01)
    refused(fuzz("golden", "save", "--subject", "mine.py", "--out", "g", *FEW), "another process is saving to g")
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not Path("g").exists()
    refused(fuzz("golden", "check", "g"), "g holds no golden outputs")
    refused(fuzz("golden", "check", half), "holds no golden outputs")
    assert fuzz("golden", "save", "--subject", "mine.py", "--out", "g", "--cases", "1")[0] == 0
    assert names("g") == ["00000.safetensors", "manifest.json"]
    assert not half.exists()


def test_a_disk_that_refuses_is_one_sentence(fuzz, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saving.Path, "write_bytes", full)
    refused(fuzz("golden", "save", "--subject", "mine.py", "--out", "g", *FEW), "g cannot be used (No space left")
    assert names() == ["mine.py"]


def test_a_folder_is_never_written_over(fuzz):
    save()
    before = Path("g/manifest.json").read_text()
    refused(fuzz("golden", "save", "--subject", "mine.py", "--out", "g", *FEW), "g exists already")
    assert Path("g/manifest.json").read_text() == before


@pytest.mark.skipif(bool(why_open()), reason="kernels run in the open here")
def test_the_kernel_cannot_read_what_is_expected_of_it():
    golden = Path("g").absolute()
    save()
    write(f"assert not __import__('os').listdir({str(golden)!r})")
    limits = api.SandboxLimits(memory_mb=4095)  # as nobody else's, so that the zygote is no other test's
    (found,) = api.check_golden("g", limits=limits).cases
    assert found.same is api.Same.BIT_EQUAL, found.now


def test_only_the_outputs_of_a_case_are_in_memory():
    """A kernel that gives 4 MB a case: eighteen of them take no more than eight, which fill what is made ahead."""
    case = Case(op="silu", tensors={"x": TensorRecipe(shape=(1 << 10, 1 << 10), dtype="float32")})
    program = (
        "import resource, sys; from kernel_assay.fuzz import api; "
        "from kernel_assay.corpus.storage.reading import case_of; "
        f"one = case_of({case.token!r}); own = api.UserKernels(('mine.py',)); "
        "api.save_golden('g', own=own, given=[one] * int(sys.argv[1]), cases=0); api.check_golden('g'); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peaks = []
    for n in (8, 18):
        done = subprocess.run([sys.executable, "-c", program, str(n)], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) >> 10)
        with contextlib.suppress(FileNotFoundError):
            for file in Path("g").iterdir():
                file.unlink()
            Path("g").rmdir()
    assert peaks[1] < peaks[0] + 20, peaks


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5)])
def test_a_file_of_every_dtype_is_read_as_it_was_written(tmp_path, name, shape):
    bits = np.arange(int(np.prod(shape))).astype(FORMATS[name].carrier)
    values = bits.view(FORMATS[name].dtype).reshape(shape)
    (tmp_path / "x.safetensors").write_bytes(bytes_of({"a": values, "b": values.T}))
    a, b = tensors_of(tmp_path / "x.safetensors")
    assert [(t.name, t.shape, t.dtype) for t in (a, b)] == [("a", shape, name), ("b", shape[::-1], name)]
    assert a.read(0, a.size).tobytes() == values.tobytes()
    assert b.read(0, b.size).tobytes() == values.T.tobytes()


def test_the_data_begin_where_any_element_may(tmp_path):
    for name in ("a", "ab", "abc", "abcdefgh"):
        data = bytes_of({name: np.zeros(2)})
        assert int.from_bytes(data[:8], "little") % 8 == 0
        assert len(data) % 8 == 0


def test_the_manifest_is_read_as_it_was_written():
    golden = save(given=[one(), one(dtype="float16")]).golden
    assert read_record(Path("g/manifest.json"), Golden).canonical() == golden.canonical()


def test_two_folders_can_be_compared(fuzz):
    save()
    write(NEXT)
    api.save_golden("h", own=own(), cases=0, given=[one()])
    code, out, _ = fuzz("compare", "g", "h")
    assert (code, "1 of 1 tensor does not agree" in out) == (1, True)
