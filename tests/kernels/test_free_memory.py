"""A kernel that returns memory which it has not written is told so, as often as it does it and whatever lay there."""

import pytest

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.catalog import user_subject

SIZES = (1, 33, 150, 300, 40_000)
"""Elements: numpy keeps freed arrays of the first three itself."""
TORCH = "import torch\n{head}def run(x):\n    y = torch.nn.functional.silu(x)\n    out = torch.empty_like(x)\n"
NUMPY = (
    TORCH.replace("torch.nn.functional.silu(x)", "x / (1 + np.exp(-x.astype(float)))")
    .replace("import torch", "import numpy as np")
    .replace("torch.", "np.")
)
HEAD = 'OP = "silu"\n'


def case(size):
    fill = Fill(distribution="normal", seed=size)
    return Case(op="silu", tensors={"x": TensorRecipe(shape=(1, size), dtype="float32", fill=fill)})


def verdicts(tmp_path, source):
    path = tmp_path / "mine.py"
    path.write_text(source.format(head=HEAD))
    subject = user_subject(str(path), ())
    requests = [CheckRequest(case(size), (subject.key,)) for size in SIZES for _ in range(3)]
    with Examiner([subject], timeout=5.0) as examiner:
        return [checked.verdicts[subject.key] for checked in examiner.check(requests)]


@pytest.mark.parametrize("body", [TORCH, NUMPY], ids=["torch", "numpy"])
def test_elements_left_out_are_seen_each_time(tmp_path, body):
    pytest.importorskip("torch")
    found = verdicts(tmp_path, body + "    out[:, :-1] = y[:, :-1]\n    return out\n")
    assert {(v.kind, v.message.split("(")[-1].split()[0]) for v in found} == {(Kind.UNWRITTEN, "1")}


@pytest.mark.parametrize("body", [TORCH, NUMPY], ids=["torch", "numpy"])
def test_who_writes_all_passes_whatever_it_allocates(tmp_path, body):
    pytest.importorskip("torch")
    library = "torch" if body is TORCH else "np"
    made = "".join(f"    {kind} = {library}.{kind}(x)\n" for kind in ("zeros_like", "ones_like", "empty_like"))
    more = made + "    empty_like[...] = 1\n    out[...] = y * ones_like * empty_like + zeros_like\n    return out\n"
    assert {v.kind for v in verdicts(tmp_path, body + more)} == {Kind.PASS}


def test_scratch_that_is_read_before_it_is_written_fails(tmp_path):
    pytest.importorskip("torch")
    more = "    sums = torch.empty_like(x)\n    sums += y\n    return sums\n"
    assert Kind.PASS not in {v.kind for v in verdicts(tmp_path, TORCH + more)}
