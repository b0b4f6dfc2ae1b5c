"""Every input there is: none is left out, one wrong one is found, and what cannot be counted is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.inputs.materialize import materialize, materialize_all
from kernel_assay.corpus.model.case import Fill, TensorRecipe
from kernel_assay.corpus.model.exhaustive_result import Proof
from kernel_assay.fuzz.exhaustive import prove
from kernel_assay.fuzz.exhaustive.prove import cases_of
from kernel_assay.fuzz.exhaustive.sweep import Sweeper
from kernel_assay.kernels.backends.cuda_support.driver import device_count
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.numerics.blocks import unpack

RIGHT = """import numpy as np
OP = "silu"
DTYPES = ("float16",)


@np.errstate(all="ignore")
def run(out, x):
    wide = x.astype(np.float32)
    out[...] = wide / (1 + np.exp(-wide))
"""
WRONG = RIGHT + "    out[x.view(np.uint16) == 0x3C01] = 0\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8"])
def test_every_pattern_comes_once(name):
    fmt = FORMATS[name]
    shape = (256, 256) if fmt.bits == 16 else (1, 256)
    recipe = TensorRecipe(shape=shape, dtype=name, fill=Fill(distribution="every_bits"))
    patterns = materialize(recipe).view(fmt.carrier).reshape(-1)
    assert sorted(patterns.tolist()) == list(range(1 << fmt.bits))
    part = materialize(recipe.but(shape=(1, 3), origin=(0, 5)))
    assert (part.view(fmt.carrier) == patterns[5:8]).all()


def test_all_attributes_of_all_narrow_dtypes_are_tried():
    numpy = next(s for s in subjects_of("gelu") if s.name == "numpy_float32")
    cases = cases_of(contract_of("gelu"), numpy)
    told = [(c.dtype, c.attrs["approximate"]) for c in cases]
    assert told == [(t, a) for t in ("float16", "bfloat16") for a in ("none", "tanh")]
    assert all(materialize_all(c)["x"].size == 1 << 16 for c in cases)


def test_a_kernel_that_is_right_everywhere_holds(fuzz):
    Path("mine.py").write_text(RIGHT)
    code, out, _ = fuzz("prove", "silu", "mine.py")
    assert (code, "holds for every one of them" in out) == (0, True)
    assert "float16  65,536  pass" in out
    assert "bfloat16" not in out, "it is not for that"
    proof = Proof.model_validate(json.loads(Path("corpus/local/proofs/silu/mine.json").read_text()))
    assert proof.holds
    assert proof.subject.source_digest in out
    assert [c.case.elements for c in proof.checked] == [65_536]


def test_one_wrong_number_of_them_all_is_found(fuzz):
    Path("mine.py").write_text(WRONG)
    code, out, _ = fuzz("prove", "silu", "mine.py")
    assert (code, "does not hold" in out) == (1, True)
    assert "1 of 65536 elements fail" in " ".join(out.split()), "in a cell of several lines"
    assert not Proof.model_validate(json.loads(Path("corpus/local/proofs/silu/mine.json").read_text())).holds


def test_one_that_declines_all_has_proved_nothing(fuzz):
    Path("mine.py").write_text(RIGHT + "    raise NotImplementedError('not yet')\n")
    code, out, _ = fuzz("prove", "silu", "mine.py")
    assert (code, "does not hold" in out) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("softmax", "torch_exp_sum"), "softmax is not elementwise with one input"),
        (("convert", "bug_truncate"), "takes no type of at most 16 bits"),
        (("sofmax", "x.py"), "'sofmax' is not known"),
        (("silu", "nobody.py"), "nobody.py does not exist"),
        (("silu", "nobody"), "neither a .py nor a .cu file"),
        (("silu", "torch_silu", "--device", "gpu"), "device 'gpu' is not known"),
    ],
)
def test_what_cannot_be_proved_is_refused(fuzz, words, said):
    code, out, err = fuzz("prove", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


@pytest.mark.parametrize("op", ["silu", "gelu", "convert"])
def test_ops_that_say_so_are_elementwise(op):
    """Elements in another order give the results in that order."""
    contract = contract_of(op)
    x = np.linspace(-9.0, 9.0, 12).reshape(3, 4)
    attrs = {name: values[0] for name, values in contract.attrs.items()}
    turned = contract.reference(x[::-1, ::-1], **attrs)["out"]
    assert (turned == contract.reference(x, **attrs)["out"][::-1, ::-1]).all()


def test_every_scale_with_every_quant_of_packed_blocks():
    cases = cases_of(contract_of("dequantize"), subjects_of("dequantize")[0])
    told = [(c.attrs["format"], c.attrs["to"], *c.tensors["w"].fill.params.values()) for c in cases]
    assert len(set(told)) == len(told) == 3 * (1 + 5 + 1 + 5 + 8 + 8)
    scales = [unpack(materialize(c.tensors["w"]), c.attrs["format"]).d for c in cases[::9]]
    assert all(np.unique(d.astype(np.float16).view(np.uint16)).size == 1 << 16 for d in scales)


PACKED = """import numpy as np
OP = "dequantize"


