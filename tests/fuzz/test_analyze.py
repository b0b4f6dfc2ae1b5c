"""Kept outputs are judged again under the contract of today, and nothing is run: what changed is told."""

import base64
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from _command import refused

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.corpus.storage.reading import case_of
from kernel_assay.fuzz.campaign import triage_queue
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.replay.rejudge import analyze, said
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.oracles import catalog
from kernel_assay.oracles.catalog import forget_contracts

CONTRACT = """from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output

CONTRACT = Contract(
    name="twice", summary="twice x", dims={{"n": Dim(0, 64)}}, inputs={{"x": Input(("n",))}},
    outputs={{"out": Output(("n",), like="x")}},
    variants=({{"x": "float16"}},), {more}reference=lambda x: {{"out": x * {times}}},
)
"""
KERNEL = "OP = 'twice'\n\ndef run(out, x):\n    out[...] = x + x\n"
SHORT = ("--cases", "32", "--seed", "1", "--quiet", "--peer", "none")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with a contract of one's own, and a kernel that keeps it."""
    monkeypatch.chdir(tmp_path)
    contract(2)
    Path("mine.py").write_text(KERNEL)
    yield
    forget_contracts()


def contract(times, more=""):
    """Write the contract anew; more: further fields of it."""
    forget_contracts()
    Path("twice_contract.py").write_text(CONTRACT.format(times=times, more=more))


@pytest.fixture
def fuzz(fuzz):
    """A command, which knows of no contract but the ones it names."""

    def call(*words):
        forget_contracts()
        return fuzz(*words)

    return call


def one(op="twice", dtype="float16", shape=(3,)):
    return Case(op=op, tensors={"x": TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution="ones"))})


@cache
def looked(kernel, contract, token):
    """What a run keeps of a kernel's outputs; what lies in the folder is only read the first time."""
    case = case_of(token)
    subject = user_subject("mine.py", (case.op,))
    with Examiner([subject], timeout=5.0) as examiner:
        return examiner.look(case, subject.key).kept


def keep(name="r1", case=None):
    """The outputs of the kernel on a case, kept among those of a run."""
    case = case or one()
    place = ""
    if case.op == "twice":
        place = catalog.add_contract(Path("twice_contract.py")).origin
    kept = looked(Path("mine.py").read_text(), Path("twice_contract.py").read_text(), case.token).but(contract=place)
    with Store(Path("corpus")) as store:
        store.keep(name, [*store.kept(name), kept])
    return kept


# one execution


def test_under_the_same_contract_the_same_is_said():
    again = analyze(keep())
    assert again.verdict == again.kept.verdict
    assert (again.verdict.kind, again.changed, again.telling) == (Kind.PASS, False, True)


def test_what_passed_fails_under_another_contract():
    kept = keep()
    contract(3)
    catalog.add_contract(Path("twice_contract.py"))
    again = analyze(kept)
    assert (again.verdict.kind, again.changed) == (Kind.MISMATCH, True)
    assert "must be 3 " in again.verdict.message


def test_what_failed_passes_under_another_contract():
    contract(3)
    kept = keep()
    assert kept.verdict.kind is Kind.MISMATCH
    contract(2)
    catalog.add_contract(Path("twice_contract.py"))
    again = analyze(kept)
    assert (again.verdict.kind, again.changed) == (Kind.PASS, True)


@pytest.mark.parametrize("shape", [(3, 5), (0, 4)], ids=["full", "empty"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_outputs_of_every_dtype_can_be_judged_again(dtype, shape):
    Path("mine.py").write_text("OP = 'silu'\n\ndef run(out, x):\n    out[...] = 7\n")
    kept = keep(case=one("silu", dtype, shape))
    assert analyze(kept).verdict == kept.verdict


def test_the_outputs_are_judged_not_run_again():
    kept = keep()
    Path("mine.py").unlink()
    wrong = kept.but(payload={"out": base64.b64encode(np.full(3, 7, np.float16).tobytes()).decode()})
    assert analyze(kept).verdict.kind is Kind.PASS
    assert analyze(wrong).verdict.kind is Kind.MISMATCH


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("    raise ValueError('no')\n", Kind.RAISED),
        ("    raise NotImplementedError('not today')\n", Kind.UNSUPPORTED),
        ("    x[...] = 0\n    out[...] = 2\n", Kind.INPUT_MUTATED),
        ("    pass\n", Kind.UNWRITTEN),
    ],
)
def test_what_no_number_decides_is_decided_again(body, kind):
    Path("mine.py").write_text(f"OP = 'twice'\n\ndef run(out, x):\n{body}")
    again = analyze(keep())
    assert (again.verdict.kind, again.changed) == (kind, False)
    assert again.verdict == again.kept.verdict


