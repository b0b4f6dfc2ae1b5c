"""Kernels as people write them in 16 bits, with the claim that each of them needs: every result is rounded.

In eager PyTorch an operation computes in float32 and rounds its result; loops over numpy's half floats round each sum.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.judge import Evidence, judge
from kernel_assay.oracles.judging.reference import Reference


@dataclass(frozen=True)
class Eager:
    """One kernel and its claim."""

    op: str
    name: str
    claims: dict
    run: object
    dtypes: tuple = ("float16", "bfloat16")
    rare: bool = False
    """It needs its claim in few cases only."""


def torch_of(array):
    import torch

    array = np.require(array, requirements="CW")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def numpy_of(tensor):
    import ml_dtypes
    import torch

    tensor = tensor.contiguous()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def eager(function):
    """A function of torch's tensors as one of numpy's arrays."""

    def run(inputs, attrs):
        return numpy_of(function(**{n: torch_of(x) for n, x in inputs.items()}, **attrs))

    return run


def looping(function):
    """A function of numpy's arrays, of which each operation rounds."""

    def run(inputs, attrs):
        return function(**inputs, **attrs)

    return run


def added(terms):
    """The sum along the last axis in the terms' own type, one after the other."""
    total = np.zeros(terms.shape[:-1], terms.dtype)
    for column in range(terms.shape[-1]):
        total = total + terms[..., column]
    return total


def sigmoid_times(x):
    return x * x.sigmoid()


def quotient(x):
    return x / (1 + (-x).exp())


def silu_then_up(gate, up):
    import torch

    return torch.nn.functional.silu(gate) * up


def quotient_then_up(gate, up):
    return quotient(gate) * up


def gelu_then_up(gate, up, approximate):
    import torch

    return torch.nn.functional.gelu(gate, approximate=approximate) * up


def composed_gelu(x, approximate):
    import torch

    if approximate == "tanh":
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))
    return x * 0.5 * (1.0 + torch.erf(x / 1.4142135623730951))


def composed_gelu_then_up(gate, up, approximate):
    return composed_gelu(gate, approximate) * up


def hugging_face_norm(x, weight, eps):
    import torch

    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def composed_norm(x, weight, eps):
    import torch

    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def quotient_norm(x, weight, eps):
    return x / ((x * x).mean(-1, keepdim=True) + eps).sqrt() * weight


def half_norm(x, weight, eps):
    n = np.asarray(max(1, x.shape[-1])).astype(x.dtype)
    v = added(x * x)[:, None] / n + np.asarray(eps).astype(x.dtype)
    return x / np.sqrt(v) * weight


def narrow_gemma_norm(x, weight, eps):
    return hugging_face_norm(x, 1 + weight.float(), eps).to(x.dtype)


def composed_gemma_norm(x, weight, eps):
    return composed_norm(x, 1 + weight, eps)


def composed_layernorm(x, weight, bias, eps):
    import torch

    d = x - x.mean(-1, keepdim=True)
    return d * torch.rsqrt((d * d).mean(-1, keepdim=True) + eps) * weight + bias


