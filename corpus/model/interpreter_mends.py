"""Descriptions of what is mended in Triton's own interpreter: what that gets wrong itself cannot be seen."""

from pathlib import Path

from kernel_assay.corpus.model.campaign import Campaign

INTERPRETED, AS_IS = "triton", "triton_as_is"
"""Backends of kernels that are interpreted on the CPU: by the mended interpreter, and by Triton's own."""

KNOWN = "3.9"
"""The version of Triton whose interpreter can be mended: its internals change from version to version."""

MENDED = {
    "scalars": "floats among the arguments are float32",
    "constants": "a global constant may stand on the left of a tensor",
    "bounds": "every address is checked",
    "order": "programs run in either order",
    "libdevice": "CUDA's mathematical functions work",
    "arithmetic": "casts, products, reductions, argmax and scans round as a GPU does",
    "autotune": "the first of several configurations runs",
    "speed": "functions stay exchanged between calls",
}
"""By the name of the repair (kernels/backends/triton_cpu/interpreter.py)."""


def is_mended(campaign: Campaign) -> bool:
    """Whether kernels of a person's own ran in what is mended."""
    own = (s for s in campaign.subjects if Path(s.path).is_absolute())
    return any((s.backend, s.device) == (INTERPRETED, "cpu") for s in own)


def mended_text() -> str:
    """All of it in one sentence."""
    return f"Triton's interpreter is mended ({'; '.join(MENDED.values())}); --as-is runs it as it is"
