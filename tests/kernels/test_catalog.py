"""What a file says of itself is read, never run; what makes no sense is refused in one sentence."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.cuda_support.formula import parse_formula
from kernel_assay.kernels.catalog import ROOT, read_subject, resolve, size_hints, subjects_of, user_subject
from kernel_assay.oracles.catalog import load_contracts

RUN = "\n\ndef run(out, x):\n    pass\n"


@pytest.fixture
def write(tmp_path):
    def file(text, name="mine.py"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return file


def refusal(path, ops=("silu",), suffix=""):
    with pytest.raises(UsageError) as error:
        user_subject(f"{path}{suffix}", ops)
    text = str(error.value)
    assert "\n" not in text
    assert Path(path).name in text
    return text


def test_a_file_is_read_and_never_run(write, tmp_path):
    mark = tmp_path / "was run"
    path = write(
        f'"""What it does.\nIn two lines.\n\nMore."""\n\nimport numpy\nopen({str(mark)!r}, "w").close()\n'
        'OP = "silu"\nBACKEND = "torch"\nDTYPES = ("float32", "float16")\nPLANTED = "mismatch"\n'
        f'NUMERICS = {{"tf32": "rn", "ftz": False}}\nTILE = 48{RUN}'
    )
    subject = user_subject(str(path), ())
    assert not mark.exists()
    assert (subject.op, subject.name, subject.backend, subject.function) == ("silu", "mine", "torch", "run")
    assert subject.dtypes == ("float32", "float16")
    assert subject.planted == "mismatch"
    assert (subject.numerics.tf32, subject.numerics.ftz) == ("rn", False)
    assert subject.summary == "What it does. In two lines."
    assert subject.path == str(path)
    assert size_hints(subject) == (48,)


class Lost:
    """What the collector of garbage ends with Python's own code, in which threads take turns."""

    def __init__(self):
        self.mine = self

    def __del__(self):
        sum(range(100))


@pytest.fixture
def impatient():
    """Threads take turns at every chance, and the collector runs often."""
    before = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(20, 2, 2)
    sys.setswitchinterval(1e-6)
    yield
    gc.set_threshold(*before[0])
    sys.setswitchinterval(before[1])


def test_files_are_read_in_any_number_of_threads(impatient):
    files = [path for op in ("attention", "gemm", "softmax") for path in (ROOT / op).glob("*.py")]

    def read(path):
        Lost()
        try:
            return read_subject(path, op="gemm").source_digest
        except SystemError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        found = set(zip(files * 4, pool.map(read, files * 4), strict=True))
    assert found == {(path, read(path)) for path in files}


