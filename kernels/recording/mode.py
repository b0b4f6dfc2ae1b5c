"""What torch tells of its operators, to a watch: a dispatch mode, which can be laid aside for a while."""

from __future__ import annotations

import inspect
from typing import Any


def mode_of(watch: Any) -> Any:
    """What torch tells of every operator, if it is entered as a context manager; one for each thread."""
    from torch.utils import _python_dispatch as dispatch  # noqa: PLC0415  the program may never import it

    class Watching(dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]
        resting = False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            return watch.run(func, args, kwargs or {})

        def __enter__(self) -> Any:
            watch.local.mode = self  # each thread has its own
            return super().__enter__()  # type: ignore[no-untyped-call]

        def __exit__(self, *error: object) -> None:
            self.rest(False)
            watch.local.mode = None
            super().__exit__(*error)  # type: ignore[no-untyped-call]

        def rest(self, wanted: bool) -> None:
            """Leave torch alone for a while, or not any more; a mode of the program's that came later stays on top."""
            if wanted and not self.resting and dispatch._get_current_dispatch_mode() is self:  # noqa: SLF001
                super().__exit__(None, None, None)  # type: ignore[no-untyped-call]
                self.resting = True
            elif self.resting and not wanted:
                super().__enter__()  # type: ignore[no-untyped-call]
                self.resting = False

    # Under its wrapper, which would import torch's compiler to say that it is not compiled.
    Watching.__torch_dispatch__ = inspect.unwrap(Watching.__torch_dispatch__)  # type: ignore[method-assign]
    return Watching
