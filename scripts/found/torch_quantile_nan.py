"""PyTorch 2.11.0, CUDA: in rows of more than 32 numbers a NaN with its sign set is sorted first, and not last.

So the quantile of such a row is its largest number, where it is NaN with one without a sign.
"""

from _seen import needed, tell

with needed():
    import torch

x = torch.arange(33, dtype=torch.float32)
x[0] = torch.tensor([-0x400000], dtype=torch.int32).view(torch.float32)[0]
here = torch.cuda.is_available()
got = torch.quantile(x.to("cuda" if here else "cpu"), 0.5).item()
tell(got == got, f"quantile 0.5 of -nan, 1, 2 ... 32 is {got}", "" if here else "GPU")
