"""PyTorch 2.13.0 (CPU, where oneDNN multiplies): addmv in 16 bits loses beta at alpha = 0, and rounds alpha."""

from _seen import needed, tell

with needed():
    import torch

said = []
for dtype in (torch.float16, torch.bfloat16):
    y, a, x = 3 * torch.ones(5, dtype=dtype), torch.ones(5, 835, dtype=dtype), torch.ones(835, dtype=dtype)
    got = torch.addmv(y, a, x, alpha=0, beta=2)[0].item()
    one, factor = torch.ones(1, 1, dtype=dtype), torch.tensor([0.731], dtype=dtype)
    rounded = torch.addmv(torch.zeros(1, dtype=dtype), one, factor, alpha=0.3).item()
    right = torch.addmm(torch.zeros(1, 1, dtype=dtype), one, factor[None], alpha=0.3).item()
    if got != 6 or rounded != right:
        said.append(f"{dtype}: 2 * 3 + 0 is {got}, 0.3 * 0.731 is {rounded} and by addmm {right}")
tell(said, "; ".join(said) or "addmv is right")