def mixed_layernorm(x, weight, bias, eps):
    import torch

    wide = x.double() if x.shape[-1] else x.float()
    d = wide - wide.mean(-1, keepdim=True)
    return (d * torch.rsqrt((d * d).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight + bias


def scored(x, mask, scale):
    s = x if scale == 1.0 else x * scale
    return s if mask is None else s + mask


def softmax_of_scores(x, mask=None, scale=1.0):
    return scored(x, mask, scale).float().softmax(-1).to(x.dtype)


def composed_softmax(x, mask=None, scale=1.0):
    s = scored(x, mask, scale)
    if not s.numel():
        return s
    e = (s - s.max(-1, keepdim=True).values).exp()
    return e / e.sum(-1, keepdim=True)


def half_softmax(x, mask=None, scale=1.0):
    s = x if scale == 1.0 else x * np.asarray(scale).astype(x.dtype)
    s = s if mask is None else s + mask
    if not s.size:
        return s
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / added(e)[:, None]


def log_softmax(x, mask=None, scale=1.0):
    return scored(x, mask, scale).log_softmax(-1).exp()


def wide_log_softmax(x, mask=None, scale=1.0):
    wide = x.dtype if x.itemsize > 2 else __import__("torch").float32
    return scored(x.to(wide), None if mask is None else mask.to(wide), scale).log_softmax(-1).exp().to(x.dtype)


def wide_log_sum_softmax(x, mask=None, scale=1.0):
    s = scored(x.float(), None if mask is None else mask.float(), scale)
    return (s - s.logsumexp(-1, keepdim=True)).exp().to(x.dtype)


def log_sum_softmax(x, mask=None, scale=1.0):
    s = scored(x, mask, scale)
    return (s - s.logsumexp(-1, keepdim=True)).exp()


def rotated(x, style):
    import torch

    half = x.shape[-1] // 2
    if style == "interleaved":
        return torch.stack((-x[..., 1::2], x[..., 0::2]), -1).reshape(x.shape)
    return torch.cat((-x[..., half:], x[..., :half]), -1)


def repeated(table, style):
    import torch

    wide = table.repeat_interleave(2, -1) if style == "interleaved" else torch.cat((table, table), -1)
    return wide[:, None]


def hugging_face_rope(x, cos=None, sin=None, *, style, theta=10000.0, offset=0, part=1, narrow=True):
    """narrow: whether the two products are made in the type of x, and not only the tables."""
    import torch

    width = x.shape[-1] // part
    if cos is None:
        inverse = 1.0 / theta ** (torch.arange(0, width, 2, dtype=torch.float32) / max(1, width))
        angle = torch.outer(torch.arange(offset, offset + x.shape[0], dtype=torch.float32), inverse)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    head = x[..., :width] if narrow else x[..., :width].float()
    turned = head * repeated(cos, style) + rotated(head, style) * repeated(sin, style)
    return torch.cat((turned.to(x.dtype), x[..., width:]), -1)


def masked(s, lengths, *, causal):
    import torch

    queries, keys = s.shape[-2:]
    length = torch.tensor([keys]) if lengths is None else lengths
    last = (length - 1)[:, None] + (torch.arange(1 - queries, 1) if causal else torch.zeros(queries)).long()
    return s.masked_fill(torch.arange(keys) > last[:, None, :, None], -float("inf"))


def eager_attention(q, k, v, lengths=None, *, causal=False, scale=0.0, weights=None):
    """As transformers' eager_attention_forward; weights: another softmax."""
    import torch

    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    if lengths is not None:
        inside = (torch.arange(k.shape[2]) < lengths[:, None])[:, None, :, None]
        k, v = (x.where(inside, torch.zeros((), dtype=x.dtype)) for x in (k, v))
    s = masked(torch.matmul(q, k.transpose(-1, -2)) * (scale or q.shape[-1] ** -0.5), lengths, causal=causal)
    p = s.float().softmax(-1).to(q.dtype) if weights is None else weights(s)
    return torch.matmul(p, v)


def log_weights(s):
    import torch

    return (s.float() - torch.logsumexp(s.float(), -1, keepdim=True)).exp().to(s.dtype)


def composed_weights(s):
    if not s.numel():
        return s
    e = (s - s.max(-1, keepdim=True).values).exp()
    return e / e.sum(-1, keepdim=True)


def unfused(a, b, c=None, alpha=1.0, beta=1.0):
    product = (a.float() @ b.float()).to(a.dtype)
    scaled = product if alpha == 1.0 else alpha * product
    return scaled if c is None else scaled + (c if beta == 1.0 else beta * c)


def unfused_vector(a, x, y=None, alpha=1.0, beta=1.0):
    return unfused(a, x, y, alpha, beta)


def in_parts(a, b, c=None, alpha=1.0, beta=1.0, size=128):
    """Split along k, as cuBLAS does where it may reduce in the output's type."""
    total = None
    for start in range(0, max(1, a.shape[1]), size):
        part = a[:, start : start + size].float() @ b[start : start + size].float()
        part = part if a.shape[1] <= size else part.to(a.dtype)
        total = part if total is None else total + part
    scaled = alpha * total.float()
    return (scaled if c is None or beta == 0 else scaled + beta * c.float()).to(a.dtype)


def vector_in_parts(a, x, y=None, alpha=1.0, beta=1.0):
    return in_parts(a, x, y, alpha, beta)


def row_parts(x):
    return in_parts(x, x.new_ones(x.shape[1], 1))[:, 0]


def half_sum(x):
    return added(x)


ROUNDED = {"intermediates": {"all": "input"}}


def named(*names, **more):
    return {"intermediates": dict.fromkeys(names, "input"), **more}


FLOAT16 = {"accumulate": "float16", "intermediates": {"all": "float16"}}
BFLOAT16 = {"accumulate": "bfloat16", "intermediates": {"all": "bfloat16"}}

KERNELS = (
    Eager("silu", "x * sigmoid(x)", named("sigmoid"), eager(sigmoid_times)),
    Eager("silu", "x * sigmoid(x)", ROUNDED, eager(sigmoid_times)),
    Eager("silu", "x / (1 + exp(-x))", ROUNDED, eager(quotient)),
    Eager("silu_gate", "silu(gate) * up", named("act"), eager(silu_then_up)),
    Eager("silu_gate", "gate / (1 + exp(-gate)) * up", ROUNDED, eager(quotient_then_up)),
    Eager("gelu", "composed", ROUNDED, eager(composed_gelu)),
    Eager("gelu_gate", "gelu(gate) * up", named("act"), eager(gelu_then_up)),
    Eager("gelu_gate", "composed", ROUNDED, eager(composed_gelu_then_up)),
    Eager("rmsnorm", "transformers", named("xr"), eager(hugging_face_norm)),
    Eager("rmsnorm", "composed", ROUNDED, eager(composed_norm)),
    Eager("rmsnorm", "quotient", ROUNDED, eager(quotient_norm)),
    Eager("rmsnorm", "float16 only", FLOAT16, looping(half_norm), ("float16",)),
    Eager("gemma_rmsnorm", "transformers' order", named("xr"), eager(narrow_gemma_norm)),
    Eager("gemma_rmsnorm", "composed", ROUNDED, eager(composed_gemma_norm)),
    Eager("layernorm", "mixed", named("xr"), eager(mixed_layernorm)),
    Eager("layernorm", "composed", ROUNDED, eager(composed_layernorm)),
    Eager("softmax", "of scores", named("s"), eager(softmax_of_scores)),
    Eager("softmax", "composed", ROUNDED, eager(composed_softmax)),
    Eager("softmax", "float16 only", FLOAT16, looping(half_softmax), ("float16",)),
    Eager("softmax", "bfloat16 only", BFLOAT16, looping(half_softmax), ("bfloat16",)),
    Eager("softmax", "log", named("log", "s"), eager(log_softmax)),
    Eager(
        "softmax",
        "log in float32",
        {"intermediates": {"log": "float32"}},
        eager(wide_log_softmax),
        ("float32",),
        rare=True,
    ),
    Eager(
        "softmax",
        "log sum in float32",
        {"intermediates": {"log": "float32"}},
        eager(wide_log_sum_softmax),
        ("float32", "float16"),
    ),
    Eager("softmax", "log sum", named("log", "s"), eager(log_sum_softmax)),
    Eager("rope", "transformers", named("products", "tables"), eager(hugging_face_rope)),
    Eager("rope", "narrow tables", named("tables"), eager(partial(hugging_face_rope, narrow=False))),
    Eager("attention", "transformers", named("s", "p"), eager(eager_attention)),
    Eager("attention", "log", named("s", "p", "log"), eager(partial(eager_attention, weights=log_weights))),
    Eager("attention", "composed", ROUNDED, eager(partial(eager_attention, weights=composed_weights))),
    Eager("gemm", "unfused", named("product"), eager(unfused)),
    Eager("gemm", "unfused", ROUNDED, eager(unfused)),
    Eager("gemm", "in parts", named("parts"), eager(in_parts), rare=True),
    Eager("gemv", "unfused", named("product"), eager(unfused_vector), rare=True),
    Eager("gemv", "in parts", named("parts"), eager(vector_in_parts), rare=True),
    Eager("row_sum", "in parts", named("parts"), eager(row_parts), rare=True),
    Eager("row_sum", "float16 only", FLOAT16, looping(half_sum), ("float16",)),
)


def cases_of(kernel, number, random, most=1024, plain=False):
    """References of cases that the kernel takes; plain: without special values."""
    contract = contract_of(kernel.op)
    for _ in range(number):
        case, _ = generate(Target(contract, kernel.dtypes, max_elements=most), random)
        if plain:
            case = case.but(tensors={n: t.but(specials=(), pokes=()) for n, t in case.tensors.items()})
        yield Reference(contract, case, materialize_all(case))


def verdict_of(kernel, reference, claims, run=None):
    """What is said of the kernel under some claims."""
    e = evidence_of(kernel, reference, claims, run)
    return judge(e.reference, e.subject, e.execution, e.outputs)


def evidence_of(kernel, reference, claims, run=None):
    """What one run of the kernel leaves."""
    (spec,) = reference.specs.values()
    with np.errstate(all="ignore"):
        out = (run or kernel.run)(dict(reference.inputs), dict(reference.attrs))
    out = np.ascontiguousarray(out)
    assert (out.shape, out.dtype.name) == (spec.shape, spec.dtype), (kernel.name, out.shape, out.dtype)
    subject = Subject(op=kernel.op, name="eager", backend="torch", numerics=Numerics(**claims))
    told = OutputReport(name="out", shape=out.shape, dtype=spec.dtype)
    execution = Execution(status=Status.OK, subject=subject.key, outputs=(told,))
    return Evidence(reference, subject, execution, {"out": out})
