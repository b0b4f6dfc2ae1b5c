"""PyTorch 2.13.0 (CPU): gather does not copy the bits of a 16-bit NaN."""

from _seen import needed, tell

with needed():
    import torch

nan = torch.full((1, 64), 0x7C01, dtype=torch.int16).view(torch.float16)
got = torch.gather(nan, 1, torch.zeros(1, 64, dtype=torch.int64)).view(torch.int16)
changed = got[got != 0x7C01].tolist()
said = f"0x7c01 is {changed[0]:#x}" if changed else "all are 0x7c01"
tell(changed, said)
