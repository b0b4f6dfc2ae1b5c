"""Outputs that were kept come back bit for bit; what is too large is not kept; nonsense is refused in one sentence."""

import json

import numpy as np
import pytest
from test_store import case

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.corpus.storage.saved_outputs import MOST_BYTES, Kept

SUBJECT = Subject(op="softmax", name="mine", backend="numpy")


@pytest.fixture
def files(tmp_path):
    with Store(tmp_path / "corpus") as made:
        yield made


def kept(contract="", status=Status.OK, **outputs):
    reports = tuple(OutputReport(name=n, shape=a.shape, dtype=a.dtype.name) for n, a in outputs.items())
    execution = Execution(status=status, subject="softmax/mine", outputs=reports, input_digest="d", nanoseconds=7)
    return Kept.of(case(), SUBJECT, execution, Verdict(kind=Kind.MISMATCH, rho=float("inf")), outputs, contract)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (5,), (2, 3, 4)], ids=str)
def test_outputs_of_every_format_and_shape_come_back_bit_for_bit(files, dtype, shape):
    bits = np.random.default_rng(1).integers(0, 256, (*shape, FORMATS[dtype].dtype.itemsize), np.uint8)
    array = bits.view(FORMATS[dtype].dtype).reshape(shape)
    files.keep("one", [kept(out=array)])
    (again,) = files.kept("one")
    found = again.outputs()["out"]
    assert (found.shape, found.dtype, found.tobytes()) == (array.shape, array.dtype, array.tobytes())
    assert again.canonical() == kept(out=array).canonical()


def test_an_output_that_does_not_lie_in_order_is_kept_in_order():
    array = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    assert (kept(out=array).outputs()["out"] == array).all()


def test_an_execution_without_outputs_is_kept_as_such(store):
    store.keep("one", [kept(status=Status.RAISED)])
    assert store.kept("one")[0].outputs() == {}


def test_an_output_whose_bytes_nobody_could_read_is_left_out():
    report = OutputReport(name="out", shape=(2,), dtype="complex64")
    execution = Execution(status=Status.OK, subject="softmax/mine", outputs=(report,))
    strange = Kept.of(case(), SUBJECT, execution, Verdict(kind=Kind.WRONG_DTYPE), {}, "")
    assert strange.outputs() == {}


def test_only_small_outputs_are_kept():
    half = np.zeros(MOST_BYTES // 2, np.uint8)
    assert kept(a=half, b=half) is not None
    assert kept(a=half, b=half, c=half[:1]) is None


def test_what_is_kept_anew_takes_the_place_of_what_was(store):
    store.keep("r1", [kept(out=np.zeros(2)), kept(out=np.ones(3))])
    assert [k.outputs()["out"].size for k in store.kept("r1")] == [2, 3]
    store.keep("r1", [kept(out=np.ones(4))])
    assert [k.outputs()["out"].size for k in store.kept("r1")] == [4]
    store.keep("a2", [])
    assert store.kept("a2") == store.kept("never") == []
    assert store.kept_names() == ["a2", "r1"]


def test_names_that_are_no_file_are_refused(store):
    for name in ("../r1", "", "a/b"):
        with pytest.raises(UsageError, match="cannot name"):
            store.keep(name, [])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda line: line[:-40], "is not JSON"),
        (lambda line: "[]", "no JSON object"),
        (lambda line: line.replace('"verdict":', '"judgement":'), "not a valid kept"),
        (lambda line: line.replace('"schema_version":1', '"schema_version":9', 1), "newer version"),
    ],
)
def test_a_file_that_was_edited_is_named_in_one_sentence(files, spoil, said):
    files.keep("r1", [kept(out=np.ones(2))])
    path = files.root / "local" / "kept" / "r1.jsonl"
    path.write_text(spoil(path.read_text().strip()) + "\n")
    with pytest.raises(UsageError, match=said) as refused:
        files.kept("r1")
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_line_stays_one_line_whatever_was_said(store):
    verdict = Verdict(kind=Kind.RAISED, message="a\u2028b\x85c\udc80\nd")
    execution = Execution(status=Status.RAISED, subject="softmax/mine", message=verdict.message)
    store.keep("r1", [Kept.of(case(), SUBJECT, execution, verdict, {}, "/a b/c.py")] * 2)
    assert [k.verdict.message for k in store.kept("r1")] == [verdict.message] * 2
    assert store.kept("r1")[0].contract == "/a b/c.py"


@pytest.mark.parametrize("payload", ["AAAA", "", "not base64"])
def test_bytes_that_do_not_fit_their_shape_are_the_files_fault(files, payload):
    files.keep("r1", [kept(out=np.ones(2))])
    path = files.root / "local" / "kept" / "r1.jsonl"
    raw = json.loads(path.read_text())
    raw["payload"]["out"] = payload
    path.write_text(json.dumps(raw) + "\n")
    with pytest.raises(UsageError, match=r"'out' is not the bytes of float64 of shape \(2,\)") as refused:
        files.kept("r1")
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_outputs_of_another_recipe_version_are_refused(files):
    files.keep("r1", [kept(out=np.ones(2))])
    path = files.root / "local" / "kept" / "r1.jsonl"
    path.write_text(path.read_text().replace('"generator_version":2', '"generator_version":3'))
    with pytest.raises(UsageError, match="recipe version 3"):
        files.kept("r1")


def test_outputs_of_a_finding_that_is_dropped_are_dropped(store):
    from test_store import finding

    found = store.save_finding(finding())
    store.keep(found.id, [kept(out=np.ones(2))])
    store.drop(found)
    assert store.kept_names() == []