def test_formulas_are_read_in_any_number_of_threads(impatient):
    text = " + ".join(f"n // {i}" for i in range(1, 60))

    def read(_):
        Lost()
        try:
            return parse_formula("grid", text).whole({"n": 60})
        except SystemError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(read, range(150))) == {sum(60 // i for i in range(1, 60))}


@pytest.mark.parametrize(
    ("imports", "backend"),
    [
        ("import numpy as np", "numpy"),
        ("", "numpy"),
        ("import torch", "torch"),
        ("import torch.nn.functional as F", "torch"),
        ("from torch import nn", "torch"),
        ("import cupy", "cupy"),
        ("import torch\nimport triton.language as tl", "triton"),
        ("import torchvision", "numpy"),
    ],
)
def test_the_backend_is_guessed_from_the_imports(write, imports, backend):
    assert read_subject(write(imports + RUN), op="silu").backend == backend


TRITON = "import triton\nfrom triton import jit\n\n\n@{}\ndef kernel(x):\n    pass\n"


@pytest.mark.parametrize("decorator", ["triton.jit", "jit"])
def test_what_triton_compiles_is_launched_by_another_function(write, decorator):
    alone, launched = TRITON.format(decorator), TRITON.format(decorator) + "\n\ndef silu(out, x):\n    pass\n"
    assert read_subject(write(launched), op="silu").function == "silu"
    with pytest.raises(UsageError, match="Triton compiles 'kernel', and nobody launches it"):
        read_subject(write(alone), op="silu")
    with pytest.raises(UsageError, match="Triton compiles 'kernel', and nobody launches it"):
        user_subject(f"{write(launched)}:kernel", ("silu",))
    other = alone.replace("import triton\nfrom triton", "from numba")
    assert read_subject(write(other), op="silu").function == "kernel"


def test_imports_inside_functions_count(write):
    assert read_subject(write("def run(out, x):\n    import torch\n"), op="silu").backend == "torch"


def test_the_digest_follows_the_source(write):
    first = read_subject(write(RUN), op="silu").source_digest
    assert read_subject(write(RUN), op="silu").source_digest == first
    assert read_subject(write(RUN + "#"), op="silu").source_digest != first


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("PLANTED = 'wrong'", "PLANTED = 'wrong' is no verdict"),
        ("PLANTED = 'pass'", "is no verdict"),
        ("NUMERICS = {'tf32': 'maybe'}", "NUMERICS is not understood: tf32 = 'maybe' must be 'none', 'rn' or 'rz'"),
        ("NUMERICS = {'no_such': 1}", "'no_such' is none of its keys, which are accumulate, tf32,"),
        ("NUMERICS = {1: 2}", "1 is none of its keys, which are accumulate, tf32,"),
        ("NUMERICS = {'accumulate': 'float31'}", "accumulate = 'float31' must be one of float32, float64,"),
        ("NUMERICS = {'fast_math': True, 'ftz': False}", "fast_math = True flushes subnormal numbers, so ftz = False"),
        ("NUMERICS = {'ftz': 'rarely'}", "ftz = 'rarely' must be a valid boolean"),
        ("NUMERICS = {'intermediates': {'p': 3}}", "intermediates.p = 3 must be a valid string"),
        ("NUMERICS = {'intermediates': {'p': 'float31'}}", "dtype 'float31' is not known; the known ones are"),
        ("BACKEND = 'tpu'", "backend 'tpu' is not known; the known ones are"),
        ("NUMERICS = 3", "must be a dict"),
        ("PLANTED = 'mis' + 'match'", "PLANTED must be a literal"),
        ("DTYPES = tuple(['float32'])", "DTYPES must be a literal"),
        ("def run(:", "does not import: SyntaxError"),
        (b"\xff\xfe\x00", "does not import"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(write, text, words):
    path = write(text + (RUN.encode() if isinstance(text, bytes) else RUN))
    assert words in refusal(path)


@pytest.mark.parametrize(
    "text",
    [
        "DTYPES = 'float32'",
        "DTYPES = ('float31',)",
        "DTYPES = 3",
        "PLANTED = ['mismatch']",
        "OP = ['silu']",
        "BACKEND = 7",
    ],
)
def test_constants_of_the_wrong_kind_are_refused_in_one_sentence(write, text):
    refusal(write(text + RUN))


def test_a_binary_file_is_refused_in_one_sentence(write):
    refusal(write(b"x = 1\x00" + RUN.encode()))


def test_annotated_constants_are_read(write):
    assert user_subject(str(write('OP: str = "silu"' + RUN)), ()).op == "silu"


def test_what_is_no_kernel_file_is_refused(write, tmp_path):
    assert "does not exist" in refusal(tmp_path / "absent.py")
    (tmp_path / "circle.py").symlink_to("circle.py")
    assert "does not exist" in refusal(tmp_path / "circle.py")
    assert "neither a .py nor a .cu file, nor a .toml file of edits" in refusal(write("", "notes.txt"))
    (tmp_path / "folder.py").mkdir()
    assert "is no file" in refusal(tmp_path / "folder.py")


def test_the_op_comes_from_the_file_or_from_the_only_op_asked_for(write):
    said = write(f'OP = "gemm"{RUN}')
    for ops in ((), ("gemm",), ("silu", "gemm")):
        assert user_subject(str(said), ops).op == "gemm"
    assert refusal(said, ("silu", "rope")) == f"{said} is a kernel of gemm, not of silu or rope"
    silent = write(RUN, "silent.py")
    assert user_subject(str(silent), ("softmax",)).op == "softmax"
    for ops in ((), ("silu", "gemm")):
        assert "does not say its op" in refusal(silent, ops)


def test_file_colon_name_picks_a_function(write):
    path = write("def first(out, x):\n    pass\n\ndef second(x):\n    pass\n")
    picked = user_subject(f"{path}:second", ("silu",))
    assert (picked.function, picked.name, picked.path) == ("second", "mine:second", str(path))
    assert user_subject(str(path), ("silu",)).function == "run"
    assert user_subject(f"{path}:first", ("silu",)).key != picked.key


def test_the_only_public_function_is_the_one(write):
    path = write("def _helper(x):\n    pass\n\ndef my_kernel(out, x):\n    pass\n")
    assert user_subject(str(path), ("silu",)).function == "my_kernel"


@pytest.mark.parametrize("op", load_contracts())
def test_the_houses_own_subjects_are_stored_relative_and_lie_where_they_say(op):
    subjects = subjects_of(op)
    assert [bool(s.planted) for s in subjects] == sorted(bool(s.planted) for s in subjects), "planted ones last"
    assert sum(not s.planted for s in subjects) >= 2
    for subject in subjects:
        assert subject.path == f"kernels/{op}/{Path(subject.path).name}"
        assert resolve(subject).is_file()
        assert subject.summary
        assert subject.planted == "" or Kind(subject.planted).facts.fails
        assert bool(subject.planted) == subject.name.startswith("bug_")


def test_what_was_edited_is_read_anew(write):
    said = [read_subject(write(f'DTYPES = ("{t}",){RUN}'), op="silu").dtypes for t in ("float16", "float32", "float16")]
    assert said == [("float16",), ("float32",), ("float16",)]


def test_hints_are_integers_a_kernel_may_tile_by(write):
    path = write("A = 2\nB = 64\nC = 1000000\nD = True\n\ndef run(out, x):\n    return x[:: 7] * 33.0\n")
    assert size_hints(read_subject(path, op="silu")) == (7, 64)


def test_the_line_of_the_function_is_known(write):
    assert user_subject(str(write(f'OP = "silu"\n\n\ndef _helper():\n    pass{RUN}')), ()).line == 7
    imported = write('OP = "silu"\nfrom somewhere import run\n', "imported.py")
    assert user_subject(str(imported), ()).line == 1
    kernel = 'extern "C" __global__\nvoid silu(float *out, const float *x, int n) {}\n'
    front = (
        '// SiLU.\n// ---\n// entry = "silu"\n// args = ["out", "x", "x.size"]\n// grid = 1\n// block = 32\n// ---\n'
    )
    assert user_subject(str(write(front + kernel, "mine.cu")), ("silu",)).line == 9


SEVERAL = "def helper(x):\n    return x\n\n\n"


@pytest.mark.parametrize(
    ("text", "name", "chosen"),
    [
        (SEVERAL + "def run(x): ...\ndef silu(x): ...\n", "mine.py", "run"),
        (SEVERAL + "def silu(x): ...\ndef mine(x): ...\n", "mine.py", "silu"),
        (SEVERAL + "def mine(x): ...\n", "mine.py", "mine"),
        (SEVERAL + "def other(x): ...\n", "mine.py", "run"),  # which is looked for when the file is loaded
        ("def _silu(x): ...\ndef other(x): ...\n", "mine.py", "other"),
        (SEVERAL + "def silu(x): ...\nrun = compiled(silu)\n", "mine.py", "run"),
        (SEVERAL + "def silu(x): ...\nfrom there import fast as run\n", "mine.py", "run"),
    ],
)
def test_of_several_functions_one_has_a_telling_name(write, text, name, chosen):
    assert user_subject(str(write(text, name)), ("silu",)).function == chosen


def test_a_file_without_the_function_says_what_it_has(write):
    path = write("import math\nfrom math import exp\n" + SEVERAL + "def other(x): ...\n")
    with pytest.raises(UsageError) as error:
        loader_of("numpy").load(path, "run")
    assert str(error.value) == f"{path} has no function 'run'; it has helper, other: name one, as in mine.py:helper"
