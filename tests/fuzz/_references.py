"""References as files, and the host that runs one, in the process of the test."""

import os
import sys

from kernel_assay.oracles.references.host import Host

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
LINEAR = """
class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)

def get_inputs():
    return [torch.rand(128, 512)]

def get_init_inputs():
    return [512, 64]
"""
"""A module as KernelBench has them."""


def hosted(folder, text, name="f", head=HEAD):
    """The host of a reference with this text."""
    (folder / "ref.py").write_text(head + text)
    for module in [m for m in sys.modules if m.startswith("reference_")]:
        del sys.modules[module]
    return Host(f"ref.py:{name}", str(folder), os.memfd_create("answers"))


def axes(host):
    return {t.name: tuple(t.axes) for t in host.described.tensors}
