"""Kernels that pass where the oracle looks, and break a law of their op: one for every way that laws are made."""

from dataclasses import dataclass, field

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe

HEAD = "import numpy as np\nOP = {!r}\n"


@dataclass(frozen=True)
class Lawless:
    """A kernel, a case, and the law that shows it."""

    op: str
    law: str
    kernel: str
    shapes: dict[str, tuple[int, ...]]
    attrs: dict[str, object] = field(default_factory=dict)
    distribution: str = "normal"
    dtype: str = "float32"
    params: dict[str, int] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    @property
    def case(self):
        """One on which the kernel is right."""
        tensors = {
            name: TensorRecipe(shape=shape, dtype=self.types.get(name, self.dtype), fill=self._fill(seed, name))
            for seed, (name, shape) in enumerate(self.shapes.items(), 1)
        }
        return Case(op=self.op, tensors=tensors, attrs=self.attrs)

    def _fill(self, seed, name):
        if name in {"indices", "lengths"}:
            return Fill(distribution="uniform", seed=seed, params=self.params)
        return Fill(distribution=self.distribution, seed=seed)

    def text(self, *, repaired=False):
        """The file; repaired: without the bug."""
        return HEAD.format(self.op) + self.kernel.replace("BUG", "0" if repaired else "1")


SOFTMAX = """
def run(x):
    w = x.astype(np.float64)
    e = np.exp(w - w.max(axis=-1, keepdims=True))
    out = e / e.sum(axis=-1, keepdims=True)
    {}
    return out.astype(x.dtype)
"""
SUM = """
def run(x):
    w = x.astype(np.float64)
    out = w.sum(axis=-1)
    {}
    return out.astype(x.dtype)
"""
GEMM = """
def run(out, a, b, c=None, alpha=1.0, beta=1.0):
    w = alpha * (a.astype(np.float64) @ b.astype(np.float64))
    if c is not None:
        w += beta * c.astype(np.float64)
    {}
    out[...] = w.astype(out.dtype)
"""
TAKE = """
def run(table, indices):
    out = table[indices]
    if BUG and len(indices) == 1: {}
    return out
"""
ATTENTION = """
def run(q, k, v, causal, lengths=None, scale=0.0):
    w = q.astype(np.float64) @ np.swapaxes(k, -1, -2).astype(np.float64) / np.sqrt(q.shape[-1])
    seen = np.tril(np.ones(w.shape[-2:], bool), w.shape[-1] - w.shape[-2]) if causal else np.ones(w.shape[-2:], bool)
    e = np.where(seen, np.exp(w - w.max(axis=-1, keepdims=True)), 0.0)
    out = e / e.sum(axis=-1, keepdims=True) @ v.astype(np.float64)
    {}
    return out.astype(q.dtype)
"""
QKV = {"q": (3, 2, 6, 4), "k": (3, 2, 6, 4), "v": (3, 2, 6, 4)}

LAWLESS = {
    "a row alone": Lawless(
        "softmax", "row_alone", SOFTMAX.format("if BUG and len(x) == 1: out[0, 3:5] *= 1.01"), {"x": (5, 33)}
    ),
    "a row alone is NaN": Lawless(
        "softmax", "row_alone", SOFTMAX.format("if BUG and len(x) == 1: out[0, 3] = np.nan"), {"x": (5, 33)}
    ),
    "half precision": Lawless(
        "softmax",
        "row_alone",
        SOFTMAX.format("if BUG and len(x) == 1: out[0, 3:5] *= 1.01"),
        {"x": (5, 33)},
        dtype="float16",
    ),
    "values that are shifted": Lawless(
        "softmax",
        "shift",
        SOFTMAX.format("if BUG and w.mean() > 6: out[0, 3] *= 1.01"),
        {"x": (5, 33)},
        distribution="small_integers",
    ),
    "reversed rows": Lawless(
        "softmax",
        "rows_reversed",
        SOFTMAX.format("if BUG and x[0, 0] < x[-1, 0]: out[0, 3] *= 1.01"),
        {"x": (7, 65)},
    ),
    "reversed columns": Lawless(
        "row_sum",
        "columns_reversed",
        SUM.format("if BUG and x[0, 0] > x[0, -1]: out[-1] += 1"),
        {"x": (7, 65)},
    ),
    "scaling": Lawless(
        "row_sum",
        "scaling",
        SUM.format("if BUG and abs(x).max() > 8: out[2] = np.nextafter(out[2], 9e9) * (1 + 1e-7)"),
        {"x": (7, 65)},
    ),
    "a token alone": Lawless(
        "embedding",
        "token_alone",
        TAKE.format("out[0, 2] = 1"),
        {"table": (9, 4), "indices": (6,)},
        params={"below": 9},
        types={"indices": "int64"},
    ),
    "a copy of integers": Lawless(
        "embedding",
        "token_alone",
        TAKE.format("out[0, 2] += 1"),
        {"table": (9, 4), "indices": (6,)},
        distribution="small_integers",
        params={"below": 9},
        dtype="int8",
        types={"indices": "int64"},
    ),
    "a place alone": Lawless(
        "row_argmax",
        "row_alone",
        "def run(x):\n    out = x.argmax(axis=-1)\n    if BUG and len(x) == 1: out[0] ^= 1\n    return out\n",
        {"x": (40, 4)},
    ),
    "a column alone": Lawless(
        "gemm", "column_alone", GEMM.format("if BUG and w.shape[1] == 1: w[2] += 1e-3"), {"a": (4, 5), "b": (5, 3)}
    ),
    "a sum backwards": Lawless(
        "gemm", "k_reversed", GEMM.format("if BUG and a[0, 0] > a[0, -1]: w[2] *= 1.001"), {"a": (4, 5), "b": (5, 3)}
    ),
    "twice alpha": Lawless(
        "gemm",
        "alpha",
        GEMM.format("if BUG and alpha == 2.0: w[2] *= 1.001"),
        {"a": (4, 5), "b": (5, 3)},
        {"alpha": 1.0, "beta": 1.0},
    ),
    "twice alpha and beta": Lawless(
        "gemm",
        "linearity",
        GEMM.format("if BUG and beta == 1.0: w[2] *= 1.001"),
        {"a": (4, 5), "b": (5, 3), "c": (4, 3)},
        {"alpha": 0.3, "beta": 0.5},
    ),
    "no memory of the future": Lawless(
        "attention",
        "causal_prefix",
        ATTENTION.format("if BUG and k.shape[2] == 3: out[1, 0, 2] *= 1.001"),
        QKV,
        {"causal": True, "scale": 0.0},
    ),
    "keys backwards": Lawless(
        "attention",
        "keys_reversed",
        ATTENTION.format("if BUG and k[0, 0, 0, 0] > k[0, 0, -1, 0]: out[1, 0, 2] *= 1.001"),
        QKV,
        {"causal": False, "scale": 0.0},
    ),
    "a sequence alone": Lawless(
        "attention",
        "batch_alone",
        ATTENTION.format("if BUG and len(q) == 1: out[0, 0, 2] *= 1.001"),
        QKV,
        {"causal": True, "scale": 0.0},
    ),
}
"""By what each breaks."""