def run(out, w, *, format):
    if format != "q5_0":
        raise NotImplementedError("q5_0 only")
    blocks = w.reshape(w.shape[0], -1, 22)
    d = blocks[..., :2].copy().view(np.float16).astype(np.float32)
    fifth = np.unpackbits(blocks[..., 2:6], axis=-1, bitorder="little")
    quants = np.concatenate([blocks[..., 6:] & 15, blocks[..., 6:] >> 4], axis=-1) + 16.0 * fifth - 16
    with np.errstate(all="ignore"):
        out[...] = (d * quants).reshape(out.shape)
"""


def test_blocks_are_proved(fuzz):
    Path("mine.py").write_text(PACKED)
    code, out, _ = fuzz("prove", "dequantize", "mine.py")
    assert (code, "holds for every one of them" in out) == (0, True)
    assert re.search(r"uint8 format=q5_0 to=float32 q=0\.\. +2,097,152  pass", out)
    assert "format=q5_1 to=float32 q=0.. min=0x3c00" in out
    Path("mine.py").write_text(PACKED + "        out[d.reshape(256, -1).repeat(32, 1) == 2.0**-24] += 1\n")
    code, out, _ = fuzz("prove", "dequantize", "mine.py")
    assert (code, "(32 of 2097152 elements fail)" in " ".join(out.split())) == (1, True), "one subnormal scale"


def test_ops_that_are_not_do_not_say_so():
    with pytest.raises(UsageError):
        cases_of(contract_of("rmsnorm"), subjects_of("rmsnorm")[0])


@pytest.mark.skipif(device_count() > 0, reason="there is one")
def test_without_a_gpu_it_says_so(fuzz):
    code, out, err = fuzz("prove", "convert", "torch_to", "--device", "cuda")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "there is no CUDA device" in err


class Slices(Sweeper):
    """A sweeper of a few thousand inputs, without a GPU."""

    def __init__(self, subject, **how):
        super().__init__(subject.but(device="cpu"), **{**how, "part": 16})

    def sweep(self, case):
        return super().sweep(case, 0x3F800000 // 256, 32)


@pytest.mark.parametrize(("text", "kind"), [("", "pass"), ("\n    out[x == 1.0] = 2.0\n", "mismatch")])
def test_on_a_gpu_wide_domains_are_tried_too_and_the_record_says_where(monkeypatch, tmp_path, text, kind):
    path = tmp_path / "mine.py"
    path.write_text("DTYPES = ('float32',)\n\ndef run(out, x, *, to):\n    out[...] = x.astype(out.dtype)\n" + text)
    subject = user_subject(str(path), ("convert",)).but(device="cuda")
    monkeypatch.setattr(prove, "Sweeper", Slices)
    monkeypatch.setattr(prove, "gpus", lambda: [("A GPU, 1 MiB", "580.1")])
    proof = prove.prove(contract_of("convert"), subject, timeout=10.0, memory_mb=1024)
    assert [(c.case.attrs["to"], c.kind) for c in proof.checked] == [("float16", kind), ("bfloat16", kind)]
    assert proof.holds == (kind == "pass")
    assert proof.environment.devices == ("A GPU, 1 MiB, driver 580.1",)
    assert Proof.model_validate(proof.plain()).id == proof.id
    assert [row[:3] for row in prove.lines(proof)] == [
        (f"float32 to={to}", "4,294,967,296", kind) for to in ("float16", "bfloat16")
    ]
