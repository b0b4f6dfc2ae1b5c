"""Functions whose gradients are judged: elementwise ones, losses, and what picks, next to their kinks as well."""

import torch
import torch.nn.functional as F


def _own(forwards, backwards):
    """A function of torch's autograd: both are called with a context, in which they keep what they like."""

    class Own(torch.autograd.Function):
        forward = staticmethod(forwards)
        backward = staticmethod(backwards)

    return Own.apply


def _kept(forwards):
    """A pass forwards that keeps its inputs."""

    def forward(ctx, *inputs):
        ctx.save_for_backward(*inputs)
        return forwards(*inputs)

    return forward


def relu(x: "float32[rows, cols]"):
    return torch.relu(x)


def relu_right(x):
    return _own(_kept(lambda x: x.clamp(min=0)), lambda ctx, g: g * (ctx.saved_tensors[0] > 0))(x)


def relu_right_other_side(x):
    return _own(_kept(lambda x: x.clamp(min=0)), lambda ctx, g: g * (ctx.saved_tensors[0] >= 0))(x)


def relu_wrong_no_mask(x):
    return _own(_kept(torch.relu), lambda _, g: g.clone())(x)


def relu_wrong_mask_at_tail(x):
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        mask, cols = x > 0, x.shape[1] // 8 * 8
        mask[:, cols:] = True
        return g * mask

    return _own(_kept(torch.relu), backward)(x)


def clipped(x: "float32[n, cols]", w: "float32[cols]"):
    return torch.clamp(x * w, -1.0, 1.0)


def clipped_right(x, w):
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        y = x * w
        g = torch.where((y >= -1) & (y <= 1), g, 0.0)
        return g * w, (g * x).sum(0)

    return _own(_kept(lambda x, w: torch.clamp(x * w, -1.0, 1.0)), backward)(x, w)


def clipped_wrong_scale(x, w):
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        y = x * w
        g = torch.where((y > -1) & (y < 1), g, 0.0)
        return g * w, (g * x).mean(0)

    return _own(_kept(lambda x, w: torch.clamp(x * w, -1.0, 1.0)), backward)(x, w)


def distance(a: "float32[rows, cols]", b: "float32[rows, cols]"):
    return (a - b).abs().sum(1)


def distance_right(a, b):
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        of_a = g[:, None] * torch.sign(a - b)
        return of_a, -of_a

    return _own(_kept(lambda a, b: (a - b).abs().sum(1)), backward)(a, b)


def distance_wrong_input(a, b):
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        of_a = g[:, None] * torch.sign(a - b)
        return -of_a, of_a

    return _own(_kept(lambda a, b: (a - b).abs().sum(1)), backward)(a, b)


def gelu(x: "bfloat16[rows, cols]"):
    return F.gelu(x)


def gelu_right(x):
    def backward(ctx, g):
        x = ctx.saved_tensors[0].float()
        density = torch.exp(-0.5 * x * x) * 0.3989422804014327
        return (g.float() * (0.5 * (1 + torch.erf(x * 0.7071067811865476)) + x * density)).to(g.dtype)

    return _own(_kept(F.gelu), backward)(x)


def gelu_right_library(x):
    return F.gelu(x)


def gelu_wrong_tanh(x):
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.float().requires_grad_()
            return torch.autograd.grad(F.gelu(x, approximate="tanh"), x, g.float())[0].to(g.dtype)

    return _own(_kept(F.gelu), backward)(x)


def gelu_wrong_term(x):
    def backward(ctx, g):
        x = ctx.saved_tensors[0].float()
        return (g.float() * 0.5 * (1 + torch.erf(x * 0.7071067811865476))).to(g.dtype)

    return _own(_kept(F.gelu), backward)(x)


def swiglu(x: "float32[rows, cols]", gate: "float32[rows, cols]"):
    return x * F.silu(gate)


def swiglu_right(x, gate):
    def backward(ctx, g):
        x, gate = ctx.saved_tensors
        s = 1 / (1 + torch.exp(-gate))
        return g * gate * s, g * x * s * (1 + gate * (1 - s))

    return _own(_kept(lambda x, gate: x * F.silu(gate)), backward)(x, gate)


def swiglu_right_eager(x, gate):
    return gate * torch.sigmoid(gate) * x


def swiglu_wrong_detached(x, gate):
    return x * gate * torch.sigmoid(gate).detach()


