"""PyTorch 2.13.0: the quantile of one number is NaN if it is infinite; its median is right."""

import torch

x = torch.tensor([torch.inf])
got, median = torch.quantile(x, 0.5).item(), x.median().item()
print("seen" if got != median else "not in this version", f"quantile 0.5 of [inf] is {got}, median {median}", sep=": ")
