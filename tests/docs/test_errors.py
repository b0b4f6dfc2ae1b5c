"""Every row of docs/errors.md: the command is refused with that sentence and nothing else, and exit code 2."""

import contextlib
import hashlib
import io
import json
import re
import shlex
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest

from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.findings import Environment, Finding
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Signature, Verdict
from kernel_assay.corpus.storage.golden_record import Golden, GoldenCase
from kernel_assay.fuzz.__main__ import main
from kernel_assay.kernels.backends.cuda_support.driver import device_count
from kernel_assay.kernels.backends.simt.toolchain import missing
from kernel_assay.oracles.catalog import forget_contracts, load_contracts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
HOME, TODAY, OPS = "/home/you", "2026-01-01", "convert, …, softmax"
"""What the page writes for the folder, for the day on which its commands are run, and for all ops."""
ROW = re.compile(r"^\| `(.+?)` \| (.+) \|$", re.MULTILINE)
FEWEST = 60

KERNEL = "def run(x):\n    return x\n"
CONTRACT = """from math import exp

import numpy as np

from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output


def reference(x):
    return {{"out": {formula}}}


CONTRACT = Contract(
    name="{name}",
    summary="for a test",
    dims={{"n": Dim(0, 8)}},
    inputs={{"x": Input(("n",))}},
    outputs={{"out": Output(("{axis}",), like="{like}")}},
    variants=({{"{tensor}": "{dtype}"}},),
    reference=reference,
    factor={factor},
)
"""
SOUND = {"formula": "x", "name": "mine", "axis": "n", "like": "x", "tensor": "x", "dtype": "float32", "factor": 2.0}
PARTS = {
    "bad_axis.py": {"axis": "m"},
    "bad_dtype.py": {"dtype": "float31"},
    "bad_factor.py": {"factor": 0.5},
    "bad_formula.py": {"formula": "x / x.shape[1]"},
    "bad_like.py": {"like": "y"},
    "bad_name.py": {"name": "my op"},
    "bad_shape.py": {"formula": "x[:1]"},
    "bad_variant.py": {"tensor": "y"},
    "mine.py": {},
    "mine_too.py": {},
    "plain_numbers.py": {"formula": "np.array([exp(v) for v in x])"},
}
CUDA = """/*
---
op = "silu"
entry = "f"
args = {args}
{more}grid = 1
block = 1
---
*/
__global__ void f(float* out, const float* x) {{ {body} }}
"""
CASE = {"op": "silu", "tensors": {"x": {"shape": [1, 1], "dtype": "float16"}}, "schema_version": 1}
FILES = {
    "adds_mode.py": "def rmsnorm(x, weight, *, eps, mode):\n    return x\n",
    "bad_backend.py": f'BACKEND = "tpu"\n\n\n{KERNEL}',
    "bad_dtypes.py": f'DTYPES = ("float31",)\n\n\n{KERNEL}',
    "bad_import.py": f"import no_such_module\n\n\n{KERNEL}",
    "bad_numerics.py": f'NUMERICS = {{"exp": "quick"}}\n\n\n{KERNEL}',
    "bad_op.py": f'OP = "softmux"\n\n\n{KERNEL}',
    "bad_planted.py": f'PLANTED = "oops"\n\n\n{KERNEL}',
    "bad_range.py": "from kernel_assay.oracles.spec.contract import Input\n\nx = Input(('n',), low=2.0, high=1.0)\n",
    "bad_syntax.py": "def run(x:\n    return x\n",
    "cut_off.json": '{"op": "silu",',
    "empty.json": "{}",
    "empty.py": "",
    "fast_no_ftz.py": f'NUMERICS = {{"fast_math": True, "ftz": False}}\n\n\n{KERNEL}',
    "four_arguments.py": "def run(a, b, c, d):\n    return a\n",
    "kernel.py": KERNEL,
    "list.json": "[]",
    "needs_triton.py": f'BACKEND = "triton"\n\n\n{KERNEL}',
    "none_of_dtypes.py": f"DTYPES = ()\n\n\n{KERNEL}",
    "no_dtypes.py": f"DTYPES = tuple(['float32'])\n\n\n{KERNEL}",
    "no_eps.py": "def rmsnorm(x, weight):\n    return x\n",
    "no_contract.py": "CONTRACT = 1\n",
    "notes.txt": "",
    "of_softmax.py": f'OP = "softmax"\n\n\n{KERNEL}',
    "other_numerics.py": f'NUMERICS = {{"expo": "fast"}}\n\n\n{KERNEL}',
    "bare.cu": "__global__ void f() {}\n",
    "begun.cu": '/*\n---\nop = "silu"\n*/\n',
    "no_entry.cu": '/*\n---\nop = "silu"\n---\n*/\n',
    "not_toml.cu": "/*\n---\nop = silu\n---\n*/\n",
    "bad_key.cu": CUDA.format(args='["out", "x"]', more="treads = 8\n", body=""),
    "three_args.cu": CUDA.format(args='["out", "x", 1]', more="", body=""),
    "bad_arg.cu": CUDA.format(args='["out", "y"]', more="", body=""),
    "bad_code.cu": CUDA.format(args='["out", "x"]', more="", body="y = 1;"),
    "floats.cu": CUDA.format(args='["out", "w"]', more="", body="").replace("silu", "dequantize"),
    "host_code.cu": CUDA.format(args='["out", "x"]', more="", body="f<<<1, 1>>>(out, x);"),
} | {name: CONTRACT.format(**SOUND | part) for name, part in PARTS.items()}


