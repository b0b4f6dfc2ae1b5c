"""`run --workload`: shapes of a model run come first, are drawn more often, and it is told how many were judged."""

import json

import pytest
from _command import refused

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.workload import Call, read_calls, text_of
from kernel_assay.fuzz.checking.user_references import add_reference
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import FAVOURED, Target, propose
from kernel_assay.fuzz.planning.workload import fit
from kernel_assay.oracles.catalog import contract_of, forget_contracts

pytestmark = pytest.mark.usefixtures("no_references")

SILU = "import numpy as np\n\n\ndef silu(x):\n    {}\n"
RIGHT = "return (x / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)"
AT_ONE_SHAPE = f"{RIGHT} * (np.float32(0) if x.shape == (7, 100) else np.float32(1))"
LINES = """\
{"call": "aten.silu", "inputs": {"self": "float32[7, 100]"}, "count": 3}
{"call": "aten.silu", "inputs": {"self": "float32[2, 3, 5]"}, "count": 9}
{"call": "aten.silu", "inputs": {"self": "float32[5, 8]"}, "strides": {"self": [1, 5]}}
{"call": "aten.silu", "inputs": {"self": "int64[5, 8]"}}
{"call": "aten.mm", "inputs": {"self": "float32[4, 4]", "mat2": "float32[4, 4]"}}
"""


def run(fuzz, tmp_path, lines, *more, body=RIGHT):
    (tmp_path / "mine.py").write_text(SILU.format(body))
    (tmp_path / "calls.jsonl").write_text(lines)
    return fuzz(
        "run", "silu", "--subject", tmp_path / "mine.py", "--workload", tmp_path / "calls.jsonl", "--cases", "32",
        "--seed", "1", "--dtype", "float32", "--corpus", tmp_path / "corpus", *more,
    )  # fmt: skip


def test_a_bug_at_one_shape_of_the_workload_is_found_at_once(fuzz, tmp_path):
    code, out, err = run(fuzz, tmp_path, LINES, "--json", tmp_path / "o.json", body=AT_ONE_SHAPE)
    assert code == 1, err
    assert "of your workload: 3 of 3 shapes of silu judged, those of 13 calls; 1 of 4 lines do not fit: " in out
    assert "the first is line 4: silu does not take x as int64; 1 line of other calls\n" in out
    told = json.loads((tmp_path / "o.json").read_text())
    assert {key: told["workload"]["silu"][key] for key in ("shapes", "judged", "calls")} == {
        "shapes": 3,
        "judged": 3,
        "calls": 13,
    }
    (finding,) = told["findings"]
    assert finding["case"]["tensors"]["x"]["shape"] == [7, 100]
    forget_contracts()
    assert run(fuzz, tmp_path, LINES.split("\n", 1)[1], body=AT_ONE_SHAPE)[0] == 0, "else nobody meets that shape"


def test_an_honest_kernel_passes_and_cases_are_made_again(fuzz, tmp_path):
    code, out, err = run(fuzz, tmp_path, LINES)
    assert (code, "findings: none" in out) == (0, True), err
    (campaign,) = (tmp_path / "corpus" / "local" / "runs").iterdir()
    code, out, err = fuzz("replay", f"{campaign.name}:0", "--corpus", tmp_path / "corpus")
    assert code == 0, err
    assert "x=6x5:normal" in out, "the most frequent call is the first case; its leading axes are one"


def target(*calls, op="silu"):
    contract = contract_of(op)
    return Target(contract, longest=1 << 20, workload=tuple(fit(contract, one) for one in calls))


def test_shapes_dtypes_and_attributes_come_first_and_are_favoured():
    call = Call(inputs={"x": "float16[5, 77]", "weight": "float16[77]"}, attrs={"eps": 0.25})
    aim = target(call, op="rmsnorm")
    drawn = [propose([aim], 7, i, Elites()) for i in range(64)]
    assert [p.index for p in drawn if p.wanted == 0] == [0]
    like = [p.case for i, p in enumerate(drawn) if i % FAVOURED == 0]
    assert {(c.tensors["x"].shape, c.dtype, c.attrs["eps"]) for c in like} == {((5, 77), "float16", 0.25)}
    assert len({c.tensors["x"].fill.distribution for c in like}) > 3, "values are drawn"
    others = [p.case for i, p in enumerate(drawn) if i % FAVOURED]
    assert len({c.tensors["x"].shape for c in others}) > 10
    assert [p.case.id for p in drawn] == [propose([aim], 7, i, Elites()).case.id for i in range(64)]


@pytest.mark.parametrize(
    ("op", "inputs", "more", "label"),
    [
        ("silu", ["float32[6]"], {}, "x=1x6:normal"),
        ("silu", ["float32[5, 8]"], {"strides": {"0": (1, 5)}}, "/transposed"),
        ("silu", ["float32[5, 8]"], {"strides": {"0": (11, 1)}}, "/row_gaps"),
        ("gemm", ["float32[2, 3, 4]", "float32[4, 5]"], {}, "a=6x4:normal"),
        ("gemm", {"b": "float32[4, 5]", "a": "float32[3, 4]", "c": "float32[3, 5]"}, {}, "c=3x5:normal"),
        ("embedding", ["bfloat16[9, 4]", "int64[2, 3]"], {}, "indices=6:uniform"),
        ("rmsnorm", ["float32[3, 4]", "float32[4]"], {"attrs": {"eps": 1, "dim": 3}}, "eps=1.0"),
    ],
)
def test_a_call_fits_by_its_extents(op, inputs, more, label):
    assert label in fit(contract_of(op), Call.model_validate({"inputs": inputs, **more})).label


