"""What is read of a tensor that a kernel gives back."""

import pytest

from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.fuzz.testing import hold
from kernel_assay.kernels.backends.torch import TorchLoader

torch = pytest.importorskip("torch")


def test_the_place_of_a_result_is_that_of_the_tensor_which_is_held():
    """That of a copy made to read it would be the next result's, too, as nobody holds the copy."""
    given = torch.arange(12, dtype=torch.float32)
    lazy = torch._neg_view(given)
    found = TorchLoader().unwrap(lazy)
    assert found.array.tolist() == (-given).tolist()
    assert found.place == TorchLoader().unwrap(given).place
    assert given.data_ptr() in found.place


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("torch.empty_like(x, device='meta')", "it returned a tensor on the device meta, not on cpu"),
        ("x.to_sparse()", "it returned a tensor of the layout sparse_coo, not a dense one"),
        ("torch.nested.nested_tensor([x])", "NestedTensor"),
        ("torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)", "QUInt8"),
    ],
)
def test_a_result_that_cannot_be_read_is_a_fault_of_the_kernel(tmp_path, returned, said):
    """It declines nothing: torch's own NotImplementedError is not the kernel's."""
    (tmp_path / "mine.py").write_text(f"import torch\n\n\ndef run(x):\n    return {returned}\n")
    case = Case(op="silu", tensors={"x": TensorRecipe(shape=(2, 3), dtype="float32")})
    with pytest.raises(AssertionError, match=f"^raised: .*{said}"):
        hold(case, tmp_path / "mine.py")
