"""PyTorch 2.13.0: torch.nanmean rounds the sum to float16 before it divides; torch.mean does not."""

import torch

x = torch.tensor([32768.0, 32768.0], dtype=torch.float16)
got, mean = torch.nanmean(x).item(), torch.mean(x).item()
print("seen" if got != mean else "not in this version", f"nanmean is {got}, mean is {mean}", sep=": ")
