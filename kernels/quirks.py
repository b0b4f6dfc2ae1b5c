"""What libraries get wrong, found by this tool, with the evidence. The clean subjects decline exactly these cases.

A declined case is counted as `unsupported` with the sentence below, so nothing is hidden; no budget is widened for it.
"""

from __future__ import annotations

from typing import Any

ROW_PADDING = (
    "torch pads the rows of a bfloat16 product with the elements behind them times 0, "
    "which is NaN where one of those is not finite"
)
"""PyTorch 2.13.0 (CPU, oneDNN) on processors with AMX, for odd inner dimensions k and for many above 32.

With a = zeros(84, 1) whose rows lie 4 elements apart with NaN in the gaps, a @ zeros(1, 49) has 2058 NaN of 4116
elements; a.contiguous() gives none. With a = ones(17, 31), a[8, 0] = inf, rows 7 and 8 of a @ ones(31, 8) are not
finite; only row 8 may be. ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 is right; with AVX512_CORE, odd k gives NaN for some
Inf. matmul, addmm, bmm and einsum alike."""

SAFE_K = 32
"""Even inner dimensions up to here showed nothing."""

NAN_PAYLOAD = "torch.gather sets the quiet bit of 16-bit NaNs (0x7c01 becomes 0x7e01): it does not copy bits"
"""PyTorch 2.13.0 (CPU): float16 and bfloat16, depending on stride and width; index_select, embedding copy exactly."""


def decline_row_padding(a: Any, b: Any) -> None:
    """Raise NotImplementedError for the bfloat16 products that ROW_PADDING describes; a and b are torch tensors."""
    k = a.shape[1]
    if not str(a.dtype).endswith("bfloat16") or (k % 2 == 0 and k <= SAFE_K):
        return
    if not a.is_contiguous() or not b.is_contiguous() or not bool(a.isfinite().all() & b.isfinite().all()):
        raise NotImplementedError(ROW_PADDING)


def decline_nan_payload(table: Any) -> None:
    """Raise NotImplementedError for the copies that NAN_PAYLOAD describes."""
    if table.is_floating_point() and table.element_size() == 2 and bool(table.isnan().any()):
        raise NotImplementedError(NAN_PAYLOAD)
