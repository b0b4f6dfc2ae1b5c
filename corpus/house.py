"""Are the five packages really ours? Other projects are called `kernels` or `corpus` too."""

from importlib import import_module
from pathlib import Path

from corpus.errors import UsageError

PACKAGES = ("fuzz", "kernels", "oracles", "corpus", "reports")


def check_house(found: dict[str, str] | None = None) -> Path:
    """The folder all five packages lie in. Raises UsageError that names the intruder if they do not.

    found: package -> path of its __init__ file; by default, what this interpreter imports.
    """
    files = found if found is not None else {name: _origin(name) for name in PACKAGES}
    homes = {name: Path(path).resolve().parent.parent for name, path in files.items()}
    ours = homes["corpus"]
    for name, home in homes.items():
        if home != ours:
            raise UsageError(
                f"the package {name!r} comes from {home / name}, not from {ours / name}: another project of that name "
                f"stands before this one; run from {ours}, or uninstall the other"
            )
    return ours


def _origin(name: str) -> str:
    try:
        return str(import_module(name).__file__)
    except ImportError as error:
        raise UsageError(
            f"the package {name!r} is missing: install the project whole, all of {', '.join(PACKAGES)}"
        ) from error
