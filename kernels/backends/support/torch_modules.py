"""Classes of torch modules as subjects: made for the extents of a case, with the weights that the case gives."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.arguments import Argument, argued, names_of

SEED = 0
"""Set before a module is made, as where its reference is."""


def is_of_modules(launch: str) -> bool:
    """Whether a reference is a class of modules, which says how one is made."""
    return bool(launch) and "init" in json.loads(launch)


def called(torch: Any, cls: type, launch: str, where: str) -> Callable[..., Any]:
    """The function that makes such a module and calls it: inputs first, then weights, as the op has them.

    launch: what the reference said of its own class (fuzz.checking.user_references). Raises UsageError if the
    parameters are not those of the reference.
    """
    said = json.loads(launch)
    tensors = [(name, weight, axes) for name, weight, axes in said["tensors"]]
    arguments = [Argument.read(one) for one in said["arguments"]]
    make = _Makes(torch, cls, said)
    named = _matched(make(said["init"], {}), [weight for _, weight, _ in tensors if weight], where)
    extra = [name for name in said.get("optional", []) if name not in said["attrs"]]
    always = [name for name, _, _ in tensors if name not in extra]
    order = names_of([name for name, weight, _ in tensors if not weight], arguments)

    def call(*given: Any, **attrs: Any) -> Any:
        inputs, weights, dims = {}, {}, dict[str, int]()
        there = dict(zip(always, given, strict=True))
        there |= {name: tensor for name in extra if (tensor := attrs.pop(name, None)) is not None}
        for name, weight, axes in tensors:
            if (tensor := there.get(name)) is None:
                continue
            dims |= {axis: extent for axis, extent in zip(axes, tensor.shape, strict=True) if axis.isidentifier()}
            if weight:
                weights[named[weight]] = tensor
            else:
                inputs[name] = tensor
        init = [dims.get(said["init_dims"].get(str(i), ""), value) for i, value in enumerate(said["init"])]
        made = make(init, weights)
        rest = argued(inputs, arguments)
        first = [rest.pop(name) for name in takewhile(rest.__contains__, order)]
        with torch.set_grad_enabled(any(tensor.requires_grad for tensor in there.values())):
            return made(*first, **rest, **attrs)

    kinds = inspect.Parameter
    parameters = [kinds(name, kinds.POSITIONAL_ONLY) for name in always]
    parameters += [kinds(name, kinds.KEYWORD_ONLY, default=None) for name in extra]
    parameters += [kinds(name, kinds.KEYWORD_ONLY) for name in said["attrs"]]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


class _Makes:
    """Makes modules, one for each set of arguments, anew where weights change: it may prepare those at its first call.

    It stays while they do, whatever its inputs are: what it wrongly keeps of those is seen.
    """

    def __init__(self, torch: Any, cls: type, said: Mapping[str, Any]) -> None:
        self._torch, self._class, self._mode = torch, cls, said["mode"]
        self._made: dict[str, tuple[Any, dict[str, Any]]] = {}

    def __call__(self, init: list[Any], weights: Mapping[str, Any]) -> Any:
        key = json.dumps(init)
        model, old = self._made.get(key, (None, {}))
        if model is None or any(name in old and not self._torch.equal(old[name], t) for name, t in weights.items()):
            self._torch.manual_seed(SEED)
            model = self._class(*init).train(self._mode == "train")
        self._made[key] = model, {name: tensor.detach().clone() for name, tensor in weights.items()}
        for name, tensor in weights.items():
            _put(self._torch, model, name, tensor)
        return model


def _matched(model: Any, wanted: list[str], where: str) -> dict[str, str]:
    """The reference's names of weights and the module's: the same, or as many in the same order."""
    own = [name for name, t in model.state_dict().items() if t.is_floating_point()]
    if set(wanted) <= set(own):
        return dict(zip(wanted, wanted, strict=True))
    for names in (own, [name for name, _ in model.named_parameters()]):  # it may have tables of its own
        if len(names) == len(wanted):
            return dict(zip(wanted, names, strict=True))
    raise UsageError(
        f"{where} has the parameters {', '.join(own) or 'none'}, but the reference has {', '.join(wanted) or 'none'}: "
        "give them the same names, or as many in the same order"
    )


def _put(torch: Any, model: Any, name: str, tensor: Any) -> None:
    """Put a weight in its place, whatever its shape was."""
    path, _, leaf = name.rpartition(".")
    owner = model.get_submodule(path)
    if leaf in owner._parameters:  # noqa: SLF001  assigning checks the shape
        plain = torch.nn.Parameter(tensor, requires_grad=False) if not tensor.requires_grad else tensor
        owner._parameters[leaf] = plain  # noqa: SLF001  one that requires grad must stay the leaf that it is
    else:
        owner._buffers[leaf] = tensor  # noqa: SLF001
