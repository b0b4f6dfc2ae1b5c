"""Identity of records: ids are addresses in other people's files, so they must never change by accident."""

import base64
import json
import math
import warnings
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from pydantic import ValidationError

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS, bits_of, spelled
from kernel_assay.corpus.model.base import GENERATOR_VERSION, SCHEMAS
from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.case import TOKEN, Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.findings import Environment, Finding, State
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Measurement, Signature, Verdict
from kernel_assay.corpus.storage import migrate
from kernel_assay.corpus.storage.file_store import Store, load_record
from kernel_assay.corpus.storage.reading import case_of

PLAIN = Case(op="softmax", tensors={"x": TensorRecipe(shape=(3, 5), dtype="float32")})
RICH = Case(
    op="gemm",
    tensors={
        "b": TensorRecipe(shape=(33, 65), dtype="float16", fill=Fill(distribution="normal", seed=7, scale=100.0)),
        "a": TensorRecipe(
            shape=(2, 33),
            dtype="int8",
            origin=(0, 4),
            layout="transposed",
            fill=Fill(distribution="uniform", params={"below": 9}),
            specials=(Special(value="nan", place="last"),),
            pokes=((3, 0x7F), (4, 1)),
        ),
    },
    attrs={"alpha": 0.5, "trans": True, "axis": -1, "mode": "up"},
)
SIGNATURE = Signature(op="softmax", subject="softmax/bad", kind=Kind.MISMATCH, rule="rho", dtype="float32")
FINDING = Finding(
    signature=SIGNATURE,
    case=PLAIN,
    original=RICH,
    subject=Subject(op="softmax", name="bad", backend="numpy"),
    verdict=Verdict(kind=Kind.MISMATCH, rule="rho", signature=SIGNATURE, rho=math.inf),
    environment=Environment(python="3.11", platform="linux", machine="x86_64"),
)


def test_ids_are_what_they_always_were():
    """If this fails, every stored case has lost its name: raise SCHEMA_VERSION and write a migration, or undo it."""
    assert PLAIN.id == "35a2e92c1a587d0d"
    assert RICH.id == "76c62a14a1bb641e"
    assert SIGNATURE.id == FINDING.id == "39f4081c299371e7"
    assert Case(op="x", tensors={}).canonical() == (
        '{"attrs":{},"generator_version":2,"op":"x","schema_version":1,"tensors":{}}'
    )


CHANGES = {
    "generator_version": 3,
    "op": "softmax2",
    "attrs": {"axis": 0},
    "tensors": {"y": PLAIN.tensors["x"]},
    "outputs": {"out": "offset_one"},
    "contracted": True,
}
TENSOR_CHANGES = {
    "shape": (5, 3),
    "dtype": "float64",
    "origin": (0, 1),
    "layout": "row_gaps",
    "fill": Fill(seed=1),
    "specials": (Special(value="inf", place="first"),),
    "pokes": ((0, 1),),
}
FILL_CHANGES = {"distribution": "ones", "seed": 1, "scale": 2.0, "params": {"below": 2}}


def test_the_id_depends_on_every_field():
    # schema_version can have one value only; a field added later must be added to the tables here.
    assert {*CHANGES, "schema_version"} == set(Case.model_fields)
    assert set(TENSOR_CHANGES) == set(TensorRecipe.model_fields)
    assert set(FILL_CHANGES) == set(Fill.model_fields)
    x = PLAIN.tensors["x"]
    cases = [PLAIN, *(PLAIN.but(**{name: value}) for name, value in CHANGES.items())]
    cases += [PLAIN.but(tensors={"x": x.but(**{name: value})}) for name, value in TENSOR_CHANGES.items()]
    cases += [
        PLAIN.but(tensors={"x": x.but(fill=x.fill.but(**{n: v}))}) for n, v in FILL_CHANGES.items() if n != "seed"
    ]
    assert len({case.id for case in cases}) == len(cases)


def test_that_a_case_is_contracted_is_only_written_where_it_is():
    """Cases of before have the ids they had, and the build they had."""
    fused = PLAIN.but(contracted=True)
    assert "contracted" not in PLAIN.plain()
    assert fused.label == PLAIN.label + " contracted"
    for again in (case_of(fused.token), Case.model_validate_json(fused.canonical())):
        assert (again.id, again.contracted) == (fused.id, True)


