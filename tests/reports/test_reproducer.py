"""Reproducers run where Kernel Assay is not, show what the finding shows, and say so when the kernel is repaired."""

import ast
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.materialize import digest, materialize, materialize_all
from kernel_assay.corpus.inputs.specials import PLACES
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.findings import Element, Environment, Exhibit, Finding
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Measurement, Signature, Verdict
from kernel_assay.fuzz.checking.check import Examiner, interface_of
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.subjects import fitting
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import ENGINES
from kernel_assay.fuzz.planning.plan import fitted, new_campaign, targets
from kernel_assay.kernels.backends.support.signature import bind
from kernel_assay.kernels.catalog import resolve, subjects_of, user_subject
from kernel_assay.kernels.environment import environment
from kernel_assay.oracles.catalog import load_contracts
from kernel_assay.reports.reproducer.excerpt import excerpt
from kernel_assay.reports.reproducer.run import RUNNABLE, Script
from kernel_assay.reports.reproducer.runtime import narrow
from kernel_assay.reports.reproducer.script import reproducer

FAULTS = Path(__file__).parents[1] / "faults"
DEADLY = ("aborts", "closes_files", "exits", "segfault", "hangs", "hangs_deaf", "eats_memory")
HARMLESS = sorted(p.stem for p in FAULTS.glob("*.py") if p.stem not in {*DEADLY, "floods_stdout"})
WITHOUT = """
import contextlib, io, json, runpy, sys
for name in ("fuzz", "kernels", "oracles", "reports", "corpus", "hypothesis", "pydantic"):
    sys.modules[name] = None
def run(argv):
    sys.argv = argv
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        return end.code
if len(sys.argv) == 1:  # many, one after the other
    results = []
    for argv in json.load(sys.stdin):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = run(argv)
        results.append((code, said.getvalue()))
    json.dump(results, sys.stdout)
else:
    sys.exit(run(sys.argv[1:]))
"""
"""Runs reproducers in a Python that cannot import anything of ours."""


def isolated(folder, *argv, text=None):
    """A process without our packages, our paths and our environment, but for what names the machine's arithmetic."""
    command = [sys.executable, "-I", "-c", WITHOUT, *map(str, argv)]
    env = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("OPENBLAS_")}
    return subprocess.run(command, cwd=folder, env=env, input=text, capture_output=True, text=True, check=False)


def written(folder, finding, name="reproduce.py"):
    """The reproducer in a folder, with the kernel's file beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    kernel = resolve(finding.subject)
    if kernel.is_file():
        (folder / kernel.name).write_bytes(kernel.read_bytes())
    (folder / name).write_text(reproducer(finding), "utf-8")
    return folder / name


def run_all(folder, jobs):
    """Several in one process: [reproducer, arguments] -> (exit code, what it said)."""
    result = isolated(folder, text=json.dumps([[str(a) for a in argv] for argv in jobs]))
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def finding_of(case, subject, verdict, exhibit, input_digest=""):
    return Finding(
        signature=verdict.signature
        or Signature(op=case.op, subject="s", kind=verdict.kind, rule="r", dtype=case.dtype),
        case=case,
        original=case,
        subject=subject,
        verdict=verdict,
        environment=environment(),
        exhibit=exhibit,
        input_digest=input_digest or digest(materialize_all(case)),
    )


def seen(examiner, case, key, law=""):
    """The finding a failing case gives."""
    look = examiner.look(case, key, law)
    assert look.verdict.failed
    return finding_of(case, examiner.subjects[key], look.verdict, look.exhibit)


def observed(case, subject, laws=(), **settings):
    """The finding that one run of a subject gives."""
    with Examiner([subject], **{"timeout": 1.0, "memory_mb": 128, **settings}) as examiner:
        verdict = examiner.check([CheckRequest(case, (subject.key,), laws)])[0].verdicts[subject.key]
        assert verdict.failed
        if verdict.kind in {Kind.TIMEOUT, Kind.OUT_OF_MEMORY}:
            return finding_of(case, subject, verdict, Exhibit(returns=subject.key in examiner.sandbox.returning))
        return seen(examiner, case, subject.key, verdict.law)


def shown(finding):
    """What a reproducer must print of the worst element."""
    e, out = finding.exhibit.elements[0], finding.exhibit.output
    if finding.verdict.kind is Kind.UNWRITTEN:
        return f"{out}{list(e.index)} was never written: it is {e.got!r}, wanted {e.wanted!r}"
    if finding.verdict.measurements and finding.verdict.measurements[0].metric == "bits":
        return f"{out}{list(e.index)} is {e.got!r} ({e.bits:#x}), wanted {e.wanted!r} ("
    return f"{out}{list(e.index)} is {e.got!r}, wanted {e.wanted!r}, error budget {e.bound!r}"


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_an_output_is_as_misaligned_as_it_was(tmp_path, backend, returns):
    """Who returns a result of its own is not given one."""
    address, exp = {"numpy": ("out.ctypes.data", "np"), "torch": ("out.data_ptr()", "torch")}[backend]
    body = f"    result = x / (1 + {exp}.exp(-x))\n"
    write = f"    out[...] = result * (1 + ({address} % 16 != 0))\n"
    head = f'import numpy as np\nimport torch\nOP = "silu"\nBACKEND = "{backend}"\n'
    run = f"def run(x):\n{body}    return 2 * result\n" if returns else f"def run(out, x):\n{body}{write}"
    (tmp_path / "mine.py").write_text(head + run)
    x = TensorRecipe(shape=(3, 5), dtype="float32", fill=Fill(distribution="ones"))
    case = Case(op="silu", tensors={"x": x}, outputs={"out": "offset_one"})
    subject = user_subject(str(tmp_path / "mine.py"), ())
    finding = observed(case, subject)
    if not returns:
        with Examiner([subject]) as examiner:
            plain = examiner.check([CheckRequest(case.but(outputs={}), (subject.key,))])[0].verdicts[subject.key]
        assert plain.kind is Kind.PASS
    path = written(tmp_path / "alone", finding)
    assert ("offset=1" in path.read_text()) == (not returns)
    result = isolated(path.parent, path, "mine.py")
    assert (result.returncode, shown(finding) in result.stdout) == (1, True), result.stdout + result.stderr


# All seeded bugs that are built in.


def planted_of(op):
    """One finding of every seeded bug of an op, as a search meets it: large, strided, with special values."""
    planted = {s.key: s for s in subjects_of(op) if s.planted and s.backend in RUNNABLE}
    found = {}
    new = new_campaign("r", 4, "conjecture", list(planted.values()))
    with Examiner(list(planted.values())) as examiner:
        for batch in ENGINES["conjecture"](targets(fitted(new, examiner.sandbox)), 4, 0, Elites([])):
            for case in (p.case for p in batch):
                for key in fitting([s for k, s in planted.items() if k not in found], case):
                    if examiner.check([CheckRequest(case, (key,))])[0].verdicts[key].kind == planted[key].planted:
                        found[key] = seen(examiner, case, key)
            if len(found) == len(planted):
                return found
    return found


@pytest.fixture(scope="module")
def planted():
    return {key: f for found in map(planted_of, load_contracts()) for key, f in found.items()}


REPAIRED = """
import inspect, runpy
import ml_dtypes, numpy as np
clean = runpy.run_path({path!r})["run"]
taken = inspect.signature(clean).parameters
def run(*arrays, **attrs):
    writes, names = next(iter(taken)) == "out", {names}
    given = dict(zip(names, arrays[len(arrays) - len(names):], strict=True))
    out = arrays[0] if len(arrays) > len(names) else np.zeros({shape}, {dtype!r})
    named = {{n: given.pop(n) for n in {optional} if n in given}}
    named |= {{n: v for n, v in ({attrs} | attrs).items() if n in taken}}
    result = clean(*[out][:writes], *given.values(), **named)
    if not writes and len(arrays) == len(names):
        return result
    if not writes:
        out[...] = result
    return out if len(arrays) == len(names) else None
