"""`kassay compare --budget-of`: outputs in files are judged as if a kernel had made them of the inputs beside them."""

import json
from pathlib import Path

import numpy as np
import pytest
from _command import refused
from _tensor_files import safetensors

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.fuzz.comparing import budget
from kernel_assay.fuzz.comparing.compare import compare
from kernel_assay.oracles.catalog import _sample, contract_of, forget_contracts, load_contracts
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.large import parts
from kernel_assay.oracles.numerics.rounding import round_to

A, B = Path("a.safetensors"), Path("b.safetensors")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def softmax(x, kind=np.float32):
    e = np.exp(x.astype(kind) - x.max(-1, keepdims=True).astype(kind))
    return (e / e.sum(-1, keepdims=True, dtype=kind)).astype(np.float32)


@pytest.fixture
def x():
    return np.random.default_rng(1).standard_normal((12, 40)).astype(np.float32)


def asked(op):
    """A small case of an op, with its inputs, outputs and attributes; outputs: those of the formula, rounded."""
    contract = contract_of(op)
    dims = {name: max(dim.least, min(4 * dim.multiple, dim.most)) for name, dim in contract.dims.items()}
    case = _sample(contract, contract.variants[0], dims)
    tensors = {name: t.but(fill=t.fill.but(seed=seed)) for seed, (name, t) in enumerate(case.tensors.items(), start=1)}
    case = case.but(tensors=tensors)
    inputs = materialize_all(case)
    reference = Reference(contract, case, inputs)
    outputs = {}
    for name, spec in reference.specs.items():
        fmt, bitwise = format_of(spec.dtype), reference.budget(Numerics())[name].bitwise
        want = reference.copies[name] if bitwise else reference.want[name]
        outputs[name] = want if bitwise else round_to(want, fmt) if fmt.is_float else want.astype(fmt.dtype)
    return inputs, outputs, [f"{name}={value}" for name, value in case.attrs.items()]


@pytest.mark.parametrize("op", load_contracts())
def test_of_every_op_right_outputs_agree_and_wrong_ones_do_not(op):
    inputs, outputs, attrs = asked(op)
    safetensors(A, inputs | outputs)
    safetensors(B, outputs)
    right = compare(A, B, budget_of=op, attrs=attrs)
    assert (right.agrees, right.budget_of) == (True, op)
    assert all(one.rho <= 1 for one in right.tensors)
    for values in outputs.values():
        last = values.flat[-1:]
        values.flat[-1] = (-2 * last - 3 if format_of(values.dtype).is_float else last + last.dtype.type(3))[0]
    safetensors(B, outputs)
    wrong = compare(A, B, budget_of=op, attrs=attrs)
    assert [one.trouble.partition(":")[0] for one in wrong.tensors] == ["mismatch"]


def test_a_coarser_candidate_is_farther_than_its_budget(fuzz, x):
    np.savez("a.npz", x=x, out=softmax(x))
    np.savez("b.npz", out=softmax(x, np.float16))
    code, out, err = fuzz("compare", "a.npz", "b.npz", "--budget-of", "softmax", "--json", "found.json")
    assert (code, err) == (1, "")
    assert "times its error budget of" in " ".join(out.split())
    assert out.endswith("1 of 1 tensor does not agree (within the error budget of softmax)\n")
    (one,) = json.loads(Path("found.json").read_text())["tensors"]
    assert one["baseline_rho"] < 1 < one["rho"]
    assert one["baseline"]["nmse"] < one["distance"]["nmse"]


def test_a_baseline_that_is_wrong_is_told_and_does_not_decide(fuzz, x):
    np.savez("a.npz", x=x, out=softmax(x, np.float16))
    np.savez("b.npz", x=x, out=softmax(x))
    code, out, _ = fuzz("compare", "a.npz", "b.npz", "--budget-of", "softmax")
    assert code == 0
    assert "A itself   mismatch: out[" in out


def test_inputs_alone_are_enough_beside_a_file_of_one_output(fuzz, x):
    np.save("x.npy", x)
    np.save("candidate.npy", softmax(x))
    code, out, _ = fuzz("compare", "x.npy", "candidate.npy", "--budget-of", "softmax")
    assert (code, out.splitlines()[-1]) == (0, "the tensor agrees (within the error budget of softmax)")


@pytest.mark.parametrize("shape", [(3, 4, 40), (2, 3, 2, 40), (480,)])
def test_rows_may_have_several_axes_or_none(shape, x):
    x = x.reshape(shape)
    safetensors(A, {"x": x})
    safetensors(B, {"out": softmax(x)})
    found = compare(A, B, budget_of="softmax")
    assert (found.agrees, found.tensors[0].shape) == (True, shape)
    assert not compare(A, B, budget_of="softmax", attrs=["scale=2"]).agrees