def test_layouts_of_outputs_are_only_written_where_there_are_any():
    """Cases of before have the ids they had, and can be read where nobody knows of such layouts."""
    moved = PLAIN.but(outputs={"out": "offset_one"})
    assert "outputs" not in PLAIN.plain()
    assert moved.but(outputs={}).id == PLAIN.id
    assert moved.label == PLAIN.label + " out/offset_one"
    for again in (case_of(moved.token), Case.model_validate_json(moved.canonical())):
        assert (again.id, again.outputs) == (moved.id, {"out": "offset_one"})


def test_a_run_that_has_moved_on_is_like_one_that_was_validated():
    where = Environment(python="3.12", platform="x", machine="y")
    run = Campaign(run="r", seed=1, environment=where, coverage={"a|b": 3}, next_index=32)
    assert run.id != run.moved(64).id == run.but(next_index=64).id
    assert run.next_index == 32


def test_a_finding_is_its_signature():
    assert FINDING.but(count=9, case=RICH, state=State.OPEN, expect="fail").id == FINDING.id
    for name in Signature.model_fields:
        value = Kind.RAISED if name == "kind" else "other"
        assert FINDING.but(signature=SIGNATURE.but(**{name: value})).id != FINDING.id, name


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nonfinite_numbers_keep_identity_and_value(value):
    case = PLAIN.but(attrs={"bound": value})
    again = Case.model_validate(json.loads(json.dumps(case.plain(), allow_nan=False)))
    assert again.id == case.id
    assert isinstance(again.attrs["bound"], float)
    assert repr(again.attrs["bound"]) == repr(value)
    measured = Measurement(metric="max_abs", value=value, got=value)
    assert repr(Measurement.model_validate_json(measured.model_dump_json()).value) == repr(value)
    assert json.loads(measured.canonical())["got"] == json.loads(measured.model_dump_json())["got"]


def test_equal_cases_with_nan_have_one_id():
    one, two = (PLAIN.but(attrs={"bound": float("nan")}) for _ in range(2))
    assert one.id == two.id


def test_nonfinite_numbers_of_different_kind_differ():
    ids = {PLAIN.but(attrs={"bound": v}).id for v in (math.nan, math.inf, -math.inf, 0.0, -0.0)}
    assert len(ids) == 5


@pytest.mark.parametrize("record", [PLAIN, RICH, FINDING, SIGNATURE], ids=lambda r: type(r).__name__)
def test_round_trip_keeps_the_id_and_the_order_of_inputs(record):
    for text in (json.dumps(record.plain(), allow_nan=False), record.model_dump_json()):
        again = type(record).model_validate_json(text)
        assert again.id == record.id
        assert again.canonical() == record.canonical()
        if isinstance(record, Case):
            assert list(again.tensors) == list(record.tensors)
            assert again.label == record.label


def test_attribute_types_survive():
    again = Case.model_validate_json(RICH.model_dump_json())
    assert [type(v) for v in again.attrs.values()] == [float, bool, int, str]
    assert PLAIN.but(attrs={"a": 1}).id != PLAIN.but(attrs={"a": True}).id


def test_but_does_not_carry_ids_or_labels_along():
    assert PLAIN.id
    assert PLAIN.label
    changed = PLAIN.but(op="other")
    assert changed.id == Case(op="other", tensors=PLAIN.tensors).id != PLAIN.id
    assert changed.label.startswith("other ")
    assert PLAIN.but().id == PLAIN.id


def test_but_refuses_what_the_constructor_refuses():
    with pytest.raises(ValidationError, match="tpyo"):
        PLAIN.but(tpyo=1)
    with pytest.raises(ValidationError, match="shape"):
        PLAIN.tensors["x"].but(shape=(-1,))
    assert Fill().but(scale=2).canonical() == Fill(scale=2.0).canonical()


def test_records_are_frozen_and_closed():
    with pytest.raises(ValidationError, match="frozen"):
        PLAIN.op = "other"
    with pytest.raises(ValidationError, match="Extra inputs"):
        Case(op="x", tensors={}, colour="red")
    with pytest.raises(ValidationError, match="schema_version"):
        Case(op="x", tensors={}, schema_version=2)


def test_every_record_type_is_frozen_and_closed():
    kinds = [
        Campaign,
        Case,
        Environment,
        Fill,
        Finding,
        Measurement,
        Signature,
        Special,
        Subject,
        TensorRecipe,
        Verdict,
    ]
    for kind in kinds:
        assert kind.model_config["frozen"], kind
        assert kind.model_config["extra"] == "forbid", kind


@pytest.mark.parametrize("field", ["shape", "origin"])
def test_negative_extents_are_refused(field):
    with pytest.raises(ValidationError, match=field):
        TensorRecipe(**{"shape": (2,), "dtype": "float32", field: (-1,)})


