"""References on a device say what the contracts' own say, at every element; with a GPU, there too."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.oracles import contracts
from kernel_assay.oracles.catalog import add_contract, contract_of, forget_contracts, load_contracts
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.numerics.block_products import _terms

torch = pytest.importorskip("torch")

from kernel_assay.corpus.inputs.torch import recipes  # noqa: E402
from kernel_assay.corpus.inputs.torch.field import CARRIERS  # noqa: E402
from kernel_assay.oracles.device import references, rows, slabs, sums, unpacking  # noqa: E402
from kernel_assay.oracles.device.references import FORMULAS, STEPS, reference_on, room_of  # noqa: E402

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
WITHOUT = {"quantize"}
"""Of several bytes that are right a reference can only have one."""
CASES = 80
CLOSE, CLOSE_TO_LONGER = 1e-13, 1e-12
"""How far from the contract's reference, relative to the size of what is added up; of float64 it is in longdouble."""
TAME = 1e100
"""Float64 inputs between this and its reciprocal leave the range of float64 nowhere on the way."""


@cache
def cases_of(op):
    """Cases as the search draws them, with inputs and what the contract's reference gives."""
    contract, random, found = contract_of(op), Random(f"references {op}"), []
    while len(found) < CASES:
        case, _ = generate(Target(contract, max_elements=1 << 11), random)
        inputs = materialize_all(case)
        if all(tame(values) for values in inputs.values()):
            found.append((case, inputs, Reference(contract, case, inputs)))
    return found


def tame(values):
    if values.dtype != np.float64:
        return True
    size = np.abs(values[np.isfinite(values) & (values != 0)])
    return size.max(initial=0) < TAME and size.min(initial=1) > 1 / TAME


def on_host(tensor):
    fmt = format_of(str(tensor.dtype).removeprefix("torch."))
    return tensor.view(CARRIERS[fmt.bits]).cpu().numpy().view(fmt.dtype)


# what an element may differ by


def finite(values):
    x = np.abs(np.asarray(values, np.float64))
    return np.where(np.isfinite(x), x, 0.0)


def of_products(a, b, c, attrs):
    size = abs(attrs["alpha"]) * (finite(a) @ finite(b))
    return size + abs(attrs["beta"]) * finite(c) if c is not None else size


def of_blocks(x, attrs):
    return _terms(x["w"], np.atleast_2d(x["a"]), attrs["format"], attrs["activations"]).size.sum(axis=0)


def of_layernorm(x, want):
    wide = np.asarray(x["x"], np.longdouble)
    root = np.sqrt(wide.var(axis=-1, keepdims=True)) if wide.size else np.ones((len(wide), 1))
    top = finite(x["x"]).max(axis=-1, keepdims=True, initial=0.0)
    return finite(want) + finite(x["bias"]) + np.nan_to_num(finite(x["weight"]) * top / root, nan=np.inf)


def of_attention(x, attrs):
    q, k, v = (finite(x[name]) for name in "qkv")
    group = q.shape[1] // max(1, k.shape[1])
    scale = attrs["scale"] or 1 / math.sqrt(max(1, q.shape[-1]))
    scores = abs(scale) * (q @ np.swapaxes(np.repeat(k, group, axis=1), -1, -2))
    return (1 + scores.max(axis=-1, keepdims=True, initial=0.0)) * v.max(initial=0.0)


def of_rope(x):
    table = max((finite(x[name]).max(initial=1.0) for name in ("cos", "sin") if name in x), default=1.0)
    return finite(x["x"]).max(axis=-1, keepdims=True, initial=0.0) * table


EXACT = {"convert", "dequantize", "embedding", "gemm_int8", "row_argmax", "row_max"}
SIZES = {
    "gemm": lambda x, attrs, want: of_products(x["a"], x["b"], x.get("c"), attrs),
    "gemv": lambda x, attrs, want: of_products(x["a"], x["x"], x.get("y"), attrs),
    "qgemm": lambda x, attrs, want: of_blocks(x, attrs).T,
    "qgemv": lambda x, attrs, want: of_blocks(x, attrs)[:, 0],
    "row_sum": lambda x, attrs, want: finite(x["x"]).sum(axis=-1),
    "layernorm": lambda x, attrs, want: of_layernorm(x, want),
    "attention": lambda x, attrs, want: of_attention(x, attrs),
    "rope": lambda x, attrs, want: of_rope(x),
}


def difference(case, inputs, reference, got):
    """What is wrong with an output, in words; an empty string if nothing is."""
    contract, want = reference.contract, reference.want["out"]
    if contract.copies:
        return "" if got.tobytes() == reference.copies["out"].tobytes() else "other bits"
    if got.shape != want.shape or got.dtype != np.float64:
        return f"{got.dtype} of shape {got.shape}"
    classes = [(np.isnan(x), x == np.inf, x == -np.inf) for x in (got, want)]
    if not np.array_equal(*classes):
        return f"another class at {np.argwhere(np.not_equal(*classes).any(axis=0))[0]}"
    with np.errstate(all="ignore"):
        size = SIZES.get(case.op, lambda x, attrs, want: finite(want))(inputs, reference.attrs, want)
        room = 0.0 if case.op in EXACT else (CLOSE_TO_LONGER if case.dtype == "float64" else CLOSE) * size + 2.0**-1000
        off = np.where(np.isfinite(want), np.abs(got - want), 0.0)
    return f"{off.max()} off" if (off > room).any() else ""


