"""Errors of libraries, found by this tool, with the evidence. The clean subjects decline exactly these cases.

A declined case is counted as `unsupported` with the sentence below, so nothing is hidden; no budget is widened for it.
What a compiler gets wrong is avoided instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ROW_PADDING = (
    "torch pads the rows of a bfloat16 product with the elements behind them times 0, "
    "which is NaN where one of those is not finite"
)
"""PyTorch 2.13.0 (CPU, oneDNN) on processors with AMX, for odd inner dimensions k and for many above 32.

With a = zeros(84, 1) whose rows lie 4 elements apart with NaN in the gaps, a @ zeros(1, 49) has 2058 NaN of 4116
elements; a.contiguous() gives none. With a = ones(17, 31), a[8, 0] = inf, rows 7 and 8 of a @ ones(31, 8) are not
finite; only row 8 may be. ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 is right; with AVX512_CORE, odd k gives NaN for some
Inf. matmul, addmm, bmm, einsum and mv alike."""

SAFE_K = 32
"""Even inner dimensions up to here showed nothing."""

NARROW_ADDMV = "torch.addmv in 16 bits rounds alpha and the product before the sum, and with alpha = 0 may do nothing"
"""PyTorch 2.13.0 (CPU), float16 and bfloat16; addmm does neither.

With a = 1 + 3 * 2**-10 in float16, addmv([1], [[a]], [a], beta=-1) is 0.005859375 and addmm 0.00586700, which is right;
addmv([0], [[1]], [0.731], alpha=0.3) is 0.2194, for 0.2193. addmv(3 * ones(5), ones(5, 835), ones(835), alpha=0,
beta=2) is 3, not 6, and with beta=0 an `out` keeps what was in it: at alpha = 0 oneDNN writes nothing."""

EMPTY_ADDMM = "torch.addmm in 16 bits rounds beta where there is nothing to multiply (k = 0), and not otherwise"
"""PyTorch 2.13.0 (CPU) and 2.11.0 (CUDA 13.0, H200), float16 and bfloat16.

