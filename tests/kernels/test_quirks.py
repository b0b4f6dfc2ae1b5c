"""Declined cases are exactly those that a library gets wrong: a repaired library makes these tests fail."""

import math
import random
import re

import pytest

from kernel_assay.kernels.attention.torch_sdpa import VECTOR
from kernel_assay.kernels.quirks import (
    GAPPED_ATTENTION,
    INFINITE_MEAN,
    LOST_NAN,
    ROUNDED_PRODUCT,
    SPLIT_INFINITY,
    WIDE_ROW,
    decline_empty_addmm,
    decline_gapped_attention,
    decline_infinite_mean,
    decline_lost_nan,
    decline_rounded_product,
    decline_split_infinity,
    decline_wide_row,
)

torch = pytest.importorskip("torch")


def is_lost(scores):
    """Whether torch gives a number for a row of scores with a NaN."""
    ones = torch.ones(1, 1, 1, 1, dtype=scores.dtype)
    keys = scores[None, None, :, None]
    out = torch.nn.functional.scaled_dot_product_attention(ones, keys, torch.ones_like(keys))
    return bool(scores.isnan().any()) and not bool(out.isnan().any())


def declines(scores):
    try:
        decline_lost_nan(scores[None], VECTOR)
    except NotImplementedError:
        return True
    return False


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_nan_is_lost_exactly_where_a_case_is_declined(dtype):
    choose, lost = random.Random(1), 0
    for _ in range(400):
        size, whole = choose.randrange(1, 70), choose.choice([-math.inf, math.nan, 1.0])
        share = choose.choice([0.02, 0.5, 1.0])
        row = [math.nan if choose.random() < share else -math.inf for _ in range(size)]
        if choose.random() < 0.7:
            row[: size // 16 * 16] = [whole] * (size // 16 * 16)
        scores = torch.tensor(row, dtype=dtype)
        assert is_lost(scores) == declines(scores), row
        lost += is_lost(scores)
    assert 10 < lost < 360  # the fewest with AVX2, whose vectors hold four of float64


def test_the_smallest_row_that_is_lost():
    assert is_lost(torch.tensor([math.nan]))
    with pytest.raises(NotImplementedError, match=re.escape(LOST_NAN)):
        decline_lost_nan(torch.tensor([math.nan]), VECTOR)
    assert not declines(torch.tensor([math.nan, 0.0]))
    assert not declines(torch.tensor([-math.inf]))
    assert not declines(torch.full((VECTOR // 4,), math.nan))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("k", [0, 1])
def test_beta_is_rounded_exactly_where_a_case_is_declined(dtype, k):
    wrong = declined = 0
    for beta in (-1.7, 0.3, 2.0, -0.5, 1.01):
        c, a, b = (
            torch.arange(1, 50, dtype=dtype)[:, None],
            torch.zeros(49, k, dtype=dtype),
            torch.zeros(k, 1, dtype=dtype),
        )
        due = (c.double() * beta).to(dtype)
        wrong += not bool((torch.addmm(c, a, b, beta=beta, out=torch.empty_like(c)) == due).all())
        try:
            decline_empty_addmm(a, beta)
        except NotImplementedError:
            declined += 1
    assert wrong == declined == (0 if k else 3)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@needs_gpu
def test_rms_norm_on_a_gpu_gives_nan_where_the_mean_square_is_infinite():
    x = torch.tensor([1.0, math.inf], device="cuda")
    assert torch.nn.functional.rms_norm(x, (2,)).isnan().all()
    with pytest.raises(NotImplementedError, match=re.escape(INFINITE_MEAN)):
        decline_infinite_mean(x)
    decline_infinite_mean(torch.ones(1, 2, device="cuda"))
    finite = torch.tensor([[-8.3e18, 5.4e18, -7e18]], device="cuda")
    assert not torch.nn.functional.rms_norm(finite, (3,)).any()
    with pytest.raises(NotImplementedError, match=re.escape(INFINITE_MEAN)):
        decline_infinite_mean(finite)


@needs_gpu
@pytest.mark.parametrize("size", [3, 4, 8, 64])
@pytest.mark.parametrize("which", [1, 2])
def test_attention_on_a_gpu_makes_nan_of_an_infinity_it_splits(size, which):
    tensors = [torch.ones(1, 1, rows, size, device="cuda") for rows in (1, 7, 7)]
    decline_split_infinity(*tensors)
    tensors[which][0, 0, 0, 0] = -math.inf
    found = torch.nn.functional.scaled_dot_product_attention(*tensors)
    assert bool(found[0, 0, 0, 0].isnan()) == (size % 4 == 0)
    if size % 4 == 0:
        with pytest.raises(NotImplementedError, match=re.escape(SPLIT_INFINITY)):
            decline_split_infinity(*tensors)


@needs_gpu
def test_layer_norm_on_a_gpu_overflows_before_the_variance_does():
    x = torch.tensor([[9.1e18, -9.1e18, 0.0]], device="cuda")
    assert torch.nn.functional.layer_norm(x, (3,)).tolist() == [[0.0, 0.0, 0.0]]
    assert float(x.square().mean()) < math.inf
    with pytest.raises(NotImplementedError, match=re.escape(WIDE_ROW)):
        decline_wide_row(x)
    decline_wide_row(x / 8)
    decline_wide_row(torch.tensor([[math.inf, -math.inf, math.nan]], device="cuda"))
    assert float(torch.nn.functional.layer_norm(x / 8, (3,))[0, 0]) == pytest.approx(1.2247, rel=1e-4)


@needs_gpu
@pytest.mark.parametrize("alpha", [1.0, -1.0, 2.0])
def test_a_product_on_a_gpu_is_rounded_before_a_summand_is_added(alpha):
    a, b = torch.ones(1, 8, device="cuda"), torch.zeros(8, 8, device="cuda")
    b[:2, 0] = torch.tensor([-1.0, -0.0888671875]) / alpha
    a, b = a.bfloat16(), b.bfloat16()
    assert float(torch.addmm(a, a, b, alpha=alpha)[0, 0]) == -0.0859375
    with pytest.raises(NotImplementedError, match=re.escape(ROUNDED_PRODUCT)):
        decline_rounded_product(a, b, 1.0)
    with pytest.raises(NotImplementedError, match=re.escape(ROUNDED_PRODUCT)):
        decline_rounded_product(b, b[:, :1], 1.0)
    decline_rounded_product(a, b[:, :7], 1.0)
    decline_rounded_product(a, b[:, :1], 1.0)
    decline_rounded_product(a, b, 0.5)


@needs_gpu
def test_so_it_is_in_bfloat16_with_any_factor_of_the_summand_where_rows_are_few():
    a, b = torch.ones(8, 2, device="cuda"), torch.zeros(2, 8, device="cuda")
    b[:, 0] = torch.tensor([-1.0, -0.0888671875])
    a, b, c = a.bfloat16(), b.bfloat16(), torch.full((8, 8), 2.0, device="cuda", dtype=torch.bfloat16)
    assert float(torch.addmm(c, a, b, beta=0.5)[0, 0]) == -0.0859375
    with pytest.raises(NotImplementedError, match=re.escape(ROUNDED_PRODUCT)):
        decline_rounded_product(a, b, 0.5)
    for other in (a[:5], a.T.contiguous().T, a.half()):
        decline_rounded_product(other, b, 0.5)


@needs_gpu
def test_attention_on_a_gpu_has_no_kernel_for_rows_with_gaps():
    q, v, gapped = (torch.zeros(0, 1, rows, width, device="cuda") for rows, width in ((1, 4), (2, 4), (2, 7)))
    k, dense = gapped[..., :4], v
    with pytest.raises(RuntimeError, match="no kernel found"):
        torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    with pytest.raises(NotImplementedError, match=re.escape(GAPPED_ATTENTION)):
        decline_gapped_attention(q, k, v)
    decline_gapped_attention(q, dense, v)
    decline_gapped_attention(q.repeat(1, 2, 1, 1), k, v)