def differences(op, device="cpu"):
    """How many cases differ, and the first of them."""
    found = []
    for case, inputs, reference in cases_of(op):
        out = reference_on(case, device)["out"]
        assert out.is_contiguous()
        assert out.device.type == device
        if said := difference(case, inputs, reference, on_host(out)):
            found.append(f"{case.label}: {said}")
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("slab", [1 << 24, 700, 40, 1])
@pytest.mark.parametrize("op", sorted(FORMULAS))
def test_what_the_contract_says(op, slab, device, monkeypatch):
    monkeypatch.setattr(slabs, "SLAB", slab)
    assert differences(op, device) == []


@pytest.mark.parametrize("op", sorted(FORMULAS))
def test_every_dtype_input_and_attribute_is_met(op):
    contract, met = contract_of(op), [case for case, _, _ in cases_of(op)]
    variants = {tuple((n, t.dtype) for n, t in case.tensors.items()) for case in met}
    assert {v for _, v in sum(variants, ())} >= {v for variant in contract.variants for v in variant.values()}
    assert {name for case in met for name in case.tensors} == set(contract.inputs)
    assert all(len({case.attrs.get(name) for case in met}) > 1 for name in contract.attrs)
    infinite = any(not np.isfinite(reference.want["out"]).all() for _, _, reference in cases_of(op))
    assert infinite == (op not in NUMBERS)


NUMBERS = {"dequantize", "gemm_int8", "qgemm", "qgemv", "row_argmax"}
"""Ops whose results are always finite."""


def test_every_op_but_one():
    house = {name for name, contract in load_contracts().items() if not contract.origin}
    assert house - set(FORMULAS) == WITHOUT


def test_queries_that_others_follow():
    """Those of a part of a case of attention."""
    for case, inputs, _ in cases_of("attention"):
        cut = case.but(attrs={**case.attrs, "causal": True, "behind": 2})
        said = on_host(reference_on(cut, "cpu")["out"])
        assert difference(cut, inputs, Reference(contract_of("attention"), cut, inputs), said) == ""


# would it be noticed?