With c = [[3]] and beta = -1.7 in bfloat16, addmm(c, zeros(1, 0), zeros(0, 1), beta=beta) is -5.125, for beta became
-1.703125; with zeros(1, 1) and zeros(1, 1) it is -5.09375, which is right."""

NAN_PAYLOAD = "torch.gather sets the quiet bit of 16-bit NaNs (0x7c01 becomes 0x7e01): it does not copy bits"
"""PyTorch 2.13.0 (CPU): float16 and bfloat16, depending on stride and width; index_select, embedding copy exactly."""

FORGOTTEN_MAXIMUM = "ggml_argmax forgets at a NaN what it has seen, and gives the largest number behind it"
"""libggml-python 0.20.2 (GGML's CPU backend), float32: max = MAX(max, x) is NaN after a NaN, and x after that.

ggml_argmax of [1, nan, 0] is 2, the place of the 0; of [1, nan] it is 0."""

INFINITE_MEAN = "torch's rms_norm on a GPU gives NaN for all of a row whose mean square is infinite, where 0 is right"
"""PyTorch 2.11.0 (CUDA 13.0, H200), all float types: also where the square of a finite number overflows, or what is
made of squares on the way to the mean (see WIDE_ROW): rms_norm of [-8.3e18, 5.4e18, -7e18] is 0.

rms_norm of [1, inf] is [nan, nan]; x * rsqrt(mean(x * x) + eps), and torch on the CPU, give [0, nan]."""

WIDE_ROW = "torch's layer_norm on a GPU gives 0 for a row whose squares overflow on the way to a variance that does not"
"""PyTorch 2.11.0 (CUDA 13.0, H200), float32: variances are put together from parts (Welford), with the square of a
difference of means times how many elements there are on either side.

layer_norm of [[9.1e18, -9.1e18, 0]] is 0, with a variance of 5.5e37; of [[7.8e18, -7.8e18, 0]] it is right, and so is a
composed one of both. 300 elements of which none is larger than 1.3e18 are right, too."""

ROUNDED_PRODUCT = "cuBLAS on a GPU rounds a 16-bit product to 16 bits before it adds the summand, for some shapes"
"""cuBLAS 13.0 with PyTorch 2.11.0 on an H200, float16 and bfloat16: for beta = 1 where the rows of b are whole 16 bytes
(the kernels nvjet_sm90_*_badd_*), whatever alpha; and for any beta in bfloat16 where a and b are contiguous, n and k
even, and the rows few.

With a = c = ones(1, 8) and b in bfloat16, addmm(c, a, b) is -0.0859375 where a @ b is -1.0888671875: -1.0859375 is
the bfloat16 next to that, and -0.0888671875 would be right. A product beyond the largest float16 becomes infinite, and
with an infinite summand NaN. So it is with reduced precision allowed or not, by cublas and by cublasLt; and for
a = ones(2, 8).T, whose rows are no whole 16 bytes, or a result of one column of whole 16 bytes. Of 17,280 products with
alpha = -1 and beta = 1, of up to 64 rows, columns and terms, 3,389 were such; with beta = 0.5 it was 43, of 7 to 16
rows."""

TENSOR_CORES = "torch's 16-bit products on a GPU are those of tensor cores, whose arithmetic gemm/torch_half claims"
"""No fault, but no float32 accumulator either: blocks of 16 products are aligned and cut (docs/numerics.md, 2.1), and a
subnormal operand is not normalized before.

PyTorch 2.11.0 (CUDA 13.0, H200), float16: a row of 2**-24 times [-0.0075, -621.5, 0, -0.728, 216.9, 0.96, 3356, -75.13,
-55840, 714, 63168, -11144, 7.559, -12.21, 0.0191, -3e-5] gives -231 * 2**-24, the sum of the products cut to multiples
of 2**-24, where -230.16 * 2**-24 is due."""

UNALIGNED_ATTENTION = (
    "torch's attention on a GPU reads tensors that do not begin at a multiple of 16 bytes as if they did"
)
"""PyTorch 2.11.0 (CUDA 13.0, H200): it ends in a misaligned address, or in NaN; what a row is aligned to is checked,
where the first one begins is not."""

GAPPED_ATTENTION = (
    "torch's attention on a GPU has no kernel for rows that are not a multiple of 16 bytes apart, though each is one"
)
"""PyTorch 2.11.0 (CUDA 13.0, H200), float32, for as many key heads as query heads.

With q = zeros(0, 1, 1, 4) and k = zeros(0, 1, 2, 7)[..., :4], scaled_dot_product_attention(q, k, zeros(0, 1, 2, 4))
raises "cutlassF: no kernel found to launch!", as does a batch that is not empty; the kernel is chosen by the size of a
head, and then refuses the distance of rows. With k.contiguous() it is right."""

SPLIT_INFINITY = "torch's attention on a GPU splits float32 in two, of which an infinite one leaves Inf - Inf"
"""PyTorch 2.11.0 (CUDA 13.0, H200), float32, where the size of a head is a multiple of 4 (and kernels with tensor cores
are chosen), for as many key heads as query heads.

With q = ones(1, 1, 1, 4), k = 0.5 * ones(1, 1, 2, 4) but for k[0, 0, 0, 0] = -inf, and v = ones(1, 1, 2, 4),
scaled_dot_product_attention(q, k, v) is NaN, and 1 under sdpa_kernel(MATH); with v[0, 0, 0, 0] = inf it is NaN instead
of Inf. Sizes 2, 3 and 5 are right, as is k = -3.4e38. So it is for any mask, and for contiguous tensors too."""

LOST_NAN = "torch's attention without a mask gives 0 for a row whose last scores are NaN and whose others are -Inf"
"""PyTorch 2.13.0 (CPU), all float types: the maximum behind the last whole vector is taken with std::max, which drops a
NaN that stands second, and a row whose maximum is -Inf counts as masked.

With q, v = ones(1, 1, 1, 4), ones(1, 1, n, 4) and k = full((1, 1, n, 4), nan), scaled_dot_product_attention(q, k, v) is
0 for n up to 15 (float64: 7; half of that with AVX2) and NaN from there on. Whole vectors were repaired after issue
141128. With attn_mask it is right."""

LOST_DESCRIPTOR = (
    "ptxas 12.8 forgets where the second operand of a product lies in shared memory if it is where an earlier one was"
)
"""ptxas 12.8.93 for sm_90a, which Triton 3.6 (PyTorch 2.11) brings, with -O2 and -O3; 12.9.86 and 13.0 do right.

The loop of kernels/attention/triton_flash.py, bfloat16 or float16, with 64 rows, HEAD=32 and k with a stride in its
last axis, once loaded v after the product with k, into the memory that k had left. Then of the four descriptors of the
product with v, the PTX adds 64, 128 and 192 to one base; the machine code begins with UIADD3 UR10, UP0, UR10, 0x40,
and nothing before that writes UR10. The weights behind the 16th key are multiplied with whatever lies where that points
to: rows of q, if UR10 is 0. With 12 keys all those weights are 0, and it shows only as 0 * Inf. Of 140 specializations
that were compiled so, 4 were such; with k and v in memory of their own, none of 245."""

REORDERED_SUM = "Triton 3.6 mixes rows up that are summed in a loop if the elements of a column lie side by side"
"""Triton 3.6.0 (PyTorch 2.11) for sm_90, in its pass OptimizeThreadLocality; 3.9 is right (its pull request 11186).

With `total += tl.sum(x, axis=1)` in a loop, for an x of 256 x 2 float32 whose rows have the stride 1, the pass puts a
reshape before the sum that may reorder elements, and the PTX adds x[i, 0] and x[i + 128, 0]. An x that is added to a
tile of its own shape, which is summed behind the loop, is right."""


def decline_row_padding(a: Any, b: Any) -> None:
    """Raise NotImplementedError for the bfloat16 products that ROW_PADDING describes; a and b are torch tensors."""
    k = a.shape[1]
    if not str(a.dtype).endswith("bfloat16") or (k % 2 == 0 and k <= SAFE_K):
        return
    if not a.is_contiguous() or not b.is_contiguous() or not bool(a.isfinite().all() & b.isfinite().all()):
        raise NotImplementedError(ROW_PADDING)


def decline_narrow_addmv(a: Any, y: Any, alpha: float) -> None:
    """Raise NotImplementedError for the products that NARROW_ADDMV describes; y: the summand, or None."""
    if a.element_size() == 2 and (y is not None or alpha != 1.0):
        raise NotImplementedError(NARROW_ADDMV)


def decline_empty_addmm(a: Any, beta: float) -> None:
    """Raise NotImplementedError for the products that EMPTY_ADDMM describes; beta: the factor of the summand."""
    if a.element_size() == 2 and a.shape[1] == 0 and float(a.new_tensor(beta)) != beta:
        raise NotImplementedError(EMPTY_ADDMM)


def decline_nan_payload(table: Any) -> None:
    """Raise NotImplementedError for the copies that NAN_PAYLOAD describes."""
    if table.is_floating_point() and table.element_size() == 2 and bool(table.isnan().any()):
        raise NotImplementedError(NAN_PAYLOAD)


def decline_infinite_mean(x: Any) -> None:
    """Raise NotImplementedError for the rows that INFINITE_MEAN describes; x is a torch tensor."""
    if x.is_cuda and x.numel() and bool((_wide(x).abs().amax(-1) > _overflowing(x)).any()):
        raise NotImplementedError(INFINITE_MEAN)


def decline_unaligned_attention(*tensors: Any) -> None:
    """Raise NotImplementedError for the tensors of torch that UNALIGNED_ATTENTION describes."""
    if any(x.is_cuda and x.data_ptr() % 16 for x in tensors):
        raise NotImplementedError(UNALIGNED_ATTENTION)


def decline_gapped_attention(q: Any, k: Any, v: Any) -> None:
    """Raise NotImplementedError for the tensors of torch that GAPPED_ATTENTION describes."""
    if not q.is_cuda or q.shape[1] != k.shape[1] or q.shape[-1] * q.element_size() % 16:
        return
    if any(step * x.element_size() % 16 for x in (q, k, v) for step in x.stride()[:-1]):
        raise NotImplementedError(GAPPED_ATTENTION)


def decline_split_infinity(q: Any, k: Any, v: Any) -> None:
    """Raise NotImplementedError for the tensors of torch that SPLIT_INFINITY describes."""
    if not q.is_cuda or str(q.dtype) != "torch.float32" or q.shape[1] != k.shape[1] or q.shape[-1] % 4:
        return
    if any(bool(x.isinf().any()) for x in (q, k, v)):
        raise NotImplementedError(SPLIT_INFINITY)


def decline_wide_row(x: Any) -> None:
    """Raise NotImplementedError for the rows that WIDE_ROW describes, and others near them; x is a torch tensor."""
    if not x.is_cuda or not x.numel():
        return
    spread = _wide(x).amax(-1) - _wide(x).amin(-1)
    if bool((spread.isfinite() & (spread > _overflowing(x))).any()):
        raise NotImplementedError(WIDE_ROW)


def decline_tensor_cores(a: Any) -> None:
    """Raise NotImplementedError for the products that TENSOR_CORES describes; a: a factor, a torch tensor."""
    if a.is_cuda and a.element_size() == 2:
        raise NotImplementedError(TENSOR_CORES)


def decline_rounded_product(a: Any, b: Any, beta: float) -> None:
    """Raise NotImplementedError for the products with a summand that ROUNDED_PRODUCT describes."""
    (m, k), n = a.shape, b.shape[1]
    if not a.is_cuda or a.element_size() != 2:
        return
    dense = a.is_contiguous() and b.is_contiguous() and k % 2 == n % 2 == 0
    if (beta == 1.0 and (n if n > 1 else m) % 8 == 0) or (str(a.dtype).endswith("bfloat16") and dense and 5 < m <= 16):
        raise NotImplementedError(ROUNDED_PRODUCT)


def _wide(x: Any) -> Any:
    """A torch tensor in the type that it is computed in, float32 or float64."""
    return x.double() if x.element_size() == 8 else x.float()


def _overflowing(x: Any) -> float:
    """Rows of a torch tensor whose numbers, or their distances, are larger may overflow when squares are summed."""
    most = np.finfo(np.float64 if x.element_size() == 8 else np.float32).max
    return float((float(most) / (4 * x.shape[-1])) ** 0.5)


def decline_lost_nan(scores: Any, vector: int) -> None:
    """Raise NotImplementedError for the rows that LOST_NAN describes.

    scores: a torch tensor, keys along the last axis, in the type they are computed in; vector: bytes of a vector.
    """
    whole = scores.shape[-1] // (vector // scores.element_size()) * (vector // scores.element_size())
    last, masked = scores[..., whole:], scores == -float("inf")
    lost = last.isnan().any(-1) & (last.isnan() | masked[..., whole:]).all(-1) & masked[..., :whole].all(-1)
    if bool(lost.any()):
        raise NotImplementedError(LOST_NAN)


def decline_forgotten_maximum(x: Any) -> None:
    """Raise NotImplementedError for the rows that FORGOTTEN_MAXIMUM describes; x is a numpy array."""
    if bool((x != x).any()):  # noqa: PLR0124  only NaN differs from itself
        raise NotImplementedError(FORGOTTEN_MAXIMUM)
