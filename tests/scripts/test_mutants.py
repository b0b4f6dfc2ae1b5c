"""The benchmark of mutants: what its operators change, what they leave, and what it says of each mutant."""

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from test_nightly import module_of

from kernel_assay.corpus.model.subject import Subject

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
KERNEL = '''"""Twice x, if 1 < 2."""

OP = "silu"
BACKEND = "numpy"
NUMERICS = {"accumulate": "float32",
    "ftz": 1 < 2}


def run(out, x):
    out[...] = x + 2  # but 3 < 4
'''
CUDA = """/*
Twice x.
---
op = "silu"
grid = "ceil_div(n, 256)"
block = 256
---
*/
#include <cuda_fp16.h>
#define N 8

__global__ void silu(float* out, const float* x, int n) {
  const int i = N;
  if (i < n) out[i] = x[i];
  __syncthreads();  // barrier 2
}
"""


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    return module_of(BENCH / "mutants", monkeypatch)


@pytest.fixture
def mutation(script):
    return sys.modules["_mutation"]


@pytest.fixture
def trials(script):
    return sys.modules["_mutant_trials"]


def changed(mutation, text, language):
    table = mutation.operators().values()
    return {(o.name, text[b:e], new) for o in table for b, e, new in o.places(text, language)}


def test_only_code_is_changed(mutation):
    assert changed(mutation, KERNEL, "python") == {
        ("constant nudged", "2", "3"),
        ("sign turned", " + ", " - "),
    }


def test_launches_are_changed_where_they_are_said(mutation):
    found = changed(mutation, CUDA, "cuda")
    assert {name for name, *_ in found} == {
        "another size of the block", "barrier in a branch", "barrier removed", "bound relaxed", "grid rounded down",
        "guard dropped",
    }  # fmt: skip
    assert ("grid rounded down", "ceil_div(n, 256)", "(n / 256)") in found


def test_the_table_has_every_kind_of_bug_and_a_source_for_each(mutation):
    table = mutation.operators()
    assert len(table) >= 25
    assert len({o.family for o in table.values()}) == 12
    assert all("#" in o.source or "the study" in o.source or "PyPI" in o.source for o in table.values())


@pytest.mark.parametrize("language", ["cuda", "triton", "python"])
def test_each_operator_changes_some_kernel_that_is_built_in(script, mutation, language):
    clean = [s for s in script.select([], planted=False) if s.backend in script.LANGUAGES]
    texts = [mutation.source_of(s) for s in clean if mutation.language_of(s) == language]
    for operator in (o for o in mutation.operators().values() if getattr(o, language)):
        text, place = next((t, p) for t in texts for p in operator.places(t, language))
        edit = mutation.edit_of(text, *place)
        assert text.count(edit.old) == 1, operator.name
        assert edit.new != edit.old, operator.name


@pytest.fixture
def subject(tmp_path):
    path = tmp_path / "right.py"
    path.write_text(KERNEL)
    return Subject(op="silu", name="right", backend="numpy", path=str(path))


def test_each_is_made_once_in_an_order_of_the_seed(mutation, subject, tmp_path):
    made = [list(mutation.mutants([subject], tmp_path, seed)) for seed in range(8)]
    assert {frozenset(m.sources[1] for m in mutants) for mutants in made} == {
        frozenset(KERNEL.replace("x + 2", new) for new in ("x - 2", "x + 3"))
    }
    assert len({mutants[0].operator for mutants in made}) == 2
    assert [m.id for m in made[0]] == [m.id for m in mutation.mutants([subject], tmp_path, 0)]
    assert len({m.path for m in made[0]}) == 2


@pytest.mark.parametrize(("before", "after", "fate"), [
    ("np.exp(-", "np.exp(", "detected"),
    ("np.float32(1)", "np.float32(1.0)", "survives"),
    ("import numpy as np", "import nump as np", "cannot run"),
])  # fmt: skip
def test_what_comes_of_them(mutation, trials, tmp_path, monkeypatch, before, after, fate):
    text = (
        'import numpy as np\nOP = "silu"\nBACKEND = "numpy"\nDTYPES = ("float16",)\n\n\n@np.errstate(all="ignore")\n'
        "def run(out, x):\n    out[...] = x / (np.float32(1) + np.exp(-x.astype(np.float32)))\n"
    )
    monkeypatch.setattr(trials, "COMPARED", 32)
    path, begin = tmp_path / "right.py", text.index(before)
    path.write_text(text)
    subject = Subject(op="silu", name="right", backend="numpy", path=str(path), dtypes=("float16",))
    mutant = mutation.Mutant(subject, "constant nudged", tmp_path / "m1_right.py", begin, begin + len(before), after)
    limit = 1.0 if fate == "survives" else 30.0
    found = trials.attempt(trials.Task(mutant, 1, limit, time.monotonic() + 60))
    assert (found.fate, bool(found.verdict)) == (fate, fate != "survives")
    assert trials.attempt(trials.Task(mutant, 1, 1.0, time.monotonic() - 1)) is None
    if fate == "detected":
        changed = trials.user_subject(str(mutant.path), ("silu",))
        assert trials.differs(subject, changed, trials.drawn(subject, 1), 32)[0]
    if fate == "survives":
        assert (found.triggered, found.reached, found.compared) == (False, True, 32)
        assert trials.why_equivalent(found) == "by the record: the same bits on 32 cases"
        assert not trials.why_equivalent(found.but(operator="barrier removed"))
        assert not trials.why_equivalent(found.but(triggered=True))
        assert trials.why_equivalent(found.but(proved=True)) == "by proof: the same bits on every input"


