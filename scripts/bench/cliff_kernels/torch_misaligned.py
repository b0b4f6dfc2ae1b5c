"""Cliff: rows whose length is no multiple of SIZE are computed four times, by torch, on a processor or a GPU."""

import torch

BACKEND = "torch"
OP = "silu"
DTYPES = ("float32",)
SIZE = 8


def run(x):
    for _ in range(1 if x.shape[1] % SIZE == 0 else 4):
        y = torch.nn.functional.silu(x)
    return y