def test_other_inputs_today_tell_nothing():
    kept = keep()
    other = kept.but(execution=kept.execution.but(input_digest="0" * 32))
    again = analyze(other)
    assert (again.verdict, again.changed, again.telling) == (None, False, False)


def test_what_broke_a_law_stands():
    """Two runs were compared, of which one was kept."""
    kept = keep()
    broken = kept.but(verdict=Verdict(kind=Kind.MISMATCH, rule="law:negation", message="not odd"))
    again = analyze(broken)
    assert (again.verdict, again.changed, again.telling) == (broken.verdict, False, False)


def test_an_op_nobody_knows_is_refused():
    kept = keep()
    forget_contracts()
    with pytest.raises(UsageError, match="op 'twice' is not known"):
        analyze(kept)


def test_the_words_for_a_verdict():
    assert said(None) == "inputs drifted"
    assert said(Verdict(kind=Kind.PASS, rho=0.12345)) == "pass (budget used 0.123)"
    assert said(Verdict(kind=Kind.MISMATCH, rho=7.0)) == "mismatch"


# the command


def test_nothing_kept_is_no_failure(fuzz):
    code, out, err = fuzz("analyze")
    assert (code, err) == (0, "")
    assert "no outputs are kept" in out
    assert not Path("corpus").exists(), "a look changes nothing"


def test_a_contract_that_is_edited_changes_verdicts(fuzz):
    keep("r1")
    keep("r2")
    code, out, _ = fuzz("analyze")
    assert (code, out) == (0, "2 judged again, 0 changed\n")
    contract(3)
    code, out, err = fuzz("analyze")
    assert (code, err) == (1, "")
    assert out.endswith("2 judged again, 2 changed\n")
    rows = [line.split() for line in out.splitlines()[1:3]]
    assert [row[:2] for row in rows] == [["r1", "twice/mine"], ["r2", "twice/mine"]]
    assert all("pass (budget used 0)" in line and "mismatch" in line for line in out.splitlines()[1:3])
    assert one().label in out


def test_only_what_is_named_is_judged(fuzz):
    keep("r1")
    keep("r2")
    contract(3)
    _, out, _ = fuzz("analyze", "r2")
    assert "1 judged again, 1 changed" in out
    assert "r1" not in out


def test_the_file_of_json_tells_of_all(fuzz):
    keep("r1")
    other = keep("r1", case=one(shape=(4,)))
    assert fuzz("analyze", "--json", "x.json")[0] == 0
    rows = json.loads(Path("x.json").read_text())
    assert [row["then"] for row in rows] == [row["now"] for row in rows]
    assert rows[1]["case_id"] == other.case.id
    assert {(row["kept"], row["subject"]) for row in rows} == {("r1", "twice/mine")}
    contract(3)
    assert fuzz("analyze", "--json", "x.json")[0] == 1
    assert {row["now"] for row in json.loads(Path("x.json").read_text())} == {"mismatch"}


def test_json_stands_alone_on_standard_output(fuzz):
    keep("r1")
    contract(3)
    code, out, _ = fuzz("analyze", "--json", "-")
    assert code == 1
    assert json.loads(out)[0]["now"] == "mismatch"


def test_what_cannot_be_told_is_counted(fuzz):
    kept = keep("r1")
    law = kept.but(verdict=Verdict(kind=Kind.MISMATCH, rule="law:negation", message="not odd"))
    drifted = kept.but(execution=kept.execution.but(input_digest="0" * 32))
    with Store(Path("corpus")) as store:
        store.keep("r1", [kept, law, drifted, drifted])
    code, out, _ = fuzz("analyze")
    assert code == 0
    assert out == (
        "4 judged again, 0 changed; 2 with other inputs today; "
        "1 broke a law, of which one run was kept: what was said stands\n"
    )


def test_a_finding_is_named_by_the_beginning_of_its_id(fuzz):
    Path("mine.py").write_text(KERNEL + "    out[-1:] = 5\n")
    code, _, _ = fuzz("run", "--contract", "twice_contract.py", "--subject", "mine.py", *SHORT)
    assert code == 1
    with Store(Path("corpus")) as store:
        found = next(f for f in store.findings() if f.case.label == "twice float16 x=1:zeros")
    code, out, _ = fuzz("analyze", found.id[:8])
    assert (code, out) == (0, "1 judged again, 0 changed\n")
    contract("2 + 5")
    code, out, _ = fuzz("analyze", found.id)
    assert (code, "1 judged again, 1 changed" in out) == (1, True)


