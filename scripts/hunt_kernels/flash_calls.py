"""Flash attention, as torch calls it."""

from _attention import attended
from torch.nn.attention import SDPBackend

BACKEND = "torch"
DTYPES = ("float16", "bfloat16")
NUMERICS = {"intermediates": {"p": "input"}}


def attention(q, k, v, *, causal, lengths=None, scale=0.0):
    return attended(SDPBackend.FLASH_ATTENTION, q, k, v, causal=causal, lengths=lengths, scale=scale)
