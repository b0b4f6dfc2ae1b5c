"""Two copies of a model, in float32 and in a narrow dtype: the first module that is wrong by more than rounding."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.kernels.recording.tensors import tensors

FACTOR = 8.0
"""Roundings of the size of one at the inputs, weights and output, together, that a module may make."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One call of a module of the narrow copy."""

    module: str
    kind: str
    """Its class."""
    distance: float
    """Root mean square of the difference from the model's module, given the same inputs."""
    allowed: float
    """The same, as rounding explains it."""
    scale: float
    """Root mean square of the output itself."""

    @property
    def leaves(self) -> bool:
        """Whether it is farther away than that; so is what is not finite."""
        return not self.distance <= self.allowed


@dataclass(frozen=True, slots=True)
class Divergence:
    """All calls of modules, in the order in which they returned."""

    layers: tuple[Layer, ...]
    dtype: str

    @property
    def first(self) -> Layer | None:
        """The first whose output leaves the budget of the dtype."""
        return next((one for one in self.layers if one.leaves), None)

    def __str__(self) -> str:
        """One sentence."""
        if (one := self.first) is None:
            return f"all {len(self.layers)} calls of modules are as near as {self.dtype} explains"
        there = f"off by {one.distance:.3g} of {one.scale:.3g}, where {self.dtype} explains {one.allowed:.3g}"
        return f"{one.module or 'the model'} ({one.kind}) is the first that leaves the budget: {there} (rms)"


def divergence(torch: Any, model: Any, other: Any, inputs: Sequence[Any], named: Mapping[str, Any]) -> Divergence:
    """Run the narrow copy, and the model's modules one by one on what the copy's were given."""
    dtype = _checked(torch, model, other)
    twins, layers = dict(model.named_modules()), []
    nudged = copy.deepcopy(model)
    unit = torch.finfo(dtype).eps / 2
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for one in nudged.parameters():
            one.copy_(_nudge(torch, one, unit))
        neighbours = dict(nudged.named_modules())

        def judge(name: str, module: Any, args: Any, given: Any, result: Any) -> None:
            wide = _mapped(torch, (args, given), lambda one: one.float())
            moved = _mapped(torch, wide, lambda one: _nudge(torch, one, unit))
            got = _joined(torch, result)
            true, near = (
                _joined(torch, twins[name](*wide[0], **wide[1])),
                _joined(torch, neighbours[name](*moved[0], **moved[1])),
            )
            if got.shape == true.shape and got.numel():
                scale = _rms(true)
                allowed = FACTOR * (_rms(near - true) + unit * scale)
                layers.append(Layer(name, type(module).__name__, _rms(got - true), allowed, scale))

        args, kwargs = _mapped(torch, (inputs, dict(named)), lambda one: one.to(dtype))
        with _hooked(other, judge):
            other(*args, **kwargs)
    return Divergence(tuple(layers), str(dtype).rpartition(".")[2])


def _checked(torch: Any, model: Any, other: Any) -> Any:
    """The dtype of the narrow copy."""
    for one in (model, other):
        if not isinstance(one, torch.nn.Module):
            raise UsageError(f"trace.compare takes two modules of torch, not {type(one).__name__}")
    if model is other:
        raise UsageError(
            "trace.compare takes two copies of a model, not one twice; use copy.deepcopy before .bfloat16()"
        )
    ours, theirs = dict(model.named_modules()), dict(other.named_modules())
    if odd := sorted(ours.keys() ^ theirs.keys()):
        raise UsageError(f"the two are no copies of one model: only one has the module {odd[0]!r}")
    if any(one.training for one in (*ours.values(), *theirs.values())):
        raise UsageError("both models must be in eval mode, as in model.eval(): dropout draws other numbers in each")
    dtypes = {one.dtype for one in other.parameters() if one.is_floating_point()}
    if not dtypes or max(torch.finfo(one).eps for one in dtypes) <= torch.finfo(torch.float32).eps:
        raise UsageError(
            "the second model must be the narrow one, as model.bfloat16() makes it; it has no narrow weights"
        )
    if any(one.dtype != torch.float32 for one in model.parameters() if one.is_floating_point()):
        raise UsageError("the first model must be in float32: it says what is right")
    return max(dtypes, key=lambda one: torch.finfo(one).eps)


@contextlib.contextmanager
def _hooked(model: Any, judge: Callable[..., None]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():

            def hook(module: Any, args: Any, given: Any, result: Any, name: str = name) -> None:
                judge(name, module, args, given, result)

            stack.callback(module.register_forward_hook(hook, with_kwargs=True).remove)
        yield


def _nudge(torch: Any, tensor: Any, unit: float) -> Any:
    """Each element off by one rounding, up or down."""
    return tensor * (1 + unit * (2.0 * torch.randint(0, 2, tensor.shape, device=tensor.device) - 1))


def _mapped(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    """The same structure, with its float tensors changed."""
    if isinstance(value, torch.Tensor):
        return change(value) if value.is_floating_point() else value
    if isinstance(value, dict):
        return {name: _mapped(torch, one, change) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mapped(torch, one, change) for one in value)
    return value


def _joined(torch: Any, value: Any) -> Any:
    """All floats of an output, one behind the other."""
    found = [one.detach().float().reshape(-1) for one in tensors(torch, value) if one.is_floating_point()]
    return torch.cat(found) if found else torch.zeros(0)


def _rms(tensor: Any) -> float:
    return float(tensor.double().square().mean().sqrt())