def stored():
    """Records that something is wrong with, by file."""

    def tensor(**changes):
        return CASE | {"tensors": {"x": CASE["tensors"]["x"] | changes}}

    return {
        "bad_layout.json": tensor(layout="spiral"),
        "bad_fill.json": tensor(fill={"distribution": "gaussian"}),
        "bad_special.json": tensor(specials=[{"value": "infinity", "place": "first"}]),
        "bad_poke.json": tensor(pokes=[[0, 1 << 16]]),
        "bad_origin.json": tensor(origin=[1]),
        "float31.json": tensor(dtype="float31"),
        "softmux.json": CASE | {"op": "softmux"},
        "one_axis.json": tensor(shape=[1]),
        "no_input.json": CASE | {"tensors": {}},
        "more_attributes.json": CASE | {"attrs": {"eps": 1e-5}},
        "bad_extent.json": tensor(shape=[-1, 1]),
        "newer.json": CASE | {"schema_version": 99},
        "other_recipe.json": CASE | {"generator_version": 99},
        "no_version.json": CASE | {"schema_version": "two"},
        "no_subject.json": json.loads(finding("/home/you/gone.py").model_dump_json()),
        "part_of_finding.json": {"signature": {}},
    }


def finding(path):
    """A finding about a kernel."""
    case = Case(op="silu", tensors={"x": TensorRecipe(shape=(1, 1), dtype="float32")})
    signature = Signature(
        op="silu",
        subject="gone",
        kind=Kind.MISMATCH,
        rule="rho",
        dtype="float32",
        index_pattern="all",
        error_pattern="small",
    )
    return Finding(
        signature=signature,
        case=case,
        original=case,
        subject=Subject(op="silu", name="gone", backend="numpy", path=path),
        verdict=Verdict(kind=Kind.MISMATCH, rule="rho", message="wrong", signature=signature),
        environment=Environment(python="", platform="", machine=""),
    )


def goldens(folder):
    """Folders of golden outputs that something is wrong with."""
    about, empty = finding("/home/you/gone.py"), b"\x02" + bytes(7) + b"{}"
    digest = hashlib.blake2b(empty, digest_size=16).hexdigest()
    one = GoldenCase(case=about.case, input_digest="", digest=digest, verdict=Verdict(kind=Kind.PASS))
    golden = Golden(
        version="", at="", subject=about.subject, environment=about.environment, seed=0, cases=(one,)
    ).model_dump_json()
    for name, text, data in (
        ("torn_golden", "{", empty),
        ("half_golden", golden, None),
        ("cut_golden", golden, empty[:-1]),
        ("lost_golden", golden, empty),
    ):
        (folder / name).mkdir()
        (folder / name / "manifest.json").write_text(text, "utf-8")
        if data is not None:
            (folder / name / "00000.safetensors").write_bytes(data)


@pytest.fixture
def folder(tmp_path):
    """A folder with everything that the commands name, and a corpus with one finding."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    for name, record in stored().items():
        (tmp_path / name).write_text(json.dumps(record), "utf-8")
    (tmp_path / "nothing").mkdir()
    one = finding("/home/you/gone.py")
    kept = tmp_path / "corpus" / "local" / "findings" / "silu" / f"{one.id}.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(one.model_dump_json(), "utf-8")
    goldens(tmp_path)
    broken = tmp_path / "torn" / "local" / "findings" / "silu" / f"{one.id}.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{", "utf-8")
    yield tmp_path
    forget_contracts()


def refused(folder, command):
    """Exit code and standard error of a command."""
    errors = io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(errors),
    ):
        code = main(shlex.split(command))
    said = errors.getvalue().replace(str(folder), HOME)
    said = said.replace(", ".join(load_contracts()), OPS)
    return code, said.replace(datetime.now(UTC).date().isoformat(), TODAY)


def rows():
    """Commands and sentences of the page."""
    return ROW.findall(PAGE.read_text("utf-8").replace("\\|", "\0"))


@pytest.mark.parametrize(("command", "sentence"), rows())
def test_a_command_is_refused_in_one_sentence(folder, command, sentence):
    if ".cu" in command and missing():
        pytest.skip("no compiler")
    if "--device cuda" in command and device_count():
        pytest.skip("there is a GPU")
    if "triton" in command and find_spec("triton"):
        pytest.skip("triton is installed")
    code, said = refused(folder, command)
    assert said == f"kassay: {sentence.replace(chr(0), '|')}\n"
    assert code == 2


def test_the_page_has_the_errors_that_there_are():
    commands = [command for command, _ in rows()]
    assert len(commands) >= FEWEST
    assert len(set(commands)) == len(commands)
    used = {word for command in commands for word in re.split(r"[ :]", command)}
    assert [name for name in [*FILES, *stored()] if name not in used] == []
