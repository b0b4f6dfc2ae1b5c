"""Small modules, small functions, everything annotated."""

import ast
import statistics

from tree import PACKAGES, ROOT, is_subject

MODULE, MEDIAN, P95 = 500, 9, 40
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_python(path):
    if path.suffix:
        return path.suffix == ".py"
    with path.open("rb") as file:
        return b"python" in file.readline()


def modules():
    files = [f for name in PACKAGES for f in (ROOT / name).rglob("*.py")]
    files += [f for f in (ROOT / "scripts").rglob("*") if f.is_file() and is_python(f)]
    return {str(f.relative_to(ROOT)): f for f in sorted(files) if "local" not in f.parts}


def functions(source):
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, FUNCTION)]


def length(function):
    return function.end_lineno - function.lineno + 1


def unannotated(function):
    """What of a function has no annotation; self and cls need none."""
    a = function.args
    named = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    missing = [x.arg for x in named if x.annotation is None and x.arg not in {"self", "cls"}]
    return missing + ["return"] * (function.returns is None)


def packages_functions():
    ours = {name: path for name, path in modules().items() if not name.startswith("scripts/")}
    return {f"{name}:{f.lineno} {f.name}": f for name, path in ours.items() for f in functions(path.read_text())}


def test_modules_are_short():
    lengths = {name: len(path.read_text().splitlines()) for name, path in modules().items()}
    assert len(lengths) > 50
    assert {name: n for name, n in lengths.items() if n > MODULE} == {}


def test_functions_are_short():
    lengths = sorted(map(length, packages_functions().values()))
    assert len(lengths) > 200
    assert statistics.median(lengths) <= MEDIAN
    assert lengths[int(len(lengths) * 0.95)] <= P95


def test_everything_is_annotated():
    bare = {}
    for name, path in modules().items():
        if name.startswith("scripts/") or is_subject(path):
            continue
        bare |= {f"{name}:{f.lineno} {f.name}": gaps for f in functions(path.read_text()) if (gaps := unannotated(f))}
    assert bare == {}


def test_the_measures_measure():
    bare = "    def f(self, x, *y: int, z=1, **w):\n        return x\n"
    source = f"class A:\n{bare}\n    async def g(self) -> None:\n        pass\n"
    first, second = functions(source)
    assert unannotated(first) == ["x", "z", "w", "return"]
    assert unannotated(second) == []
    assert length(first) == 2
    assert is_subject(ROOT / "kernels/silu/torch_silu.py")
    assert not is_subject(ROOT / "kernels/backends/torch.py")
    assert not is_subject(ROOT / "kernels/backend_registry.py")
    assert "scripts/demo" in modules()
