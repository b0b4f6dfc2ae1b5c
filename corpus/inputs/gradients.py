"""Gradients of a function as outputs of an op: what each is the gradient of, and the cotangents that they begin with.

The op takes what the function takes, and behind that a cotangent of each of its outputs. Both the process of a
reference and a worker make gradients in this way, by the autograd of torch.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

NEEDED = "torch.fx.experimental.symbolic_shapes"
"""What torch imports when it makes a first gradient, for half a second."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of a function."""

    outputs: tuple[str, ...]
    """Names of the results of the function, in order."""
    cotangents: Mapping[str, str]
    """Output -> input of the op that is its cotangent; outputs without one have no gradient."""
    repeated: Mapping[str, tuple[int, ...]]
    """Cotangent -> axes of extents that no formula gives: along them it is repeated, and cut off."""
    gradients: Mapping[str, str]
    """Output of the op -> input whose gradient it is."""

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        """Read it from a message, in which tuples are lists."""
        repeated = {name: tuple(axes) for name, axes in said["repeated"].items()}
        return cls(tuple(said["outputs"]), said["cotangents"], repeated, said["gradients"])

    def message(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @property
    def given(self) -> Collection[str]:
        """Inputs of the op that are cotangents."""
        return self.cotangents.values()

    def fitted(self, name: str, cotangent: Any, shape: tuple[int, ...]) -> Any:
        """A cotangent in the shape of its output, where only axes differ along which it is repeated."""
        for axis in self.repeated.get(name, ()):
            here, wanted = cotangent.shape[axis], shape[axis]
            if here != wanted:
                index = [i % here for i in range(wanted)]
                cotangent = cotangent[(*[slice(None)] * axis, index)]
        return cotangent

    def backward(
        self, results: Mapping[str, Any], leaves: Mapping[str, Any], cotangents: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Gradients by their names; None where none comes to an input.

        results: of the function, by name; leaves: inputs that require one; cotangents: by their names, in shape.
        """
        pairs = [(results[out], cotangents[name]) for out, name in self.cotangents.items()]
        pairs = [(out, cotangent) for out, cotangent in pairs if out.requires_grad]
        if not pairs or not leaves:
            return dict.fromkeys(self.gradients)
        outputs, begun = zip(*pairs, strict=True)
        found = sys.modules["torch"].autograd.grad(outputs, [*leaves.values()], begun, allow_unused=True)
        made = dict(zip(leaves, found, strict=True))
        return {name: made.get(of) for name, of in self.gradients.items()}
