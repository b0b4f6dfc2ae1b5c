"""PyTorch 2.13.0 (CPU): attention without a mask loses a NaN behind the last whole vector of scores."""

from _seen import needed, tell

with needed():
    import torch

q, k, v = torch.ones(1, 1, 1, 4), torch.full((1, 1, 15, 4), torch.nan), torch.ones(1, 1, 15, 4)
k[..., :1, :] = -torch.inf
got = torch.nn.functional.scaled_dot_product_attention(q, k, v)[0, 0, 0, 0].item()
tell(got == got, f"the weights are NaN, and the result is {got}")
