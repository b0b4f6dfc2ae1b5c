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
            result = made(*first, **rest, **attrs)
        make.carry_back(init, weights)
        return result

    kinds = inspect.Parameter
    parameters = [kinds(name, kinds.POSITIONAL_ONLY) for name in always]
    parameters += [kinds(name, kinds.KEYWORD_ONLY, default=None) for name in extra]
    parameters += [kinds(name, kinds.KEYWORD_ONLY) for name in said["attrs"]]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


class _Makes:
    """Makes modules, one for each set of arguments, anew where weights change: it may prepare those at its first call.

    It stays while they do, whatever its inputs are: what it wrongly keeps of those is seen. So its weights lie in
    memory that stays, too.
    """

    def __init__(self, torch: Any, cls: type, said: Mapping[str, Any]) -> None:
        self._torch, self._class, self._mode = torch, cls, said["mode"]
        self._made: dict[str, tuple[Any, dict[str, Any]]] = {}
        """The last one for each set of arguments, and its weights, as they were given."""

    def __call__(self, init: list[Any], weights: Mapping[str, Any]) -> Any:
        key = json.dumps(init)
        model, old = self._made.get(key, (None, {}))
        if (
            model is not None
            and old.keys() == weights.keys()
            and all(self._same(old[n], t) for n, t in weights.items())
        ):
            return model
        self._torch.manual_seed(SEED)
        model = self._class(*init).train(self._mode == "train")
        kept = {n: t if t.requires_grad else _kept(self._torch, t) for n, t in weights.items()}
        for name, tensor in kept.items():
            _put(self._torch, model, name, tensor)
        self._made[key] = model, kept
        return model

    def carry_back(self, init: list[Any], weights: Mapping[str, Any]) -> None:
        """Write what a call has made of weights where they were given, so that it is seen."""
        _, kept = self._made[json.dumps(init)]
        for name, given in weights.items():
            if kept[name] is not given and not self._torch.equal(kept[name], given):
                given.copy_(kept[name])

    def _same(self, kept: Any, given: Any) -> bool:
        """Whether a weight is what it was, in memory of the same kind."""
        alike = kept.stride() == given.stride() and kept.data_ptr() % _ALIGNED == given.data_ptr() % _ALIGNED
        return alike and not given.requires_grad and bool(self._torch.equal(kept, given))


_ALIGNED, _ZONE = 256, 4096
"""Bytes: of what a place in memory is taken the remainder, and those on either side of a weight."""


def _kept(torch: Any, given: Any) -> Any:
    """A copy in memory of its own, with the strides and the alignment of what was given, and NaN around it."""
    base = given[tuple(slice(0, 1) if step == 0 else slice(None) for step in given.stride())]
    size = given.element_size()
    used = size + sum(size * step * (extent - 1) for extent, step in zip(base.shape, base.stride(), strict=True))
    room = torch.full((2 * _ZONE + max(0, used) + _ALIGNED,), 0xFF, dtype=torch.uint8, device=given.device)
    start = _ZONE + (given.data_ptr() - room.data_ptr() - _ZONE) % _ALIGNED
    whole = room[start : start + max(0, used)].view(given.dtype)
    return whole.as_strided(base.shape, base.stride()).copy_(base).expand(given.shape)


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