def test_a_run_keeps_its_closest_calls_for_this(fuzz):
    """A search that finds nothing, and a reviewer who comes later and finds the contract too wide."""
    Path("mine.py").write_text(KERNEL.replace("x + x", "x * 2.01"))
    contract(2, more="factor=1e9, ")
    assert fuzz("run", "--contract", "twice_contract.py", "--subject", "mine.py", *SHORT)[0] == 0
    with Store(Path("corpus")) as store:
        run, names = store.runs()[0], store.kept_names()
        near = store.kept(run)
    assert names == [run]
    assert all(k.verdict.kind is Kind.PASS and k.verdict.rho > 0 for k in near)
    assert fuzz("analyze")[0] == 0
    contract(2)
    code, out, _ = fuzz("analyze", run)
    assert (code, f"{len(near)} judged again, {len(near)} changed" in out) == (1, True)


@pytest.mark.parametrize("most", [0, 8, 1 << 20])
def test_what_a_run_keeps_has_a_limit(fuzz, monkeypatch, most):
    monkeypatch.setattr(triage_queue, "MOST_KEPT", most)
    Path("mine.py").write_text(KERNEL + "    if x.size == 3:\n        out[-1:] = 5\n")
    fuzz("run", "--contract", "twice_contract.py", "--subject", "mine.py", *SHORT)
    with Store(Path("corpus")) as store:
        sizes = [each.size for name in store.kept_names() for each in store.kept(name)]
    assert sum(sizes) <= most
    assert bool(sizes) is bool(most)


@pytest.mark.parametrize("target", ["nobody", "r9"])
def test_a_name_of_nothing_is_refused(fuzz, target):
    keep("r1")
    refused(fuzz("analyze", target), repr(target))


def test_a_run_that_kept_nothing_is_told_so(fuzz):
    keep("other")
    Path("mine.py").write_text(KERNEL + "    raise ValueError('no')\n")
    fuzz("run", "--contract", "twice_contract.py", "--subject", "mine.py", *SHORT)
    with Store(Path("corpus")) as store:
        run = store.runs()[0]
    refused(fuzz("analyze", run), run, "no outputs")


def test_a_finding_of_which_nothing_was_kept_is_told_so(fuzz):
    Path("mine.py").write_text(KERNEL + "    out[-1:] = 5\n")
    fuzz("run", "--contract", "twice_contract.py", "--subject", "mine.py", *SHORT)
    with Store(Path("corpus")) as store:
        found = store.findings()[0]
    Path(f"corpus/local/kept/{found.id}.jsonl").unlink()
    refused(fuzz("analyze", found.id), found.id, "were kept")


def test_a_contract_that_is_gone_can_be_named_anew(fuzz):
    keep("r1")
    Path("twice_contract.py").rename("moved.py")
    refused(fuzz("analyze"), "twice_contract.py does not exist", "--contract")
    assert fuzz("analyze", "--contract", "moved.py")[:2] == (0, "1 judged again, 0 changed\n")


def test_the_contract_on_the_command_line_counts(fuzz):
    """A draft can be tried on what is kept before it takes the place of the one in use."""
    keep("r1")
    Path("draft.py").write_text(CONTRACT.format(times=3, more=""))
    assert fuzz("analyze", "--contract", "draft.py")[0] == 1
    assert fuzz("analyze")[0] == 0


def test_a_contract_of_the_house_that_changed(fuzz, monkeypatch):
    silu = (Path(catalog.__file__).parents[1] / "kernels" / "silu" / "numpy_float32.py").read_text()
    Path("mine.py").write_text("OP = 'silu'\n" + silu.partition('"""\n')[2])
    keep("r1", case=one("silu", "float16", (2, 3)))
    assert fuzz("analyze")[0] == 0
    old = catalog.load_contracts()["silu"]
    other = replace(old, reference=lambda x: {"out": x * 0.0}, budget=None)
    monkeypatch.setattr("kernel_assay.fuzz.replay.rejudge.contract_of", lambda op: other)
    code, out, _ = fuzz("analyze")
    assert (code, "1 judged again, 1 changed" in out) == (1, True)