def test_only_the_rows_of_an_op_may(x):
    safetensors(A, {"a": x.reshape(3, 4, 40), "b": np.ones((40, 1, 2), np.float32)})
    safetensors(B, {"out": x[:, :2].reshape(3, 4, 2)})
    with pytest.raises(UsageError, match=r"b has shape \(40, 1, 2\), which does not fit the axes \(k, n\) of gemm"):
        compare(A, B, budget_of="gemm")


@pytest.mark.parametrize("op", ["softmax", "gemm", "attention", "rope", "dequantize", "silu"])
def test_parts_say_what_the_whole_says(monkeypatch, op):
    inputs, outputs, attrs = asked(op)
    safetensors(A, inputs | outputs)
    outputs["out"] = outputs["out"].copy()
    outputs["out"].flat[-1] += 1
    safetensors(B, outputs)
    whole = compare(A, B, budget_of=op, attrs=attrs).tensors[0]
    monkeypatch.setattr(parts, "MOST", 1 + max(t.size for t in inputs.values()))
    parted = compare(A, B, budget_of=op, attrs=attrs).tensors[0]
    assert parted.trouble.endswith(", in one part of it")
    assert parted.trouble.partition(" (")[0] == whole.trouble.partition(" (")[0]
    assert (parted.rho, parted.baseline_rho, parted.distance) == (whole.rho, whole.baseline_rho, whole.distance)


def test_tiles_hold_each_element_once(monkeypatch):
    contract = contract_of("gemm")
    case = _sample(contract, contract.variants[0], {"m": 5, "n": 7, "k": 3})
    monkeypatch.setattr(parts, "MOST", 40)
    found = list(parts.tiles(contract, case))
    seen = np.zeros((5, 7), int)
    for part in found:
        seen[np.ix_(*(part.axes["out"].get(axis, np.arange(n)) for axis, n in enumerate(seen.shape)))] += 1
    assert len(found) > 2
    assert (seen == 1).all()


def test_a_claim_widens_the_budget(fuzz, x):
    np.savez("a.npz", x=x, out=softmax(x, np.float16))
    words = ("compare", "a.npz", "a.npz", "--budget-of", "softmax")
    assert fuzz(*words)[0] == 1
    assert fuzz(*words, "--numerics", 'accumulate = "float16"', "--numerics", 'intermediates.all = "float16"')[0] == 0


def test_a_file_of_torch(x):
    torch = pytest.importorskip("torch")
    torch.save({"x": torch.from_numpy(x), "out": torch.from_numpy(softmax(x))}, "a.pt")
    np.savez("b.npz", out=softmax(x))
    assert compare("a.pt", "b.npz", budget_of="softmax").agrees
    assert compare("b.npz", "a.pt", budget_of="softmax").agrees


@pytest.mark.parametrize("shape", [(0, 40), (3, 0), (0, 0)])
def test_no_elements_are_all_right(shape):
    safetensors(A, {"x": np.zeros(shape, np.float32)})
    safetensors(B, {"out": np.zeros(shape, np.float32)})
    assert compare(A, B, budget_of="softmax").agrees


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda out: out.astype(np.float64), "wrong_dtype: out has dtype float64, wanted float32"),
        (lambda out: out[:, :-1], "wrong_shape: out has shape (12, 39), wanted (12, 40)"),
        (lambda out: np.where(out == out.max(), np.nan, out), "nonfinite: out["),
    ],
)
def test_form_and_class_are_judged_too(x, bad, words):
    safetensors(A, {"x": x, "out": softmax(x)})
    safetensors(B, {"out": bad(softmax(x))})
    (one,) = compare(A, B, budget_of="softmax").tensors
    assert words in one.trouble
    assert (one.rho is None, one.baseline_rho < 1) == (True, True)


CONTRACT = """
from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output

def reference(x):
    return {"double": x + x, "square": x * x}

CONTRACT = Contract(
    name="two", summary="two outputs", dims={"n": Dim(0, 64)}, inputs={"x": Input(("n",))},
    outputs={"double": Output(("n",), like="x"), "square": Output(("n",), like="x")},
    variants=({"x": "float32"},), reference=reference,
)
"""


