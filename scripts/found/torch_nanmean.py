"""PyTorch 2.13.0: torch.nanmean rounds the sum to float16 before it divides; torch.mean does not."""

from _seen import needed, tell

with needed():
    import torch

x = torch.tensor([32768.0, 32768.0], dtype=torch.float16)
got, mean = torch.nanmean(x).item(), torch.mean(x).item()
tell(got != mean, f"nanmean is {got}, mean is {mean}")
