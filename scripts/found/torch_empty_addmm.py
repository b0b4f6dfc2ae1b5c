"""PyTorch 2.13.0: addmm in 16 bits rounds beta where there is nothing to multiply, and not otherwise."""

from _seen import needed, tell

with needed():
    import torch

c = torch.full((1, 1), 3.0, dtype=torch.bfloat16)
empty, one = (
    torch.addmm(c, torch.zeros(1, k, dtype=c.dtype), torch.zeros(k, 1, dtype=c.dtype), beta=-1.7).item() for k in (0, 1)
)
tell(empty != one, f"-1.7 * 3 is {empty} with k = 0, {one} with k = 1")