def test_a_contract_of_ones_own_with_two_outputs(fuzz, x):
    Path("two.py").write_text(CONTRACT)
    x = x[0]
    np.savez("a.npz", x=x)
    np.savez("b.npz", double=x + x, square=x * x)
    np.savez("c.npz", double=x + 1, square=x * x)
    try:
        words = ("--contract", "two.py", "--budget-of", "two", "--json", "found.json")
        assert fuzz("compare", "a.npz", "b.npz", *words)[0] == 0
        assert fuzz("compare", "a.npz", "c.npz", *words)[0] == 1
        refused(fuzz("compare", "c.npz", "a.npz", *words), "two takes x and gives double, square: double is not in B")
    finally:
        forget_contracts()
    told = {one["name"]: one.get("trouble", "") for one in json.loads(Path("found.json").read_text())["tensors"]}
    assert told["double"].startswith("mismatch: double[")
    assert told["square"] == "not judged, for double fails"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("softmux",), "op 'softmux' is not known"),
        (("softmax", "--ulp", "1"), "it is the op's budget that decides"),
        (("softmax", "--truth", "a.npz"), "it is the op's budget that decides"),
        (("softmax", "--logits", "out"), "it is the op's budget that decides"),
        (("silu_gate",), "silu_gate takes gate, up and gives out: gate is in neither file"),
        (("rmsnorm",), "rmsnorm takes x, weight and gives out: weight is in neither file"),
        (("softmax", "--attr", "scale"), "--attr scale must be a number, not ''"),
        (("softmax", "--attr", "scale=inf"), "--attr scale must be a number, not 'inf'"),
        (("softmax", "--attr", "size=1"), "'size=1' is no attribute of softmax as NAME=VALUE; it has scale"),
        (("silu", "--attr", "size=1"), "it has none"),
        (("gelu",), "gelu has an attribute approximate; say which, as in --attr approximate=none"),
        (("gelu", "--attr", "approximate=tan"), "--attr approximate must be one of none, tanh, not 'tan'"),
        (("softmax", "--numerics", "accumulate = half"), "--numerics is not understood: it is not TOML: "),
        (("softmax", "--numerics", 'sums = "float16"'), "--numerics is not understood: 'sums' is none of its keys"),
        (("softmax", "--numerics", 'intermediates = {p = "float16"}'), "which softmax has not: it has s, log, all"),
        (("rope", "--attr", "style=neox", "--attr", "part=0"), "--attr part must be one of 1, 2, 4, not '0'"),
        (("rope", "--attr", "style=neox", "--attr", "offset=0.5"), "--attr offset must be a whole number, not '0.5'"),
    ],
)
def test_what_cannot_be_judged_is_refused(fuzz, x, words, said):
    np.savez("a.npz", x=x)
    np.savez("b.npz", out=softmax(x))
    refused(fuzz("compare", "a.npz", "b.npz", "--budget-of", *words), said)


ONES = np.ones((4, 4), np.float32)


@pytest.mark.parametrize(
    ("op", "a", "b", "said"),
    [
        ("softmax", {"x": ONES, "out": ONES}, {"x": 2 * ONES, "out": ONES}, "x is another one in B than in A"),
        ("softmax", {"x": ONES}, {"x": ONES, "y": ONES}, "out is not in B"),
        ("softmax", {"x": ONES, "msk": ONES}, {"out": ONES}, "x, [mask] and gives out: msk is none of them"),
        ("softmax", {"x": ONES.astype(np.int32)}, {"out": ONES}, "softmax does not take x as int32"),
        ("softmax", {"x": ONES.astype(np.int16)}, {"out": ONES}, "softmax does not take x as int16"),
        ("embedding", {"table": ONES, "indices": np.array([0, 4])}, {"out": ONES}, "elements outside of 0 to 3"),
        ("embedding", {"table": ONES, "indices": np.array([-1, 0])}, {"out": ONES}, "elements outside of 0 to 3"),
        ("rmsnorm", {"x": ONES, "weight": ONES}, {"out": ONES}, "--attr eps=1e-05"),
    ],
)
def test_files_that_are_not_those_of_the_op(fuzz, op, a, b, said):
    safetensors(A, a)
    safetensors(B, b)
    refused(fuzz("compare", A, B, "--budget-of", op), said)


def test_what_is_too_large_for_memory_is_refused(fuzz, monkeypatch, x):
    monkeypatch.setattr(budget, "_MOST", 100)
    np.savez("a.npz", x=x)
    np.savez("b.npz", out=x)
    refused(fuzz("compare", "a.npz", "b.npz", "--budget-of", "softmax"), "960 elements are too many")


def test_attributes_without_an_op(fuzz, x):
    np.save("a.npy", x)
    refused(fuzz("compare", "a.npy", "a.npy", "--attr", "eps=1"), "name the op, with --budget-of")