def swiglu_wrong_kept_changed(x, gate):
    def forward(ctx, x, gate):
        ctx.x, ctx.gate, ctx.s = x, gate, torch.sigmoid(gate)
        return x * ctx.s.mul_(gate)

    def backward(ctx, g):
        return g * ctx.gate * ctx.s, g * ctx.x * ctx.s * (1 + ctx.gate * (1 - ctx.s))

    return _own(forward, backward)(x, gate)


def swiglu_wrong_begins_in_place(x, gate):
    def backward(ctx, g):
        x, gate = ctx.saved_tensors
        s = torch.sigmoid(gate)
        of_x = g * gate * s
        return of_x, g.mul_(x * s * (1 + gate * (1 - s)))

    return _own(_kept(lambda x, gate: x * F.silu(gate)), backward)(x, gate)


def largest(x: "float32[rows, cols]"):
    return x.max(dim=1).values


def largest_right_last(x):
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        at = x.shape[1] - 1 - x.flip(1).argmax(1)
        return torch.zeros_like(x).scatter_(1, at[:, None], g[:, None])

    return _own(_kept(lambda x: x.amax(1)), backward)(x)


def largest_right_shared(x):
    return x.amax(1)


def largest_wrong_second(x):
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        at = x.sort(1, descending=True).indices[:, min(1, x.shape[1] - 1)]
        return torch.zeros_like(x).scatter_(1, at[:, None], g[:, None])

    return _own(_kept(lambda x: x.amax(1)), backward)(x)


def routed(x: "float32[rows, cols]", w: "float32[cols, 8*k]"):
    return (x @ w).topk(2, dim=1).values


def routed_right(x, w):
    found = (x @ w).sort(dim=1, descending=True)
    return found.values[:, :2]


def routed_wrong_first_only(x, w):
    y = (x @ w).topk(2, dim=1).values
    return torch.cat([y[:, :1], y[:, 1:].detach()], 1)


def pooled(x: "float32[n, c, h, w]"):
    return F.max_pool2d(x, 2, ceil_mode=True)


def pooled_right(x):
    n, c, h, w = x.shape
    y = F.pad(x, (0, w % 2, 0, h % 2), value=-float("inf"))
    return y.reshape(n, c, y.shape[2] // 2, 2, y.shape[3] // 2, 2).amax((3, 5))


def pooled_wrong_mean(x):
    def backward(ctx, g):
        h, w = ctx.saved_tensors[0].shape[2:]
        return (g.repeat_interleave(2, 2).repeat_interleave(2, 3) / 4)[:, :, :h, :w]

    return _own(_kept(lambda x: F.max_pool2d(x, 2, ceil_mode=True)), backward)(x)


def cross_entropy(x: "float32[rows, classes]", y: "int64[rows] < classes"):
    return F.cross_entropy(x, y)


def cross_entropy_right(x, y):
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * (torch.softmax(x, 1) - F.one_hot(y, x.shape[1])) / x.shape[0], None

    return _own(_kept(F.cross_entropy), backward)(x, y)


def cross_entropy_right_eager(x, y):
    return -torch.log_softmax(x, 1).gather(1, y[:, None]).mean()


def cross_entropy_wrong_scale(x, y):
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * (torch.softmax(x, 1) - F.one_hot(y, x.shape[1])), None

    return _own(_kept(F.cross_entropy), backward)(x, y)


def huber(x: "float32[rows, cols]", y: "float32[rows, cols]"):
    return F.huber_loss(x, y, reduction="none")


def huber_right(x, y):
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * (x - y).clamp(-1, 1), g * (y - x).clamp(-1, 1)

    return _own(_kept(lambda x, y: F.huber_loss(x, y, reduction="none")), backward)(x, y)


def huber_wrong_outside(x, y):
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * (x - y), g * (y - x)

    return _own(_kept(lambda x, y: F.huber_loss(x, y, reduction="none")), backward)(x, y)


def embedding(table: "float32[vocab, width]", ids: "int64[tokens] < vocab"):
    return table[ids]


def embedding_right(table, ids):
    def backward(ctx, g):
        table, ids = ctx.saved_tensors
        return torch.zeros_like(table).index_add_(0, ids, g.contiguous()), None

    return _own(_kept(lambda table, ids: table[ids]), backward)(table, ids)


def embedding_right_library(table, ids):
    return F.embedding(ids, table)


def embedding_wrong_overwrites(table, ids):
    def backward(ctx, g):
        table, ids = ctx.saved_tensors
        return torch.zeros_like(table).index_put_((ids,), g), None

    return _own(_kept(lambda table, ids: table[ids]), backward)(table, ids)
