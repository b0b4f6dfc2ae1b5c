"""The process that opens a file of torch.save, of which it takes tensors only, and hands them over in pieces.

It runs no code of the file: torch.load refuses whatever is no plain data (weights_only).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pickle import UnpicklingError
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.process.child import Answer, serve_parent

DEEPEST = 32
"""Dicts and lists within one another."""


def main() -> None:
    """Entry of the process."""
    serve_parent(begin)


def begin(settings: Message) -> tuple[Message, Answer]:
    """Open the file, and say which tensors there are; what answers writes a piece of one into the shared memory."""
    found = list(_named("", _loaded(settings["path"]), 0))
    loaded = dict(found)
    if len(loaded) < len(found):
        twice = next(name for i, (name, _) in enumerate(found) if name in dict(found[:i]))
        raise UsageError(f"two of its tensors are called {twice!r}, by the keys that lead to them")

    def answer(message: Message) -> Message:
        import torch  # noqa: PLC0415  only this process needs it

        tensor = loaded[message["name"]]
        low, high = message["low"], message["high"]
        plain = tensor.view(getattr(torch, f"uint{8 * tensor.element_size()}")).numpy()
        part = plain.reshape(-1)[low:high] if plain.flags.c_contiguous else plain.flat[low:high]
        os.pwrite(settings["memory"], part.tobytes(), 0)
        return {}

    told = [(name, list(one.shape), str(one.dtype).removeprefix("torch.")) for name, one in loaded.items()]
    return {"tensors": told}, answer


def _loaded(path: str) -> Any:
    try:
        import torch  # noqa: PLC0415  as above
    except ImportError as error:
        raise UsageError("it is a file of torch.save, and torch is not installed here") from error
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except UnpicklingError as error:
        raise UsageError("it holds more than tensors and plain data, or is damaged, and is not loaded") from error
    except Exception as error:
        said = " ".join(str(error).split())
        if "mmap can only be used" in said:
            raise UsageError("it is no file of torch.save, or one from before torch 1.6: save it again") from error
        raise UsageError(f"torch cannot load it ({type(error).__name__}: {said.partition('. ')[0][:120]})") from error


def _named(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """All tensors by their names: the keys that lead to them, with dots between."""
    import torch  # noqa: PLC0415  as above

    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized or value.device.type != "cpu":
            raise UsageError(f"{name or 'its tensor'} is sparse, quantized or without data, which is not compared")
        yield name or "tensor", value.detach().resolve_neg()
    elif depth < DEEPEST:
        items = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
        )
        for key, item in items:
            yield from _named(f"{name}.{key}" if name else str(key), item, depth + 1)
