"""The rotation as x * cos + rotate_half(x) * sin, as in Hugging Face models, in float32."""

import torch

BACKEND = "torch"


def run(x, cos, sin, *, style):
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    half = x.shape[-1] // 2
    v = x.to(wide)
    if style == "interleaved":
        v = torch.cat((v[..., 0::2], v[..., 1::2]), -1)
    c, s = cos.to(wide)[:, None].repeat(1, 1, 2), sin.to(wide)[:, None].repeat(1, 1, 2)
    turned = torch.cat((-v[..., half:], v[..., :half]), -1)
    y = v * c + turned * s
    if style == "interleaved":
        y = torch.stack((y[..., :half], y[..., half:]), -1).reshape(x.shape)
    return y.to(x.dtype).contiguous()