@pytest.mark.parametrize("poke", [(-1, 0), (0, -1)])
def test_negative_pokes_are_refused(poke):
    with pytest.raises(ValidationError, match="pokes"):
        TensorRecipe(shape=(2,), dtype="float32", pokes=(poke,))


POKED = TensorRecipe(shape=(9,), dtype="float32", pokes=((0, 0x7FC00000), (3, 0xFF800000), (4, 1), (8, 0x3FC00000)))


@pytest.mark.parametrize("dtype", [name for name, fmt in FORMATS.items() if fmt.is_float])
def test_a_signalling_nan_is_spelled_without_a_warning(dtype):
    fmt = FORMATS[dtype]
    for pattern in (fmt.nan_bits, (fmt.inf_bits if fmt.has_inf else fmt.nan_bits - 1) + 1, fmt.sign_bit | fmt.nan_bits):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert spelled(pattern, dtype) == "nan"


def test_labels_spell_out_what_was_written():
    assert Case(op="x", tensors={"a": POKED}).label == "x float32 a=9:zeros+nan@0+-inf@3+1e-45(subnormal)@4+1.5@8"
    many = POKED.but(pokes=tuple((i, i << 20) for i in range(7)))
    assert Case(op="x", tensors={"a": many}).label.endswith("+3 more")
    whole = POKED.but(dtype="int32", pokes=((0, 0xFFFFFFFF), (1, 7)))
    assert Case(op="x", tensors={"a": whole}).label == "x int32 a=9:zeros+-1@0+7@1"
    assert "0x1ff" in Case(op="x", tensors={"a": POKED.but(dtype="int8", pokes=((0, 0x1FF),))}).label


def test_labels():
    assert PLAIN.label == "softmax float32 x=3x5:zeros"
    assert RICH.label == (
        "gemm float16 b=33x65:normal*100#7 a=2x33:uniform:int8/transposed+nan@last+127@3+1@4 "
        "alpha=0.5 trans=True axis=-1 mode=up"
    )
    assert Case(op="x", tensors={"a": TensorRecipe(shape=(), dtype="int8")}).label == "x int8 a=scalar:zeros"


def test_sizes():
    assert RICH.elements == 33 * 65 + 2 * 33
    assert TensorRecipe(shape=(), dtype="int8").size == 1
    assert TensorRecipe(shape=(3, 0), dtype="int8").size == 0
    assert (RICH.dtype, Case(op="x", tensors={}).dtype) == ("float16", "none")


def test_signature_key_is_one_path_component():
    assert SIGNATURE.key == "softmax-softmax_bad-mismatch-rho-float32-none-none"


def test_bits_of():
    assert bits_of(1.0, np.dtype(np.float32)) == 0x3F800000
    assert bits_of(-0.0, np.dtype(np.float16)) == 0x8000
    assert bits_of(-1, np.dtype(np.int8)) == 0xFF
    assert bits_of(math.inf, np.dtype(ml_dtypes.bfloat16)) == 0x7F80


# records from anywhere


def written(tmp_path, value) -> Path:
    path = tmp_path / "mail.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_load_record_takes_findings_and_cases(tmp_path):
    for record in (PLAIN, FINDING):
        loaded = load_record(written(tmp_path, record.plain()))
        assert type(loaded) is type(record)
        assert loaded.id == record.id
    assert isinstance(Store.load_record(tmp_path / "mail.json"), Finding)


CASE = PLAIN.plain()
FOUND = FINDING.plain()
NONSENSE = [
    ("{", "is not JSON"),
    ("[1]", "no JSON object"),
    ("[" * 100_000, "is not JSON"),
    ({"x": 1}, "neither a finding"),
    ({**CASE, "colour": 1}, "not a valid case: colour: Extra inputs"),
    ({**CASE, "tensors": {"x": {"shape": [-2], "dtype": "int8"}}}, r"tensors\.x\.shape\.0"),
    ({**FOUND, "count": "many"}, "not a valid finding: count"),
    ({**FOUND, "state": "asleep"}, "state"),
    ({**CASE, "schema_version": 3}, r"was written by a newer version \(schema 3, this one reads up to 1\)"),
    ({**FOUND, "case": {**CASE, "schema_version": 3}}, "the case was written by a newer version"),
    ({**CASE, "schema_version": 0}, "schema 0"),
    ({**CASE, "schema_version": "1"}, "no whole number"),
    ({**CASE, "generator_version": 3}, "generated by recipe version 3, this one makes version 2: its inputs would"),
    ({**FOUND, "case": {**CASE, "generator_version": 0}}, "recipe version 0"),
]  # fmt: skip


