"""What is read of a tensor that a kernel gives back."""

import pytest

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
