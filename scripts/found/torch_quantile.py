"""PyTorch 2.13.0: the quantile of one number is NaN if it is infinite; its median is right."""

from _seen import needed, tell

with needed():
    import torch

x = torch.tensor([torch.inf])
got, median = torch.quantile(x, 0.5).item(), x.median().item()
tell(got != median, f"quantile 0.5 of [inf] is {got}, median {median}")
