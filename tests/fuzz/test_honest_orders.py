"""Kernels that are right in another way than their reference, or than the op's budget was derived for."""

import pytest
from _references import HEAD

pytestmark = pytest.mark.usefixtures("no_references")
FLAT = '{"x": "float32[n, m]", "w": "float32[m]"}'
CHANNELS = dict.fromkeys("mwb", "float32[c]")
BATCH = f'{{"x": "float32[n, c, l]", "v": "float32[c] 0..16", **{CHANNELS}}}'
RMS = "torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)"
NORM = "F.batch_norm(x, m, v, w, b, False, 0.1, 1e-5)"
GROUPS = '{"x": "float32[n, c*2, l]", "w": "float32[c*2]", "b": "float32[c*2]"}'
PAIRS = {
    "root first": (FLAT, "x, w", f"x * {RMS} * w", f"x * ({RMS} * w)"),
    "weight first": (FLAT, "x, w", f"x * {RMS} * w", f"(x * w) * {RMS}"),
    "torch's batch norm": (BATCH, "x, m, v, w, b", NORM, NORM),
    "folded batch norm": (
        BATCH,
        "x, m, v, w, b",
        NORM,
        "x * (w * torch.rsqrt(v + 1e-5))[:, None] + (b - m * (w * torch.rsqrt(v + 1e-5)))[:, None]",
    ),
    "torch's group norm": (GROUPS, "x, w, b", "F.group_norm(x, 2, w, b)", "F.group_norm(x, 2, w, b)"),
    "padding": (
        '{"x": "float32[n, 2, l]", "w": "float32[3, 2, 3]"}',
        "x, w",
        "F.conv1d(x, w, padding=1)",
        "F.conv1d(x, w, padding=1)",
    ),
    "bias first": (
        '{"x": "float32[n, k] -4..4", "w": "float32[o, k] -1..1", "b": "float32[o] -4..4"}',
        "x, w, b",
        "F.linear(x, w, b)",
        "sum((x[:, k, None] * w[:, k] for k in range(x.shape[1])), b.expand(len(x), -1))",
    ),
    "bias first, where it is added": (
        '{"x": "float32[n, k] -4..4", "w": "float32[o, k] -1..1", "b": "float32[o] -40..40"}',
        "x, w, b",
        "x @ w.T + b",
        "sum((x[:, k, None] * w[:, k] for k in range(x.shape[1])), b.expand(len(x), -1))",
    ),
    "a bias of several batches": (
        '{"x": "float32[n, m, k] -4..4", "w": "float32[k, o] -1..1", "b": "float32[o] -40..40"}',
        "x, w, b",
        "(x @ w).reshape(x.shape[0], -1, w.shape[1]) + b",
        "sum((x[:, :, k, None] * w[k] for k in range(x.shape[2])), b.expand(x.shape[0], x.shape[1], -1))",
    ),
    "sum of a mean": ('{"x": "float32[n, 1, h, w]"}', "x", "F.avg_pool2d(x, 2)", "F.avg_pool2d(x, 2)"),
    "largest exponent first": (
        '{"x": "float32[n, m] -80..80"}',
        "x",
        "torch.exp(x) / torch.exp(x).sum(1, keepdim=True)",
        "torch.softmax(x, 1)",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_an_own_reference_accuses_no_kernel_that_is_right_in_another_way(tmp_path, monkeypatch, fuzz, name):
    inputs, parameters, reference, kernel = PAIRS[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ref.py").write_text(f"{HEAD}INPUTS = {inputs}\n\n\ndef f({parameters}):\n    return {reference}\n")
    (tmp_path / "mine.py").write_text(f"{HEAD}\n\ndef run({parameters}):\n    return {kernel}\n")
    code, out, _ = fuzz(
        *["run", "--reference", "ref.py:f", "--subject", "mine.py:run", "--cases", "160", "--seed", "7", "--quiet"]
    )
    assert code == 0, out


NORMS = {
    "rmsnorm: root first": ("x, weight, *, eps", "y * (r * weight.to(y.dtype))"),
    "rmsnorm: weight first": ("x, weight, *, eps", "(y * weight.to(y.dtype)) * r"),
    "layernorm: root first": ("x, weight, bias, *, eps", "y * (r * weight.to(y.dtype)) + bias.to(y.dtype)"),
    "layernorm: weight first": ("x, weight, bias, *, eps", "(y * weight.to(y.dtype)) * r + bias.to(y.dtype)"),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_may_multiply_in_any_order(tmp_path, monkeypatch, fuzz, name):
    parameters, formula = NORMS[name]
    op = name.partition(":")[0]
    centred = "    y = y - y.mean(-1, keepdim=True)\n" if op == "layernorm" else ""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        f'{HEAD}OP = "{op}"\n\n\ndef run({parameters}):\n'
        f"    y = x if x.dtype == torch.float64 else x.float()\n{centred}"
        f"    r = torch.rsqrt((y * y).mean(-1, keepdim=True) + eps)\n    return ({formula}).to(x.dtype)\n"
    )
    code, out, _ = fuzz("run", *["--subject", "mine.py", "--peer", "none", "--cases", "400", "--seed", "7", "--quiet"])
    assert code == 0, out
