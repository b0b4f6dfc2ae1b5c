"""torch.gather along the rows on the CPU."""

import torch

from kernel_assay.kernels.quirks import decline_nan_payload

BACKEND = "torch"


def run(out, table, indices):
    decline_nan_payload(table)
    wide = indices.long()[:, None].expand(-1, table.shape[1])
    torch.gather(table, 0, wide, out=out)
