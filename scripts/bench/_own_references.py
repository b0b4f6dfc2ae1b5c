"""Estimated budgets of references in torch, tried: honest kernels and kernels with a seeded bug, for each reference."""

import ast
import time
from pathlib import Path
from random import Random

from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.checking.user_references import add_reference
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import Target, propose
from kernel_assay.oracles.catalog import forget_contracts
from kernel_assay.reports.plain.terminal import table

FOLDER = Path(__file__).parent / "own_references"
BATCH = 32


def problems() -> dict[str, tuple[list[str], list[str]]]:
    """`FILE:NAME` of every reference, or of its gradient -> names of the honest kernels, and of those with a bug."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for file in sorted(FOLDER.glob("*.py")):
        body = ast.parse(file.read_text("utf-8")).body
        names = [
            n.name for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("get_")
        ]
        grad = ".grad" if file.stem.startswith("gradients") else ""
        for name in (n for n in names if n[0] != "_" and "right" not in n.lower() and "wrong" not in n.lower()):
            mine = [n for n in names if n.startswith(f"{name}_")] or [
                n for n in names if n.startswith(("Right", "Wrong"))
            ]
            split = [[n for n in mine if word in n.removeprefix(name).lower()] for word in ("right", "wrong")]
            found[f"{file}:{name}{grad}"] = split[0], split[1]
    return found


def tried(place: str, right: list[str], wrong: list[str], cases: int, seed: int) -> tuple[list[str], list[int]]:
    """A row of the table, and: honest kernels, those accused, kernels with a bug, those found."""
    file = place.partition(":")[0]
    contract = add_reference(place)
    files = [f"{file}:{name}" for name in (*right, *wrong)]
    subjects = UserKernels(files).subjects((contract.name,))
    kinds: dict[str, dict[str, str]] = {s.key: {} for s in subjects}
    shares, judged, since = dict.fromkeys(kinds, 0.0), 0, time.monotonic()
    target = Target(contract, contract.dtypes[:1])
    with Examiner(subjects, timeout=20.0) as examiner:
        for start in range(0, cases, BATCH):
            made = [propose([target], seed, i, Elites()).case for i in range(start, min(start + BATCH, cases))]
            for checked in examiner.check([CheckRequest(case, tuple(kinds)) for case in made]):
                for key, verdict in checked.verdicts.items():
                    judged += verdict.kind is not Kind.UNSUPPORTED
                    shares[key] = max(shares[key], verdict.rho) if verdict.kind is Kind.PASS else shares[key]
                    if verdict.failed or verdict.kind is Kind.INCONCLUSIVE:
                        kinds[key].setdefault(verdict.kind.value, f"{verdict.message} | {checked.case!r}")
    spent = time.monotonic() - since
    failing = {s.name.rpartition(":")[2]: kinds[s.key] for s in subjects if kinds[s.key]}
    accused, found = [n for n in right if n in failing], [n for n in wrong if n in failing]
    for name in accused:
        for kind, message in failing[name].items():
            print(f"ACCUSED {name}: {kind}: {message}", flush=True)
    for name in set(wrong) - set(found):
        print(f"MISSED  {name}", flush=True)
    used = max((shares[s.key] for s in subjects if s.name.rpartition(":")[2] in right), default=0.0)
    odd = ", ".join(contract.elsewhere.unfollowed) if contract.elsewhere else ""
    contract.elsewhere.close()  # type: ignore[union-attr]
    forget_contracts()
    row = [contract.name, f"{len(right) - len(accused)} of {len(right)}", f"{len(found)} of {len(wrong)}"]
    return [*row, f"{used:.3f}", f"{judged:,}", f"{judged / spent:,.0f}", odd], [
        len(right),
        len(accused),
        len(wrong),
        len(found),
    ]


def measure(names: list[str], cases: int, seed: int | None) -> int:
    """Try all, or some; say the totals. 1 if an honest kernel was accused or a bug was not found."""
    seed = Random().getrandbits(32) if seed is None else seed
    rows, totals = [], [0, 0, 0, 0]
    for place, (right, wrong) in problems().items():
        if (
            names
            and place.rpartition(":")[2].removesuffix(".grad") not in names
            and Path(place.partition(":")[0]).stem not in names
        ):
            continue
        row, counts = tried(place, right, wrong, cases, seed)
        print(" ".join(row), flush=True)
        rows.append(row)
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
    print(table(["reference", "honest pass", "bugs found", "share used", "outputs", "a second", "not followed"], rows))
    print(f"\nseed {seed}, {len(rows)} references in torch")
    print(f"references: right accused {totals[1]} of {totals[0]}; wrong found {totals[3]} of {totals[2]} (goal 0, all)")
    return int(totals[1] > 0 or totals[3] < totals[2])