"""


def able(subject, case):
    """Whether it takes all that a case has."""
    run = import_module(f"kernels.{subject.op}.{subject.name}").run
    bound = bind(run, interface_of(load_contracts()[subject.op]), subject.key)
    return bool(fitting([subject], case)) and not bound.declines(case.attrs, case.tensors)


def repaired(folder, finding):
    """A kernel without the bug that can be called like the one with it."""
    case, script = finding.case, Script(finding)
    numpy = [s for s in subjects_of(finding.subject.op) if s.backend == "numpy" and not s.planted]
    clean = sorted(numpy, key=lambda s: s.numerics != finding.subject.numerics)  # another claim has another budget
    said = {
        "path": str(resolve(next(s for s in clean if able(s, case)))),
        "shape": finding.exhibit.shape,
        "dtype": finding.exhibit.dtype,
        "names": [name for name in case.tensors if name not in script.named],
        "optional": load_contracts()[case.op].optional,
        "attrs": case.attrs,
    }
    file = folder / "repaired.py"
    file.write_text(REPAIRED.format(**said))
    return file


@pytest.fixture(scope="module")
def rerun(planted, tmp_path_factory):
    """Every one of them run twice: as it was, and with a kernel that has no bug."""
    top = tmp_path_factory.mktemp("planted")
    jobs = []
    for key, finding in planted.items():
        script = written(top / key.replace("/", "-"), finding)
        jobs += [[script], [script, repaired(script.parent, finding)]]
    results = run_all(top, jobs)
    return {key: results[2 * i : 2 * i + 2] for i, key in enumerate(planted)}


HOUSE = [s.key for op in load_contracts() for s in subjects_of(op) if s.planted and s.backend in RUNNABLE]


@pytest.mark.parametrize("key", HOUSE)
def test_planted_bugs_show_what_the_finding_shows(planted, rerun, key):
    code, said = rerun[key][0]
    assert code == 1, said
    assert shown(planted[key]) in said
    assert "\nreproduced: " in said
    assert "recorded bytes" not in said


@pytest.mark.parametrize("key", HOUSE)
def test_without_the_bug_they_say_so(rerun, key):
    code, said = rerun[key][1]
    assert code == 0, said
    assert "\nnot reproduced: 0 of " in said
    assert "wrong" not in said.partition("not reproduced")[0]


# Kernels that misbehave.

SMALL = Case(op="silu", tensors={"x": TensorRecipe(shape=(3, 5), dtype="float32", fill=Fill(distribution="normal"))})


def fault(name):
    return user_subject(str(FAULTS / f"{name}.py"), ())


@pytest.fixture(scope="module")
def faults():
    names = [*HARMLESS, *DEADLY]
    with ThreadPoolExecutor(3) as pool:
        return dict(
            zip(
                names,
                pool.map(lambda n: observed(SMALL, fault(n), timeout=0.5 if "hangs" in n else 9.0), names),
                strict=True,
            )
        )


@pytest.fixture(scope="module")
def misbehaving(faults, tmp_path_factory):
    top = tmp_path_factory.mktemp("faults")
    results = run_all(top, [[written(top / name, faults[name])] for name in HARMLESS])
    return dict(zip(HARMLESS, results, strict=True))


SAYS = {
    "changes_input": "it changed its input 'x' in 15 of 15 elements: x[0, 0] was ",
    "every_second": "runs 1 and 2 differ in 15 of 15 elements, first at out[0, 0]: ",
    "leaves_one": "out[2, 4] was never written: it is nan, wanted ",
    "leaves_python": "reproduced: it raised SystemExit: 0",
    "not_contiguous": "strides of its result: (4, 12)",
    "other_dtype": "reproduced: its result has dtype float64, wanted float32",
    "other_shape": "reproduced: its result has shape (15,), wanted (3, 5)",
    "raises": "reproduced: it raised ValueError: cannot do (3, 5)",
    "returns_cached": "its second result lies in the memory of the first one, which is still held",
    "returns_input": "out is the memory of its input 'x', not a result of its own",
    "writes_before": "it wrote 4 bytes outside the elements of 'out', 1 byte before its start",
    "writes_past": "it wrote 4 bytes outside the elements of 'out', at byte 60 from its start",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_faults_show_again(faults, misbehaving, name):
    code, said = misbehaving[name]
    assert code == 1, said
    assert SAYS[name] in said
    if faults[name].verdict.kind is Kind.OUT_OF_BOUNDS:
        assert faults[name].verdict.message in said


@pytest.fixture(scope="module")
def dying(faults, tmp_path_factory):
    top = tmp_path_factory.mktemp("dying")
    scripts = {name: written(top / name, faults[name]) for name in DEADLY}
    eats = scripts["eats_memory"]
    eats.write_text(eats.read_text().replace("MEGABYTES = 4096", "MEGABYTES = 64"))
    with ThreadPoolExecutor(3) as pool:
        return dict(zip(DEADLY, pool.map(lambda n: isolated(scripts[n].parent, scripts[n]), DEADLY), strict=True))


@pytest.mark.parametrize(
    ("name", "code", "said", "traced"),
    [
        ("aborts", -signal.SIGABRT, "recorded: it crashed: killed by SIGABRT\nif this process dies now", "in run"),
        ("segfault", -signal.SIGSEGV, "recorded: it crashed: killed by SIGSEGV\nif this process dies now", "in run"),
        ("exits", 0, "recorded: it crashed: the process exited with 0\nif this process dies now", ""),
        ("closes_files", 1, "if this process dies now", ""),
        ("hangs", 1, "if it has no result within 0.5 s", "in run"),
        ("hangs_deaf", 1, "if it has no result within 0.5 s", "in run"),
        ("eats_memory", 1, "reproduced: it takes all the memory there is", ""),
    ],
)
def test_what_kills_its_process_shows_again(dying, name, code, said, traced):
    result = dying[name]
    assert result.returncode == code
    assert said in result.stdout
    assert traced in result.stderr
    assert "not reproduced" not in result.stdout


BETWEEN_WALLS = {
    "reads_behind": "    ctypes.string_at(x.ctypes.data + x.nbytes, 4)\n",
    "restores": "    at = ctypes.c_uint32.from_address(x.ctypes.data)\n    at.value, at.value = 7, at.value\n",
}


@pytest.mark.parametrize("name", BETWEEN_WALLS)
def test_what_is_seen_between_walls_only_shows_again_between_walls(tmp_path, name):
    head = 'import ctypes\nimport numpy as np\nOP = "silu"\n\n\ndef run(out, x):\n'
    (tmp_path / f"{name}.py").write_text(f"{head}{BETWEEN_WALLS[name]}    out[...] = x / (1 + np.exp(-x))\n")
    finding = observed(SMALL, user_subject(str(tmp_path / f"{name}.py"), ()))
    script = written(tmp_path / "there", finding)
    result = isolated(script.parent, script)
    assert result.returncode == -signal.SIGSEGV
    assert result.stdout.endswith("if this process dies now, that is reproduced\n")
    assert f'{name}.py", line ' in result.stderr
    (tmp_path / "fine.py").write_text("def run(out, x):\n    out[...] = 0\n")
    assert isolated(script.parent, script, tmp_path / "fine.py").returncode == 0


def test_what_is_repaired_does_not_die(faults, tmp_path):
    (tmp_path / "fine.py").write_text("def run(out, x):\n    out[...] = 0\n")
    names = [n for n in (*DEADLY, *HARMLESS) if not faults[n].exhibit.returns]
    jobs = [[written(tmp_path / n, faults[n]), tmp_path / "fine.py"] for n in names]
    for name, (code, said) in zip(names, run_all(tmp_path, jobs), strict=True):
        assert code == 0, (name, said)
        assert "not reproduced: " in said


# Inputs: the same bytes in the same places, whatever the recipe.

SPY = """
import hashlib, sys
import numpy as np
def run(x):
    torch = sys.modules.get("torch")
    if torch is None:
        size, strides, address, dtype = x.itemsize, [s // x.itemsize for s in x.strides], x.ctypes.data, x.dtype.name
        raw, zero = x.tobytes(), np.zeros(1)
    else:
        size, strides, address = x.element_size(), x.stride(), x.data_ptr()
        dtype = str(x.dtype).removeprefix("torch.")
        raw, zero = x.view(getattr(torch, f"int{8 * size}")).numpy().tobytes(), torch.zeros(1)
    print("saw", dtype, tuple(x.shape), tuple(strides), address % 256, hashlib.sha256(raw).hexdigest())
    return zero
"""


def spied(folder, recipe, backend):
    """A finding about a kernel that tells what it was given."""
    file = folder / "spy.py"
    file.write_text(SPY)
    subject = Subject(op="any", name="spy", backend=backend, path=str(file))
    verdict = Verdict(kind=Kind.MISMATCH, rule="exact", message="wrong", output="out")
    wrong = Element(index=(0,), got=0.0, wanted=1.0)
    exhibit = Exhibit(output="out", shape=(1,), dtype="float32", elements=(wrong,), returns=True)
    return finding_of(Case(op="any", tensors={"x": recipe}), subject, verdict, exhibit)


def expected(recipe):
    values, at = materialize(recipe), LAYOUTS[recipe.layout](recipe.shape)
    place = at.offset * values.itemsize % 256
    said = hashlib.sha256(values.tobytes()).hexdigest()
    return f"saw {recipe.dtype} {recipe.shape} {at.strides} {place} {said}"


def recipes():
    """Every distribution with every dtype, every layout, every special place; too large to be written out."""
    large = TensorRecipe(shape=(5, 67), dtype="float32", origin=(3, 7), fill=Fill(distribution="normal", seed=11))
    layouts = [name for name in LAYOUTS for _ in range(2)]
    for i, (name, fmt) in enumerate((n, f) for n in DISTRIBUTIONS for f in FORMATS.values()):
        if name in {"least", "ends", "between"}:
            params, scale = {"low": -3, "high": 90 if i % 2 else 90.5}, 1.0
        elif name.endswith("blocks") and fmt.name == "uint8":
            params, scale = {"block": 24 if i % 2 else 36, "scales": 2}, 1.0
        else:
            d = DISTRIBUTIONS[name]
            if not (d.floats if fmt.is_float else d.integers):
                continue
            params, scale = ({"below": 9} if i % 3 == 0 else {}), (1.0, -2.5)[i % 2]
        fill = Fill(distribution=name, seed=i, scale=scale, params=params | ({"shift": 2} if i % 5 == 0 else {}))
        layout = layouts[i % len(layouts)]
        special = Special(value="-nan", place=list(PLACES)[i % len(PLACES)])
        specials, pokes = ((special,), ()) if i % 3 == 1 else ((), tuple((k, i % 128) for k in range(i % 12)))
        yield large.but(dtype=fmt.name, fill=fill, layout=layout, specials=specials, pokes=pokes)
    for layout in LAYOUTS:
        yield large.but(layout=layout, shape=(4, 3, 33), origin=())
    for shape in ((), (1,), (200,), (2, 3, 4, 5)):
        yield large.but(shape=shape, origin=(), layout="offset_one")


def small_recipes():
    """Small enough to be written out, with bits that no decimal gives; constant ones of any size."""
    small = TensorRecipe(shape=(3, 7), dtype="float32", fill=Fill(distribution="normal", seed=5))
    for i, fmt in enumerate(FORMATS.values()):
        for name in ("raw_bits", "uniform", "ones"):
            yield small.but(
                dtype=fmt.name, fill=Fill(distribution=name, seed=5), layout=list(LAYOUTS)[i % len(LAYOUTS)]
            )
    for shape in ((), (1,), (64,), (8, 8), (2, 2, 2, 2)):
        yield small.but(shape=shape)
    ones = small.but(shape=(30, 40), fill=Fill(distribution="ones", scale=0.1))
    yield from (ones, ones.but(pokes=((7, 0x80000000), (9, 0x7FC00001))), ones.but(dtype="bfloat16"))
    yield small.but(shape=(1, 2), pokes=((0, 0x80000000), (1, 0x7F800000)))


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_inputs_that_are_too_large_to_be_looked_at_are_the_recorded_ones_too(tmp_path, backend, monkeypatch):
    monkeypatch.setattr("kernel_assay.reports.reproducer.inputs.MOST", 100)
    monkeypatch.setattr(
        "kernel_assay.reports.reproducer.inputs.materialize", lambda recipe: pytest.fail("the whole was made")
    )
    every = [r for r in recipes() if r.size > 100 and r.layout != "broadcast"][::6]
    scripts = [tmp_path / f"r{i}.py" for i in range(len(every))]
    for script, recipe in zip(scripts, every, strict=True):
        script.write_text(reproducer(spied(tmp_path, recipe, backend)))
    results = run_all(tmp_path, [[s] for s in scripts])
    for recipe, (code, said) in zip(every, results, strict=True):
        assert code == 1, said
        assert expected(recipe) in said, recipe


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_inputs_are_the_recorded_ones(tmp_path, backend):
    every = [*recipes(), *small_recipes()]
    assert len(every) > 200
    scripts = [tmp_path / f"r{i}.py" for i in range(len(every))]
    for script, recipe in zip(scripts, every, strict=True):
        script.write_text(reproducer(spied(tmp_path, recipe, backend)))
        assert (backend == "torch") <= ("ml_dtypes" not in script.read_text())
    results = run_all(tmp_path, [[s] for s in scripts])
    for recipe, (code, said) in zip(every, results, strict=True):
        assert code == 1, said
        assert expected(recipe) in said, recipe
        assert "recorded bytes" not in said, recipe


def test_other_inputs_than_the_recorded_ones_are_told(tmp_path):
    recipe = TensorRecipe(shape=(9, 9), dtype="float32", fill=Fill(distribution="normal", seed=5))
    text = reproducer(spied(tmp_path, recipe, "numpy"))
    (tmp_path / "other.py").write_text(text.replace("seed=5", "seed=6"))
    (result,) = run_all(tmp_path, [[tmp_path / "other.py"]])
    assert "these inputs are not the recorded bytes" in result[1]


# Two runs against one another.

UNLAWFUL = """
OP = "gemm"
def run(a, b):
    return a @ b * a.dtype.type(1 + 2e-7 * (abs(a).max() > 4))
"""


@pytest.mark.parametrize("size", [2, 9])
def test_a_broken_law(tmp_path, size):
    (tmp_path / "unlawful.py").write_text(UNLAWFUL)
    fill = Fill(distribution="uniform", seed=3, scale=2.0)
    tensors = {n: TensorRecipe(shape=(size, size), dtype="float32", fill=fill) for n in "ab"}
    subject = user_subject(str(tmp_path / "unlawful.py"), ())
    finding = observed(Case(op="gemm", tensors=tensors), subject, laws=("scaling",))
    assert finding.verdict.law == "scaling"
    (tmp_path / "lawful.py").write_text(UNLAWFUL.replace("2e-7", "0"))
    script = written(tmp_path, finding)
    assert "b_other = put(b)" in script.read_text()
    before, after = run_all(tmp_path, [[script], [script, tmp_path / "lawful.py"]])
    e = finding.exhibit.elements[0]
    assert before[0] == 1, before[1]
    assert f"out{list(e.index)} is {e.got!r}, wanted {e.wanted!r}  <- wrong" in before[1]
    assert after[0] == 0, after[1]


BROKEN_BY = {
    "row_alone": (  # the second output is smaller, the kernel writes into its first argument, inputs are written out
        """
OP = "gemm"
def run(out, a, b):
    out[...] = a @ b
    if BUG and len(a) == 1:
        out[0, 1] *= a.dtype.type(1.001)
""",
        {"a": (3, 4), "b": (4, 2)},
    ),
    "column_alone": (  # inputs are made by functions, the kernel takes tensors of torch
        """
import torch
OP = "gemm"
BACKEND = "torch"
def run(a, b):
    out = a @ b
    if BUG and b.shape[1] == 1:
        out[1] *= 1.001
    return out
""",
        {"a": (9, 33), "b": (33, 12)},
    ),
    "k_reversed": (  # reversed by the functions that make them
        """
OP = "gemm"
def run(a, b):
    out = a @ b
    if BUG and a[0, 0] > a[0, -1]:
        out[1] *= a.dtype.type(1.01)
    return out
""",
        {"a": (9, 33), "b": (33, 12)},
    ),
    "alpha": (  # other attributes
        """
OP = "gemm"
def run(a, b, alpha):
    return a @ b * a.dtype.type(alpha * (1 + 1e-3 * (BUG and alpha == 2)))
""",
        {"a": (9, 33), "b": (33, 12)},
    ),
    "rows_reversed": (
        """
import numpy as np
OP = "softmax"
def run(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    out = e / e.sum(axis=-1, keepdims=True)
    if BUG and x[0, 0] > x[-1, 0]:
        out[:2] = out[1::-1]
    return out
""",
        {"x": (6, 40)},
    ),
}


@pytest.mark.parametrize("law", BROKEN_BY)
def test_a_law_that_cuts_reverses_or_doubles(tmp_path, law):
    kernel, shapes = BROKEN_BY[law]
    (tmp_path / "unlawful.py").write_text(kernel.replace("BUG", "1"))
    (tmp_path / "lawful.py").write_text(kernel.replace("BUG", "0"))
    subject = user_subject(str(tmp_path / "unlawful.py"), ())
    fills = {n: Fill(distribution="normal", seed=seed) for seed, n in enumerate(shapes, 6)}
    tensors = {n: TensorRecipe(shape=shape, dtype="float32", fill=fills[n]) for n, shape in shapes.items()}
    attrs = {"alpha": 1.0} if law == "alpha" else {}
    finding = observed(Case(op=subject.op, tensors=tensors, attrs=attrs), subject, laws=(law,))
    assert finding.verdict.law == law
    script = written(tmp_path, finding)
    before, after = run_all(tmp_path, [[script], [script, tmp_path / "lawful.py"]])
    e = finding.exhibit.elements[0]
    assert before[0] == 1, before[1]
    assert f"out{list(e.index)} is {e.got!r}, wanted {e.wanted!r}  <- wrong" in before[1]
    assert "not the recorded bytes" not in before[1]
    assert after[0] == 0, after[1]
    assert "<- wrong" not in after[1]
    told = script.read_text()
    assert ("np.flip(array" in told) == law.endswith("_reversed")
    assert ("first_values = first_values[" in told) == bool(finding.exhibit.view)
    assert ("but for 2.0 error budgets" in told or "but for 2 error budgets" in told) == bool(finding.exhibit.within)
    assert ("alpha=2.0" in told) == (law == "alpha")


INVARIANT = {
    "sum": (
        """
import numpy as np
OP = "softmax"
def run(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / (e.sum(axis=-1, keepdims=True) + BUG).astype(x.dtype)
""",
        {"x": (3, 5)},
    ),
    "norm": (
        """
import numpy as np
OP = "rope"
def run(x, style):
    angle = np.arange(len(x))[:, None] * 10000.0 ** -(np.arange(x.shape[2] // 2) / (x.shape[2] // 2))
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    out, half = x.copy(), x.shape[2] // 2
    a, b = x[..., :half].astype(np.float64), x[..., half:].astype(np.float64)
    out[..., :half], out[..., half:] = a * c - b * s, a * s + b * c * (1 + BUG)
    return out
""",
        {"x": (3, 2, 8)},
    ),
}


@pytest.mark.parametrize("law", INVARIANT)
def test_an_invariant(tmp_path, monkeypatch, law):
    """The oracle, which sees such things first, is made to look away."""
    monkeypatch.setattr("kernel_assay.fuzz.checking.check.judge", lambda *_: Verdict(kind=Kind.PASS))
    kernel, shapes = INVARIANT[law]
    (tmp_path / "unlawful.py").write_text(kernel.replace("BUG", "1"))
    (tmp_path / "lawful.py").write_text(kernel.replace("BUG", "0"))
    subject = user_subject(str(tmp_path / "unlawful.py"), ())
    tensors = {"x": TensorRecipe(shape=shapes["x"], dtype="float32", fill=Fill(distribution="normal", seed=3))}
    attrs = {"style": "neox"} if law == "norm" else {}
    finding = observed(Case(op=subject.op, tensors=tensors, attrs=attrs), subject, laws=(law,))
    assert finding.verdict.law == law
    script = written(tmp_path, finding)
    before, after = run_all(tmp_path, [[script], [script, tmp_path / "lawful.py"]])
    g = finding.exhibit.groups[0]
    assert before[0] == 1, before[1]
    of, start = {"sum": "sum", "norm": "length"}[law], np.unravel_index(g.start, finding.exhibit.shape)
    assert f"the {of} of {g.count} elements, first out{[int(i) for i in start]}, is " in before[1]
    assert f", wanted {g.wanted!r}, off by at most {g.bound!r}  <- wrong" in before[1]
    assert after[0] == 0, after[1]
    assert "<- wrong" not in after[1]


# Findings with less in them than one would like.


def silu(kind=Kind.MISMATCH, **verdict):
    """A finding about a kernel that returns zeros."""
    subject = Subject(op="silu", name="zeros", backend="numpy", path="zeros.py")
    made = Verdict(kind=kind, rule="rho", message="wrong", output="out").but(**verdict)
    element = Element(index=(2, 4), got=0.0, wanted=0.5)
    exhibit = Exhibit(output="out", shape=(3, 5), dtype="float32", elements=(element,), returns=True)
    return finding_of(SMALL, subject, made, exhibit)


def outcome(tmp_path, finding, body="def run(x): return x * 0", *argv):
    script = written(tmp_path, finding)
    (tmp_path / "zeros.py").write_text(body)
    (result,) = run_all(tmp_path, [[script, *argv]])
    return result


@pytest.mark.parametrize("body", ["def run(x): return x * 0", "def run(out, x): out[...] = 0"])
def test_a_finding_without_an_exhibit(tmp_path, body):
    worst = Measurement(metric="rho", value=9.0, index=(2, 4), got=0.0, wanted=0.5)
    old = silu(measurements=(worst, Measurement(metric="budget", value=0.125))).but(exhibit=None)
    code, said = outcome(tmp_path, old, body)
    assert code == 1
    assert "out[2, 4] is 0.0, wanted 0.5, error budget 0.125  <- wrong" in said
    bare = silu().but(exhibit=None)
    code, said = outcome(tmp_path, bare, body)
    assert code == 0
    assert "the finding does not say what these elements should be" in said


def test_a_failure_of_all_elements_together(tmp_path):
    wheres = [
        Measurement(metric=m, value=1.0, index=(i, 1), got=0.0, wanted=1e-9) for i, m in enumerate(("rho", "ulp"))
    ]
    finding = silu(rule="z", measurements=wheres)
    finding = finding.but(exhibit=finding.exhibit.but(elements=()))
    assert outcome(tmp_path, finding)[0] == 1
    code, said = outcome(tmp_path, finding, "def run(x): return x * 0 + 1")
    assert code == 0
    assert "out[0, 1] is 1.0, was 0.0, the exact result is 1e-09" in said
    assert "0 of these 2 elements are what they were" in said


def test_another_wrong_value_is_told(tmp_path):
    code, said = outcome(tmp_path, silu(), "def run(x): return x * 0 + 2")
    assert code == 1
    assert "out[2, 4] is 2.0, wanted 0.5, error budget 0.0  <- wrong, but it was 0.0" in said


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (None, "zeros.py is not here; say where the kernel's file is: python reproduce.py FILE\n"),
        ("import kernels.quirks", "ModuleNotFoundError: "),
        ("def other(x): return x", "KeyError: 'run'"),
        ("def run(x): raise ValueError('odd')", "ValueError: odd"),
        ("def run(x): raise SystemExit(0)", "SystemExit: 0"),
        ("def run(x): return x[0]", "IndexError: "),
    ],
)
def test_what_cannot_be_run(tmp_path, body, sentence):
    written(tmp_path, silu())
    if body is not None:
        (tmp_path / "zeros.py").write_text(body)
    result = isolated(tmp_path, "reproduce.py")
    assert result.returncode == 2
    assert sentence in result.stdout
    assert ("not run to the end" in result.stdout) == (body is not None)


def test_declining_is_not_raising(tmp_path):
    code, said = outcome(tmp_path, silu(Kind.RAISED), "def run(x): raise NotImplementedError('not this')")
    assert code == 0
    assert "it declines these inputs: not this" in said


def test_a_kernel_that_does_not_load(tmp_path):
    assert outcome(tmp_path, silu(Kind.BUILD_FAILED), "import nothing_of_that_name")[0] == 1
    assert outcome(tmp_path, silu(Kind.BUILD_FAILED))[0] == 0
    (tmp_path / "zeros.py").unlink()
    assert isolated(tmp_path, "reproduce.py").returncode == 2


@pytest.mark.parametrize("backend", ["cuda", "triton", "cupy"])
def test_what_no_plain_file_can_run(tmp_path, backend):
    finding = silu()
    code, said = outcome(tmp_path, finding.but(subject=finding.subject.but(backend=backend)))
    assert code == 2
    assert f"a kernel for {backend} cannot be run by this file" in said
    assert "out[2, 4] was 0.0, wanted 0.5" in said
    assert "-1.1595725" in said
    text = (tmp_path / "reproduce.py").read_text()
    again = f"kassay replay {finding.case.token} --subject zeros.py:run"
    assert f"as a kernel for {backend} is launched by Kernel Assay only:\n{again}\n" in text


def test_a_kernel_that_no_plain_file_can_run_is_launched_again_as_it_was(tmp_path):
    """On its device, and with what the command line said of it."""
    finding = silu()
    subject = finding.subject.but(
        backend="cuda", path="/somebodys/folder/mine.cu", device="cuda", launch='entry = "mine"\nblock = 96'
    )
    text = written(tmp_path, finding.but(subject=subject)).read_text()
    words = """--subject mine.cu --launch 'entry = "mine"' --launch 'block = 96' --device cuda"""
    assert f"kassay replay {finding.case.token} {words}\n" in text
    ast.parse(text)


def test_bits_of_a_wanted_nan_are_taken_from_the_verdict(planted, tmp_path):
    finding = planted["embedding/bug_nan_canonical"]
    (index,) = (m.index for m in finding.verdict.measurements)
    other = "import numpy as np\ndef run(table, indices):\n    out = table[indices]\n    out[np.isnan(out)] = -np.nan\n"
    (tmp_path / "other.py").write_text(f"{other}    return out\n")
    for old in (finding, finding.but(exhibit=None)):
        script = written(tmp_path, old)
        for argv in ([script], [script, tmp_path / "other.py"]):
            ((code, said),) = run_all(tmp_path, [argv])
            assert code == 1, said
            assert re.search(rf"out{re.escape(str(list(index)))} is .*wanted nan \(0x[0-9a-f]+\)  <- wrong", said)


@pytest.mark.parametrize("noted", [True, False])
def test_copies_are_compared_by_bits(tmp_path, noted):
    """A NaN that lost its payload, in a type that only torch has."""
    recipe = TensorRecipe(shape=(1, 2), dtype="bfloat16", pokes=((0, 0x7F81), (1, 0x8000)))
    (tmp_path / "fine.py").write_text("def run(table): return table.clone()")
    elements = (
        Element(index=(0, 0), got=np.nan, wanted=np.nan, bits=0x7FC0),
        Element(index=(0, 1), got=0.0, wanted=-0.0),
    )
    if noted:
        elements = (elements[0].but(wanted_bits=0x7F81), elements[1].but(wanted_bits=0x8000))
    exhibit = Exhibit(output="out", shape=(1, 2), dtype="bfloat16", elements=elements, returns=True)
    finding = silu(measurements=(Measurement(metric="bits", value=2),)).but(exhibit=exhibit)
    finding = finding.but(
        case=Case(op="copy", tensors={"table": recipe}), subject=finding.subject.but(backend="torch"), input_digest=""
    )
    script = written(tmp_path, finding)
    (tmp_path / "zeros.py").write_text("def run(table): return table + 0")
    before, after = run_all(tmp_path, [[script], [script, tmp_path / "fine.py"]])
    assert before[0] == 1, before[1]
    assert f"out[0, 0] is nan (0x7fc0), wanted nan ({'0x7f81' if noted else 'other bits'})  <- wrong" in before[1]
    assert "out[0, 1] is 0.0 (0x0), wanted -0.0 (0x8000)  <- wrong" in before[1]
    assert after[0] == 0, after[1]


# Texts of strangers.

NASTY = [
    'quotes """ and \'\'\' and "',
    "a line\nimport os; os.abort()\rand\x0cmore\u2028end",
    "coding: utf-7 \\ \\N{DASH} \\x \\",
    "\ud800 lone, \u202e turned, \0 nothing",
    "{braces} {0} %s",
]


@pytest.mark.parametrize("nasty", NASTY)
@pytest.mark.parametrize("kind", [Kind.MISMATCH, Kind.CRASHED, Kind.RAISED, Kind.TIMEOUT])
def test_texts_stay_texts(tmp_path, nasty, kind):
    finding = silu(kind, message=nasty, blame=nasty, rule=nasty, output=nasty)
    case = finding.case.but(tensors={nasty: SMALL.tensors["x"]}, attrs={nasty: nasty, "eps": float("inf")})
    subject = finding.subject.but(name=nasty, function=nasty)
    finding = finding.but(case=case, subject=subject, gates=(nasty,), exhibit=finding.exhibit.but(output=nasty))
    environment = Environment(python=nasty, platform=nasty, machine=nasty, packages={"numpy": nasty})
    (tmp_path / "zeros.py").write_text(
        f"globals()[{nasty!r}] = lambda x, **attrs: attrs == {{{nasty!r}: {nasty!r}, 'eps': float('inf')}} and x * 0\n"
    )
    text = reproducer(finding.but(environment=environment, subject=subject))
    (tmp_path / "reproduce.py").write_text(text, "utf-8")
    assert all(line.isprintable() for line in text.split("\n"))
    code, said = run_all(tmp_path, [[tmp_path / "reproduce.py"]])[0]
    assert code == (kind is Kind.MISMATCH), said
    other = finding.subject.but(path=nasty)
    assert compile(reproducer(finding.but(subject=other)), "reproduce.py", "exec")


def test_tensors_may_be_called_anything(tmp_path):
    """Each name that the file itself uses, as the name of an input, of the output and of the function."""
    (tmp_path / "zeros.py").write_text("def run(x): return x * 0")
    names = sorted({n.id for n in ast.walk(ast.parse(reproducer(silu()))) if isinstance(n, ast.Name)} | {"class", "0x"})
    assert {"np", "values", "put", "print", "WORST"} <= set(names)
    jobs = []
    for i, name in enumerate(names):
        base = silu()
        odd = base.but(
            case=base.case.but(tensors={name: SMALL.tensors["x"]}),
            exhibit=base.exhibit.but(output=name if i % 2 else "out"),
        )
        (tmp_path / f"{i}.py").write_text(reproducer(odd))
        jobs.append([tmp_path / f"{i}.py"])
    assert [code for code, _ in run_all(tmp_path, jobs)] == [1] * len(names)


# Parts.


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_rounding_is_that_of_materialize(name):
    rng = np.random.default_rng(1)
    words = rng.integers(0, 2**64, 200_000, dtype=np.uint64)
    near = np.ldexp(rng.integers(-4096, 4096, 200_000).astype(np.float64), rng.integers(-30, 20, 200_000))
    fmt = format_of(name)
    with np.errstate(all="ignore"):
        short = words.view(np.float32).astype(np.float64)
        values = np.concatenate([words.view(np.float64), short, near, [0.0, -0.0]])
        assert np.array_equal(getattr(narrow, name)(values), values.astype(fmt.dtype).view(fmt.carrier))


def test_an_excerpt_stands_alone():
    found = excerpt(
        [("kernel_assay.corpus.inputs.distributions", "cancellation"), ("kernel_assay.corpus.inputs.field", "Window")]
    )
    text = "\n".join((*found.imports, *found.blocks))
    assert "def paired(self)" in text
    assert "def per_row" not in text
    assert not re.search(r"corpus|NDArray|->|noqa|@distribution", text)
    space = {}
    exec(text, space)
    window = space["Window"](seed=5, origin=(0, 0), shape=(3, 70), format=None)
    recipe = TensorRecipe(shape=(3, 70), dtype="float64", fill=Fill(distribution="cancellation", seed=5))
    assert np.array_equal(space["cancellation"](window), materialize(recipe))


def test_it_is_small_and_tidy(planted):
    for key, finding in planted.items():
        text = reproducer(finding)
        assert len(text.splitlines()) < 300, key
        assert not re.search(r"[ \t]$|\n{4}", text, re.MULTILINE), key
        assert max(map(len, text.splitlines())) <= 180, key
    small = reproducer(observed(SMALL, fault("segfault")))
    assert len(small.splitlines()) < 110


def test_an_attribute_that_the_kernel_does_not_take_is_left_out(tmp_path):
    """A kernel need not take `saturate`; where the file is gone, nobody knows."""
    path = tmp_path / "mine.py"
    path.write_text("OP = 'convert'\n\n\ndef run(out, x, *, to):\n    out[...] = 7\n")
    tensors = {"x": TensorRecipe(shape=(2, 3), dtype="float32", fill=Fill(distribution="ones"))}
    case = Case(op="convert", tensors=tensors, attrs={"to": "float16", "saturate": False})
    finding = observed(case, user_subject(str(path), ()))
    assert finding.verdict.kind is Kind.MISMATCH
    (tmp_path / "again.py").write_text(reproducer(finding))
    assert "saturate" not in reproducer(finding).partition("def main")[2]
    done = subprocess.run([sys.executable, "again.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "reproduced: 6 of 6 elements" in done.stdout) == (1, True), done.stdout + done.stderr
    path.unlink()
    assert "saturate=False" in reproducer(finding)


MASKED = {
    "a default": "def run(out, x, mask=None):\n    out[...] = 7\n",
    "by name only": "def run(x, *, mask, scale=1.0):\n    return x * 0 + 7\n",
    "no default": "def run(out, mask_of, mask):\n    out[...] = 7\n",
    "in a dict": "def run(x, **given):\n    return x * 0 + len(given['mask']) + 6\n",
    "in a dict, beside an output": "def run(out, x, **given):\n    out[...] = len(given['mask']) + 6\n",
}


@pytest.mark.parametrize("body", MASKED.values(), ids=MASKED)
def test_an_optional_input_is_given_by_name(tmp_path, body):
    path = tmp_path / "mine.py"
    path.write_text(f"OP = 'softmax'\n\n\n{body}")
    tensors = {name: TensorRecipe(shape=(1, 3), dtype="float32") for name in ("x", "mask")}
    finding = observed(Case(op="softmax", tensors=tensors, attrs={"scale": 1.0}), user_subject(str(path), ()))
    assert finding.verdict.kind is Kind.MISMATCH, finding.verdict.message
    (tmp_path / "fine.py").write_text(body.replace("7", "1 / 3").replace("+ 6", "* 0 + 2 / 3 - 1 / 3"))
    script = written(tmp_path, finding)
    before, after = run_all(tmp_path, [[script], [script, tmp_path / "fine.py"]])
    assert (before[0], "reproduced: 3 of 3 elements" in before[1]) == (1, True), before[1]
    assert (after[0], "not reproduced: 0 of 3" in after[1]) == (0, True), after[1]
    assert ("mask=mask" in script.read_text()) == (next(n for n, b in MASKED.items() if b == body) != "no default")


def test_an_optional_input_that_a_case_does_not_have_is_not_given(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("OP = 'softmax'\n\n\ndef run(out, x, mask=None):\n    out[...] = 7 if mask is None else mask\n")
    case = Case(op="softmax", tensors={"x": TensorRecipe(shape=(1, 3), dtype="float32")}, attrs={"scale": 1.0})
    script = written(tmp_path, observed(case, user_subject(str(path), ())))
    assert "mask" not in script.read_text().partition("def main")[2]
    assert run_all(tmp_path, [[script]])[0][0] == 1


def test_the_processor_whose_products_numpy_computes_is_named_if_values_decide():
    finding = silu()
    packages = {**finding.environment.packages, "openblas core": "Haswell"}
    there = finding.but(environment=finding.environment.but(packages=packages))
    assert finding.verdict.kind.facts.of_values
    assert finding.subject.backend == "numpy"
    assert "Core:    Haswell; on another processor set OPENBLAS_CORETYPE=Haswell" in reproducer(there)
    nowhere = {n: v for n, v in packages.items() if n != "openblas core"}
    assert "Core:" not in reproducer(finding.but(environment=finding.environment.but(packages=nowhere)))
    raised = there.but(verdict=there.verdict.but(kind=Kind.RAISED))
    assert "Core:" not in reproducer(raised)
