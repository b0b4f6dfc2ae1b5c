"""torch.gather along the rows on the CPU."""

import torch

BACKEND = "torch"


def run(out, table, indices):
    wide = indices.long()[:, None].expand(-1, table.shape[1])
    torch.gather(table, 0, wide, out=out)