OLD_FILL = {"distribution": "normal", "seed": 5, "scale": 30.0, "params": {"shift": 2.0, "flip": 0}}


def old(dtype, **fill):
    tensor = {"shape": [2, 3], "dtype": dtype, "fill": {**OLD_FILL, **fill}}
    return {"schema_version": 1, "generator_version": 1, "op": "silu", "tensors": {"x": tensor}, "attrs": {}}


def test_recipes_of_version_1_keep_their_bytes(tmp_path):
    """They knew neither scale nor shift for float64, unless a distribution made bit patterns, which has none anyway."""
    now = {d: load_record(written(tmp_path, old(d))).tensors["x"].fill for d in ("float64", "float32")}
    assert now["float64"] == Fill(distribution="normal", seed=5, params={"flip": 0})
    assert now["float32"] == Fill(**OLD_FILL)
    patterns = load_record(written(tmp_path, old("float64", distribution="raw_bits")))
    assert patterns.tensors["x"].fill.scale == 30.0
    assert patterns.generator_version == GENERATOR_VERSION
    found = load_record(written(tmp_path, {**FOUND, "original": old("float64")}))
    assert found.original.tensors["x"].fill.scale == 1.0
    word = TOKEN + base64.urlsafe_b64encode(zlib.compress(json.dumps(old("float64")).encode())).decode().rstrip("=")
    assert case_of(word).tensors["x"].fill == now["float64"]


@pytest.mark.parametrize("tensors", [3, {"x": 3}, {"x": {"shape": [2], "dtype": "float64", "fill": 3}}])
def test_old_recipes_that_are_none_are_refused(tmp_path, tensors):
    with pytest.raises(UsageError, match="case"):
        load_record(written(tmp_path, {**old("float64"), "tensors": tensors}))


@pytest.mark.parametrize(("value", "message"), NONSENSE, ids=[m[:30] for _, m in NONSENSE])
def test_load_record_refuses_in_one_sentence_that_names_the_file(tmp_path, value, message):
    path = written(tmp_path, value)
    with pytest.raises(UsageError, match=message) as error:
        load_record(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_load_record_refuses_what_is_no_text_file(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        load_record(tmp_path / "nowhere.json")
    with pytest.raises(UsageError, match="cannot be read"):
        load_record(tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="no UTF-8"):
        load_record(tmp_path / "bytes")


# migrations


def test_without_a_step_an_old_schema_is_refused_by_name():
    with pytest.raises(UsageError, match="the campaign has schema 0"):
        migrate.upgrade({"schema_version": 0}, "campaign")


def test_every_old_schema_has_a_step():
    for kind, version in SCHEMAS.items():
        assert {(kind, v) for v in range(1, version)} == {at for at in migrate.MIGRATIONS if at[0] == kind}


def test_a_finding_of_the_first_schema_is_read(tmp_path):
    new = {"contract", "exhibit", "variants", "sanitized", "history", "reason", "expires"}
    old = {name: value for name, value in {**FOUND, "schema_version": 1}.items() if name not in new}
    assert load_record(written(tmp_path, old)).canonical() == FINDING.canonical()


def test_a_step_brings_a_record_and_the_cases_in_it_up_to_date(tmp_path, monkeypatch):
    def renamed(raw):
        raw["op"] = raw.pop("operation")
        return raw

    monkeypatch.setitem(migrate.MIGRATIONS, ("case", 0), renamed)
    old_case = {**CASE, "schema_version": 0, "operation": CASE["op"]}
    del old_case["op"]
    old = {**FOUND, "case": old_case, "original": old_case}
    kept = json.dumps(old)
    loaded = load_record(written(tmp_path, old))
    assert loaded.canonical() == FINDING.but(original=PLAIN).canonical()
    migrate.upgrade(old, "finding")
    assert json.dumps(old) == kept
    assert load_record(written(tmp_path, old_case)).id == PLAIN.id


def test_steps_follow_one_another(monkeypatch):
    monkeypatch.setitem(migrate.SCHEMAS, "campaign", 3)
    for version in (0, 1, 2):
        step = lambda raw, v=version: {**raw, "path": [*raw["path"], v]}  # noqa: E731
        monkeypatch.setitem(migrate.MIGRATIONS, ("campaign", version), step)
    assert migrate.upgrade({"schema_version": 1, "path": []}, "campaign") == {"schema_version": 3, "path": [1, 2]}
    monkeypatch.delitem(migrate.MIGRATIONS, ("campaign", 1))
    with pytest.raises(UsageError, match="schema 0"):
        migrate.upgrade({"schema_version": 0, "path": []}, "campaign")
