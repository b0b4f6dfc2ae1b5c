"""The binding to GGML: right on whole rows, and silent about what would end the process."""

from importlib.util import find_spec

import numpy as np
import pytest

from kernel_assay.corpus.blocks import BLOCKS
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.support import ggml_library
from kernel_assay.kernels.backends.support.ggml_library import Packed, compute, dequantize, partner, quantize
from kernel_assay.kernels.quirks import FORGOTTEN_MAXIMUM, decline_forgotten_maximum
from kernel_assay.oracles.numerics.blocks import dequantized, quantized

needed = pytest.mark.skipif(find_spec("libggml") is None, reason="libggml-python is not installed")
X = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)


@needed
def test_one_operation_after_the_other():
    for _ in range(3):
        out = np.full((4, 64), np.nan, np.float32)
        compute("silu", out, X)
        assert out == pytest.approx(X / (1 + np.exp(-X)), rel=1e-5)
        total = np.full(4, np.nan, np.float32)
        compute("sum_rows", total[:, None], X)
        assert total == pytest.approx(X.sum(axis=1), abs=1e-5)


@needed
def test_numbers_and_absent_tensors_are_arguments():
    out = np.empty_like(X)
    compute("soft_max_ext", out, X, None, 0.5, 0.0)
    e = np.exp(X / 2)
    assert out == pytest.approx(e / e.sum(axis=1, keepdims=True), rel=1e-5)


@needed
@pytest.mark.parametrize("name", BLOCKS)
def test_rows_of_blocks(name):
    packed = quantized(X, name)
    for reference in (True, False):
        out = np.zeros_like(packed)
        quantize(out, X, name, reference=reference)
        assert (out != packed).mean() < 0.01, "but for ties"
    back = np.empty_like(X)
    if name == "q8_1":
        with pytest.raises(NotImplementedError, match="does not unpack q8_1"):
            dequantize(back, packed, name)
    else:
        dequantize(back, packed, name)
        assert (back == dequantized(packed, name).astype(np.float32)).all()


@needed
def test_weights_have_their_activations():
    pairs = {name: partner(name) for name in BLOCKS if name != "q8_1"}
    assert pairs == {"q4_0": "q8_0", "q4_1": "q8_1", "q5_0": "q8_0", "q5_1": "q8_1", "q8_0": "q8_0"}
    out = np.empty((4, 4), np.float32)
    compute("mul_mat", out, Packed(quantized(X, "q4_0"), "q4_0"), Packed(quantized(X, "q8_0"), "q8_0"))
    want = dequantized(quantized(X, "q8_0"), "q8_0") @ dequantized(quantized(X, "q4_0"), "q4_0").T
    assert out == pytest.approx(want, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("bad", [X.T, X[:, ::2], np.broadcast_to(X[:1], X.shape), X[:0], X[:, :0]])
def test_what_would_end_the_process_is_declined(bad):
    with pytest.raises(NotImplementedError, match="whole rows without gaps"):
        compute("silu", np.empty((4, 64), np.float32), bad)
    with pytest.raises(NotImplementedError, match="whole rows without gaps"):
        quantize(np.empty((4, 68), np.uint8), bad, "q8_0", reference=True)


def test_nothing_is_asked_for_nothing():
    compute("silu", np.empty((0, 64), np.float32), X[:0])
    quantize(np.empty((3, 0), np.uint8), X[:3, :0], "q8_0", reference=True)


@needed
def test_types_and_shapes_that_do_not_fit_are_named():
    with pytest.raises(NotImplementedError, match="not given float64"):
        compute("silu", np.empty((4, 64), np.float32), X.astype(np.float64))
    with pytest.raises(RuntimeError, match="ggml_silu gives type 0 of shape"):
        compute("silu", np.empty((4, 32), np.float32), X)


@needed
def test_an_argmax_after_a_nan():
    out = np.empty(1, np.int32)
    x = np.array([[0, np.nan, -5, -1]], np.float32)
    compute("argmax", out, x)
    assert out[0] == 3, "if GGML mended it, the quirk can go"
    with pytest.raises(NotImplementedError, match="forgets at a NaN"):
        decline_forgotten_maximum(x)
    decline_forgotten_maximum(X)
    assert "ggml_argmax" in FORGOTTEN_MAXIMUM


def test_without_the_wheel_nothing_runs(monkeypatch):
    monkeypatch.setattr(ggml_library, "find_spec", lambda _: None)
    loader = loader_of("ggml")
    assert loader.unavailable() == "libggml-python is not installed"
    assert "libggml-python" not in loader.versions()
    ggml_library._library.cache_clear()
    with pytest.raises(NotImplementedError, match="libggml-python is not installed"):
        compute("silu", np.empty_like(X), X)
    ggml_library._library.cache_clear()