@pytest.mark.parametrize(
    ("op", "inputs", "more", "why"),
    [
        ("silu", ["float32[6]", "float32[6]"], {}, "it has 2 tensors, and silu takes 1"),
        ("gemm", ["float32[2, 3]", "float32[4, 5]"], {}, "a [2, 3], b [4, 5] cannot be a [m, k], b [k, n]"),
        ("silu", ["complex64[6]"], {}, "silu does not take x as complex64"),
        ("rope", ["float32[3, 2, 8]"], {"attrs": {"style": "odd"}}, "style = 'odd' is none of 'interleaved', 'neox'"),
        ("embedding", ["float32[0, 8]", "int64[3]"], {}, "vocab is 0, which is less than 1"),
        (
            "softmax",
            ["float32[3, 5]"],
            {"call": "aten._softmax", "attrs": {"dim": 0}},
            "it is along axis 0, and softmax is along the last one",
        ),
        ("silu", ["float32[6]"], {"strides": {"z": [1]}}, "strides are given of z, which is no input"),
    ],
)
def test_a_call_that_does_not_fit_says_why(op, inputs, more, why):
    with pytest.raises(UsageError) as refused:
        fit(contract_of(op), Call.model_validate({"inputs": inputs, **more}))
    assert str(refused.value) == why


@pytest.mark.parametrize(
    ("shape", "strides", "said"),
    [
        ("14, 64", (192, 1), "1 shape in another layout: the first is line 1: x has strides [192, 1], and is judged"),
        ("14, 64", (1, 14), ""),
        ("2, 7, 64", (448, 64, 1), ""),
        ("2, 7, 64", (64, 128, 1), "x has strides [64, 128, 1], and is judged contiguous"),
    ],
)
def test_a_layout_that_is_not_tried_is_told(fuzz, tmp_path, shape, strides, said):
    (tmp_path / "calls.jsonl").write_text(f'{{"inputs": ["float32[{shape}]"], "strides": {{"0": {[*strides]}}}}}\n')
    code, out, _ = fuzz("run", "silu", "--backend", "numpy", "--workload", tmp_path / "calls.jsonl", "--cases", 2)
    assert (code, "1 of 1 shape of silu judged" in out, "in another layout" in out) == (0, True, bool(said)), out
    assert said in " ".join(out.split())


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "calls.jsonl has no line"),
        ("{}\n", 'line 1, is no call (Field required); write at least {"inputs": {"x": "float32[8, 64]"}}'),
        ("[3]\n", "line 1, is no call (no JSON object with inputs)"),
        ('{"inputs": ["float32"]}\n', "line 1: 0 = 'float32' is not understood; write a dtype and extents"),
        ('{"inputs": ["int8[3]"]}\n', "fits silu; the first is line 1: silu does not take x as int8"),
        ('{"inputs": ["float16[3]"]}\n', "the first is line 1: no kernel takes float16"),
        ('{"inputs": ["float32[8192, 8192]"]}\n', "rows 8,192, cols 8,192 takes too long; --case-memory has it tried"),
    ],
)
def test_what_is_no_workload_is_one_sentence(fuzz, tmp_path, lines, words):
    refused(run(fuzz, tmp_path, lines), words)


def test_a_workload_needs_the_usual_engine_and_a_file(fuzz, tmp_path):
    refused(run(fuzz, tmp_path, LINES, "--engine", "given"), "a workload needs the engine 'conjecture'")
    refused(fuzz("run", "silu", "--workload", tmp_path / "no.jsonl"), "no.jsonl cannot be read: No such file")


def test_what_is_written_is_read(tmp_path):
    calls = [
        Call(call="f", inputs={"x": "float32[2]"}, attrs={"eps": 0.5}, count=3),
        Call(inputs={"x": "int64[]"}, strides={"x": (0,)}),
    ]
    (tmp_path / "w.jsonl").write_text(text_of(calls))
    assert [one.but(line=0) for one in read_calls(tmp_path / "w.jsonl")] == calls


REFERENCE = 'def reference(x: "float32[rows, cols]", w: "float32[cols]"):\n    return x * w\n'
SOLUTION = "def solution(x, w):\n    return {}\n"


@pytest.mark.parametrize(("body", "code"), [("x * w", 0), ("x * w if x.shape != (3, 41) else x + w", 1)])
def test_a_folder_with_a_workload_is_judged(fuzz, tmp_path, body, code):
    (tmp_path / "it").mkdir()
    (tmp_path / "it" / "reference.py").write_text(f"import numpy as np\n\n\n{REFERENCE}")
    (tmp_path / "it" / "solution.py").write_text(f"import numpy as np\n\n\n{SOLUTION.format(body)}")
    (tmp_path / "it" / "workload.jsonl").write_text('{"inputs": ["float32[3, 41]", "float32[41]"]}\n')
    answer = fuzz("judge", tmp_path / "it", "--cases", "32", "--seed", "1", "--corpus", tmp_path / "corpus")
    assert answer[0] == code, answer
    assert "of your workload: 1 of 1 shape of it judged, those of 1 call\n" in answer[1]


def test_arguments_of_ones_own_reference_fit_as_they_are_called(tmp_path):
    """Offsets are one more than a case has of them, a mask is of bytes there, and a list has its tensors one by one."""
    (tmp_path / "ref.py").write_text(
        "import numpy as np\n\n\n"
        'def f(x: "float32[total, c]", keep: "bool[total]", starts: "int64[b+1] offsets of total"):\n'
        "    return np.where(keep[:, None], x, 0) + starts[0]\n"
    )
    contract = add_reference(f"{tmp_path}/ref.py:f")
    told = {"x": "float32[9, 4]", "keep": "bool[9]", "starts": "int64[4]"}
    case = fit(contract, Call(inputs=told))
    assert contract.dims_of(case) == {"total": 9, "c": 4, "b": 3}
    assert case.tensors["keep"].dtype == "uint8"