@pytest.mark.parametrize("op", sorted(FORMULAS))
def test_one_element_that_is_off_is_noticed(op):
    """By a ten-billionth of its size; integers by one, moved bits by the lowest."""
    noticed = met = 0
    for case, inputs, reference in cases_of(op):
        got = on_host(reference_on(case, "cpu")["out"]).copy()
        if reference.contract.copies:
            where = np.arange(got.size)
        else:
            where = np.flatnonzero(np.isfinite(got) & (np.abs(got) > 1e-200))
        if not len(where):
            continue
        met += 1
        flat, at = got.reshape(-1), where[len(where) // 2]
        if reference.contract.copies:
            flat.view(f"u{got.itemsize}")[at] ^= 1
        else:
            flat[at] += 1 if format_of(reference.specs["out"].dtype).kind == "int" else flat[at] * 1e-10
        noticed += bool(difference(case, inputs, reference, got))
    assert met > CASES / 3
    assert noticed > met * (0.5 if op in {"attention", "layernorm"} else 0.9)


def turned(content, name):
    """Weights in another order than activations."""
    return content if name.startswith("q8_") else replace(content, quants=content.quants.roll(1, dims=-1))


@pytest.mark.parametrize(
    ("op", "module", "name", "wrong"),
    [
        ("gelu", rows, "CUBIC", 0.0447),
        ("layernorm", rows, "_saturated", lambda y, *factors: y * (1 + 1e-9)),
        ("rope", rows, "_halves", lambda x, style, width: (x[..., 0:width:2], x[..., 1:width:2])),
        ("dequantize", unpacking, "values", lambda content, fmt: content.quants * content.d[..., None]),
        ("qgemm", sums, "unpack", lambda raw, name: turned(unpacking.unpack(raw, name), name)),
        ("gemm", sums, "_summed", lambda found, alpha, beta, c: alpha * found + (0.0 if c is None else beta * c)),
        ("attention", sums, "_with_infinities", lambda mixed, weighed, v: mixed),
        ("attention", sums, "_last", lambda length, queries, attrs: (length - 1, 0)),
        ("attention", sums, "_seen", lambda some, keys, last, device: torch.ones(1, keys, dtype=torch.bool)),
    ],
)
def test_a_wrong_step_is_noticed(op, module, name, wrong, monkeypatch):
    monkeypatch.setattr(module, name, wrong)
    assert differences(op)


@pytest.mark.parametrize(
    ("op", "wrong"),
    [
        ("silu", lambda x: x * torch.sigmoid(x.float()).double()),
        ("gelu_gate", lambda gate, up, *, approximate: 0.5 * gate * (1.0 + torch.erf(gate * math.sqrt(0.5))) * up),
        ("softmax", lambda x, mask=None, *, scale: torch.softmax(x * scale, dim=-1)),
        ("rmsnorm", lambda x, weight, *, eps: x / x.pow(2).mean(-1, keepdim=True).sqrt() * weight),
        ("row_max", lambda x: x.amax(dim=-1)),
        ("row_argmax", lambda x: x.argmax(dim=-1).double()),
        ("row_sum", lambda x: x.float().sum(dim=-1).double()),
        ("convert", lambda x, *, to, saturate: x),
    ],
)
def test_a_wrong_formula_is_noticed(op, wrong, monkeypatch):
    cut = {"softmax": ("x", "mask"), "gelu_gate": ("gate", "up")}.get(op, ("x",))
    monkeypatch.setitem(FORMULAS, op, slabs.Formula(slabs.by_rows(wrong, *cut), FORMULAS[op].least))
    assert differences(op)


# what there is room for


@pytest.mark.parametrize("op", sorted(FORMULAS))
def test_a_formula_takes_no_more_than_its_steps(op, meter, monkeypatch):
    """Beside inputs and result, which are there before; single numbers and which keys are seen do not count."""
    monkeypatch.setattr(slabs, "SLAB", 1 << 12)
    contract, random, most = contract_of(op), Random(f"room {op}"), 0.0
    shape = {dim: EXTENTS.get(dim, 256) for dim in contract.dims}
    for _ in range(8):
        case, _ = generate(Target(contract), random, shapes=(shape,))
        inputs = {name: recipes.materialize(recipe, "cpu") for name, recipe in case.tensors.items()}
        out = reference_on(case, "cpu")["out"]
        with meter() as used:
            FORMULAS[op].fill(inputs, contract.attrs_of(case), out)
        # Tensors that are there before are counted when they are first seen.
        before = sum(t.untyped_storage().nbytes() for t in (*inputs.values(), out))
        slab = max(1 << 12, FORMULAS[op].least(contract.dims_of(case)))
        most = max(most, (used.peak - before) / (8 * slab))
        assert most <= STEPS, case.label
    assert most > (0 if op == "embedding" else 1)


EXTENTS = {"blocks": 8, "batch": 2, "kv_heads": 2, "group": 2, "queries": 100, "head": 32, "heads": 4, "half": 32}


@pytest.mark.parametrize("op", sorted(FORMULAS))
def test_room_is_that_of_inputs_result_and_work(op, monkeypatch):
    monkeypatch.setattr(slabs, "SLAB", 1 << 10)
    monkeypatch.setattr(references, "ROOM", 0)
    for case, inputs, reference in cases_of(op)[:5]:
        held = sum(x.nbytes for x in inputs.values()) + 8 * reference.want["out"].size
        least = FORMULAS[op].least(reference.contract.dims_of(case))
        assert room_of(case) == held + STEPS * 8 * max(1 << 10, least)


def silu_of(rows_, cols):
    return Case(op="silu", tensors={"x": TensorRecipe(shape=(rows_, cols), dtype="float32", fill=Fill(seed=3))})


def test_a_case_that_does_not_fit_has_none(monkeypatch):
    assert room_of(silu_of(1 << 16, 1 << 14)) > 4 << 30
    assert reference_on(silu_of(1 << 16, 1 << 14), "cpu") is None
    monkeypatch.setattr(slabs, "CPU_ROOM", room_of(silu_of(5, 7)))
    assert reference_on(silu_of(5, 7), "cpu") is not None
    assert reference_on(silu_of(5, 8), "cpu") is None


def test_torch_that_finds_no_room_is_no_failure(monkeypatch):
    def full(recipe, device):
        raise torch.OutOfMemoryError("no room in one piece")

    monkeypatch.setattr(references, "materialize", full)
    assert reference_on(silu_of(5, 7), "cpu") is None


def test_ops_without_a_formula_have_none():
    x = TensorRecipe(shape=(2, 64), dtype="float32", fill=Fill(seed=3))
    assert reference_on(Case(op="quantize", tensors={"x": x}, attrs={"format": "q8_0"}), "cpu") is None
    assert reference_on(silu_of(2, 64).but(op="unheard_of"), "cpu") is None


def test_what_a_user_calls_so_may_be_something_else(tmp_path):
    file = tmp_path / "silu.py"
    file.write_text(Path(contracts.__path__[0], "silu.py").read_text())
    try:
        add_contract(file)
        assert reference_on(silu_of(2, 64), "cpu") is None
    finally:
        forget_contracts()
    assert reference_on(silu_of(2, 64), "cpu") is not None