def test_people_say_what_no_machine_knows(trials, mutation):
    one = trials.Trial(
        mutant="m", kernel="gemm/numpy_blas", operator="what is multiplied by zero is read", old="a", new="b", seed=1,
        limit=1.0, fate="survives", triggered=True,
    )  # fmt: skip
    assert trials.why_equivalent(one).startswith("by hand: the op's contract leaves open")
    assert not trials.why_equivalent(one.but(kernel="softmax/numpy_float32"))
    assert not trials.why_equivalent(one.but(fate="detected"))
    assert not trials.noted(one, "survivor")
    assert "32,767" in trials.noted(one.but(kernel="embedding/triton_rows", operator="index too narrow"), "survivor")
    words = trials.tomllib.loads(trials.BY_HAND.read_text())
    assert {w["operator"] for some in words.values() for w in some if "operator" in w} <= mutation.operators().keys()


def test_a_statement_is_stopped_at_where_it_begins(trials):
    def begins(text, part, language):
        place = trials._statement(text, text.index(part), language)
        return None if place is None else text[place:].lstrip().splitlines()[0]

    assert begins(CUDA, "out[i] =", "cuda") == "if (i < n) out[i] = x[i];"
    assert begins(CUDA, "define N", "cuda") is None
    several = "def run(out):\n    y = (\n        1 +\n        2)\n    return y\n"
    assert begins(several, "2)", "python") == "y = ("
    assert begins(KERNEL, "numpy", "python") is None


def test_an_idea_is_left_out_by_a_switch_of_its_own(script):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import _bench, _ideas\n"
        "from kernel_assay.fuzz.generation import engines\n"
        "from kernel_assay.fuzz.generation.elites import Elites\n"
        "from kernel_assay.kernels.backends.simt.schedule import is_checked\n"
        "from kernel_assay.oracles.catalog import contract_of\n"
        "target = [engines.Target(contract_of('gemm'))]\n"
        "def drawn(): return [engines.propose(target, 1, n, Elites()).case for n in range(150)]\n"
        "def seen(cases):\n"
        "    tensors = [t for c in cases for t in c.tensors.values()]\n"
        "    probes = any(t.fill.distribution == 'exact_integers' and 'bound' in t.fill.params for t in tensors)\n"
        "    layouts = {t.layout for t in tensors} > {'contiguous'}\n"
        "    return any(map(is_checked, cases)), any(t.pokes for t in tensors), layouts, probes\n"
        "print(seen(drawn()))\n"
        "for name in ('check mode', 'pokes', 'layouts', 'exact probes'): _ideas.IDEAS[name]()\n"
        "print(seen(drawn()))\n"
    )
    said = subprocess.run([sys.executable, "-c", code, str(BENCH)], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [str((True,) * 4), str((False,) * 4)], said.stderr


def test_trials_are_kept_and_survivors_shown(tmp_path):
    words = (
        "silu/numpy_fast_math",
        "--count",
        "2",
        "--limit",
        "0.5",
        "--right",
        "0.2",
        "--jobs",
        "1",
        "--keep",
        tmp_path,
    )
    first, again = (
        subprocess.run([BENCH / "mutants", *words], capture_output=True, text=True, check=False, timeout=150)
        for _ in range(2)
    )
    counts = Counter(line.partition(":")[0] for line in first.stdout.splitlines() if "silu/numpy_fast_math," in line)
    kept = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert kept[0]["packages"]["numpy"]
    assert Counter(t["fate"] for t in kept[1:] if t["operator"] != "none") == counts - Counter(
        {"missed": counts["missed"]}
    )
    assert again.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]
    assert first.stdout.splitlines()[-1].startswith(f"mutants: detected {counts['detected']} of ")
    assert "0 right accused (goal 99 %, 0)" in first.stdout
    assert len(kept) == 4
    assert (first.returncode, first.stderr, again.stderr) == (0, "", "")


def test_what_an_idea_is_worth_is_said_of_the_same_trials(script, trials, capsys):
    def made(name, seconds, without=""):
        fate = {"fate": "detected", "seconds": seconds} if seconds else {"fate": "survives"}
        return trials.Trial(
            mutant=name, kernel="k", operator="sign turned", old="", new="", seed=1, without=without, limit=60.0, **fate
        )

    real = {str(n): [made(str(n), 1.0 + n)] for n in range(6)}
    others = {str(n): [made(str(n), 20.0 + n if n else 0.0, "elites")] for n in range(5)}
    script.tell_worth("elites", real, others)
    script.tell_survival([t for some in real.values() for t in some] + [made("late", 0.0)])
    worth, _, survival = capsys.readouterr().out.splitlines()
    assert worth.startswith(
        "without elites: 1 of 5 trials miss it, with it 0 of 5 (Fisher p 1); in seconds A12 1.000, Mann-Whitney p 0.00"
    )
    assert survival == (
        "not found yet: 85.7% after 1 s, 71.4% after 2 s, 28.6% after 5 s, 14.3% after 10 s, 14.3% after 20 s, "
        "14.3% after 60 s"
    )


def test_a_name_of_nothing_is_refused():
    done = subprocess.run([BENCH / "mutants", "nothing"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    sentence = "mutants: nothing is no file, and no clean built-in subject, op or backend; see --help"
    assert done.stderr.splitlines() == [sentence]
