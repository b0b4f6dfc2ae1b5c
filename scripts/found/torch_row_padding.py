"""PyTorch 2.13.0 (CPU with AMX): a bfloat16 product reads the elements behind each row of its first factor."""

from pathlib import Path

from _seen import needed, tell

with needed():
    import torch

inside = torch.full((84, 4), torch.nan, dtype=torch.bfloat16)
inside[:, 0] = 0
a, b = inside[:, :1], torch.zeros(1, 49, dtype=torch.bfloat16)
strided, dense = ((x @ b).isnan().sum().item() for x in (a, a.contiguous()))
lacks = "" if "amx_bf16" in Path("/proc/cpuinfo").read_text() else "AMX"
tell(strided or dense, f"{strided} NaN of 4116, {dense} if contiguous", lacks)
