"""Are the five packages really ours? Other projects are called `kernels` or `corpus` too."""

from importlib.util import find_spec
from pathlib import Path

from kernel_assay.corpus.errors import UsageError

PACKAGES = ("fuzz", "kernels", "oracles", "corpus", "reports")


def check_house(found: dict[str, str] | None = None) -> Path:
    """The folder all five packages lie in. Raises UsageError that names the intruder if they do not.

    found: package -> path of its __init__ file; by default, what this interpreter would import.
    Imports none of them: a worker calls it too, and must never meet the judge.
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
    spec = find_spec(name)
    if spec is None or spec.origin is None:  # without an origin: a folder of that name, not a package
        raise UsageError(f"the package {name!r} is missing: install the project whole, all of {', '.join(PACKAGES)}")
    return spec.origin
