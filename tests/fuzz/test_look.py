"""A failure seen closely: also one beside an input, which is no output."""

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.kernels.catalog import user_subject

BEHIND_X = """
import ctypes
import numpy as np
OP = "silu"

def run(out, x):
    w = x.astype(np.float64)
    out[...] = w / (1 + np.exp(-w))
    ctypes.memset(x.ctypes.data + x.nbytes + 8, 7, 4)
"""


def test_what_is_written_behind_an_input_is_looked_at(tmp_path):
    (tmp_path / "mine.py").write_text(BEHIND_X)
    subject = user_subject(str(tmp_path / "mine.py"), ())
    fill = Fill(distribution="normal", seed=1)
    case = Case(op="silu", tensors={"x": TensorRecipe(shape=(3, 5), dtype="float32", fill=fill)})
    with Examiner([subject]) as examiner:
        look = examiner.look(case, subject.key)
    assert look.verdict.kind is Kind.OUT_OF_BOUNDS
    assert "'x'" in look.verdict.message
    assert look.exhibit.output == "out"
