"""Settings of torch: its own for whoever says nothing, a file's for its function, and nobody's for another's."""

import pytest

from kernel_assay.kernels.backends.torch import TorchLoader

torch = pytest.importorskip("torch")

TELLS = "import torch\n\n\ndef run():\n    matmul = torch.backends.cuda.matmul\n    return {}\n"
ASKED = {
    "matmul.allow_tf32": False,
    "matmul.allow_fp16_reduced_precision_reduction": True,
    "matmul.allow_bf16_reduced_precision_reduction": True,
    "torch.get_float32_matmul_precision()": "highest",
    "torch.get_default_dtype()": torch.float32,
    "torch.are_deterministic_algorithms_enabled()": False,
    "bool(torch.tensor(1e-40) * 1 == 0)": False,
}
"""What a function sees, and what it is by default."""
SETS = {
    "matmul.allow_tf32": "torch.backends.cuda.matmul.allow_tf32 = True",
    "matmul.allow_fp16_reduced_precision_reduction": (
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False"
    ),
    "torch.get_float32_matmul_precision()": "torch.set_float32_matmul_precision('high')",
    "torch.get_default_dtype()": "torch.set_default_dtype(torch.float64)",
    "torch.are_deterministic_algorithms_enabled()": "torch.use_deterministic_algorithms(True)",
    "bool(torch.tensor(1e-40) * 1 == 0)": "torch.set_flush_denormal(True)",
}


@pytest.fixture
def loaded(tmp_path):
    loader = TorchLoader()

    def load(asked, *, imported="pass", called="pass"):
        path = tmp_path / f"k{len(list(tmp_path.iterdir()))}.py"
        path.write_text(
            TELLS.format(asked).replace("\n\n\ndef", f"\n{imported}\n\n\ndef").replace("):\n", f"):\n    {called}\n", 1)
        )
        return loader.load(path, "run")

    return load


@pytest.mark.parametrize("asked", ASKED)
def test_a_file_that_says_nothing_has_torchs_own(loaded, asked):
    assert loaded(asked)() == ASKED[asked]


@pytest.mark.parametrize("asked", SETS)
def test_what_a_file_sets_is_set_for_its_function_alone(loaded, asked):
    own, other = loaded(asked, imported=SETS[asked]), loaded(asked)
    assert other() == ASKED[asked]
    assert own() != ASKED[asked]
    assert other() == ASKED[asked]


@pytest.mark.parametrize("asked", SETS)
def test_what_a_function_sets_and_leaves_is_undone(loaded, asked):
    careless, other = loaded(asked, called=SETS[asked]), loaded(asked)
    assert careless() != ASKED[asked]
    assert other() == ASKED[asked]


def test_a_function_that_raises_leaves_nothing_either(loaded):
    failing, other = loaded("1 // 0", imported=SETS["matmul.allow_tf32"]), loaded("matmul.allow_tf32")
    with pytest.raises(ZeroDivisionError):
        failing()
    assert other() is False
