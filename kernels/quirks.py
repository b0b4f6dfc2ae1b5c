"""What libraries get wrong, found by this tool, with the evidence. The clean subjects decline exactly these cases.

A declined case is counted as `unsupported` with the sentence below, so nothing is hidden; no budget is widened for it.
"""

from __future__ import annotations

from typing import Any

ODD_K = (
    "torch multiplies bfloat16 with an odd number of columns by padding each row with the element behind it times 0, "
    "which is NaN where that element is not finite"
)
"""PyTorch 2.13.0 (CPU, oneDNN) on processors with AMX. With a = zeros(84, 1) whose rows lie 4 elements apart with NaN
in the gaps, a @ zeros(1, 49) has 2058 NaN of 4116 elements; a.contiguous() gives none. With a = ones(17, 31) and
a[8, 0] = inf, rows 7 and 8 of a @ ones(31, 8) are not finite; only row 8 may be. ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 is
right; with AVX512_CORE, odd k gives NaN for some Inf. matmul, addmm, bmm and einsum alike."""

NAN_PAYLOAD = "torch.gather sets the quiet bit of 16-bit NaNs (0x7c01 becomes 0x7e01): it does not copy bits"
"""PyTorch 2.13.0 (CPU): float16 and bfloat16, depending on stride and width; index_select, embedding copy exactly."""


def decline_odd_k(a: Any, b: Any) -> None:
    """Raise NotImplementedError for the bfloat16 products that ODD_K describes; a and b are torch tensors."""
    if a.element_size() != 2 or not str(a.dtype).endswith("bfloat16") or a.shape[1] % 2 == 0:
        return
    if not a.is_contiguous() or not b.is_contiguous() or not bool(a.isfinite().all() & b.isfinite().all()):
        raise NotImplementedError(ODD_K)


def decline_nan_payload(table: Any) -> None:
    """Raise NotImplementedError for the copies that NAN_PAYLOAD describes."""
    if table.is_floating_point() and table.element_size() == 2 and bool(table.isnan().any()):
        raise NotImplementedError(NAN_PAYLOAD)
