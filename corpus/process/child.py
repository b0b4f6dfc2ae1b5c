"""Start processes of ours: one command line for all of them, whatever packages lie where they are started."""

import sys
from pathlib import Path

import kernel_assay

HOME = Path(kernel_assay.__file__).resolve().parent.parent
"""The folder that this package is imported from."""
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import kernel_assay; del sys.path[0]; "
    "from importlib import import_module; import_module(sys.argv.pop(1)).main()"
)
"""HOME is taken from the path again: what else lies in it must not hide a person's own modules."""


def command_of(module: str, *arguments: str) -> list[str]:
    """The command line of a process that runs the function `main` of a module; its arguments are sys.argv[1:]."""
    return [sys.executable, "-c", _BOOT, str(HOME), module, *arguments]
