"""Kernels that leave the work to the library which they are to replace: told in a line of the report, and no fault.

One ordinary case is run once more, by a worker that nothing else runs in, and torch says which of its operators were
called (corpus/process/recorded_operators.py); of a reference of the user's the process has said so already, for a
built-in op the built-in implementations in torch are asked. Operators that compute elements one by one count only
where the reference has no others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.process.channel import Message
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.user_references import ReferenceProcess
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.boundary.protocol import Task, told
from kernel_assay.kernels.catalog import resolve, subjects_of
from kernel_assay.oracles.spec.axes import Dims
from kernel_assay.oracles.spec.contract import Contract
from kernel_assay.oracles.spec.elsewhere import OutsideError
from kernel_assay.oracles.spec.plain_case import plain_case

SECONDS = 3.0
"""For one kernel."""
EXTENT = 64
"""Of each dimension, where the reference's author names no shape: kernels that leave some shapes to torch take it."""
_COMPILED = re.compile(r"\b(load_inline|cpp_extension|ctypes|cffi)\b")
"""What a file in torch names that brings code of another language."""
_NAMED = 3
"""Operators that are named."""


def asked_of(subject: Subject, *, judged: bool) -> bool:
    """Whether a kernel is to compute by itself: in Triton, with compiled code, or as the solution of a problem."""
    packages = loader_of(subject.loader).packages
    if not subject.is_own or "torch" not in packages:
        return False
    return judged or "triton" in packages or bool(_COMPILED.search(resolve(subject).read_text("utf-8", "replace")))


def noted(campaign: Campaign, examiner: Examiner, seconds: float) -> Campaign:
    """The campaign with how such kernels call what their references call, as far as the time goes."""
    subjects = [s for s in campaign.subjects if s.key in campaign.library]
    if not subjects:
        return campaign
    each = min(SECONDS, seconds / len(subjects))
    return campaign.but(library={s.key: _words(examiner, s, each) if each > 0.0 else "" for s in subjects})


def _words(examiner: Examiner, subject: Subject, seconds: float) -> str:
    """How a kernel calls what its reference calls; empty: it does not, or that is not known."""
    contract = examiner.contracts[subject.op]
    whose, others, theirs = "its reference", list[Subject](), dict[str, Any]()
    if isinstance(contract.elsewhere, ReferenceProcess) and not contract.elsewhere.differentiated:
        theirs = contract.elsewhere.said["operators"]
    elif not contract.origin:
        others = [s for s in subjects_of(subject.op) if s.backend == "torch" and not s.planted]
    if not others and not theirs:
        return ""
    try:
        case = _case(contract, subject, examiner.sandbox.needs.get(subject.key, frozenset()))
        task = Task(case, contract.output_specs(case), (subject.key,))
    except OutsideError:
        return ""
    said = examiner.sandbox.ask(subject.key, {"operators": told(task), "others": others}, seconds).get("called", {})
    known = {key: one for key, one in said.items() if one and key != subject.key}
    if known:  # the plainest of them is the operator itself
        whose = min(known, key=lambda key: sum(map(len, (known[key]["main"], known[key]["elementwise"]))))
        theirs = known[whose]
    mine = said.get(subject.key)
    return _told(mine, theirs, whose) if mine and theirs else ""


def _case(contract: Contract, subject: Subject, needed: frozenset[str]) -> Case:
    """An ordinary case of the kernel."""
    dims = contract.shapes[0] if contract.shapes else _extents(contract)
    case = plain_case(contract, dims, subject.dtypes[0] if subject.dtypes else "")
    taken = {n: t for n, t in case.tensors.items() if n not in contract.optional or n in needed}
    return case.but(tensors=taken)


def _extents(contract: Contract) -> Dims:
    return {n: max(d.least, min(EXTENT // d.multiple * d.multiple, d.most)) for n, d in contract.dims.items()}


def _told(mine: Message, theirs: Mapping[str, Any], whose: str) -> str:
    """Words for what both call; of operators that call one another the first."""
    shared = set(mine["main"]) & set(theirs["main"])
    shared = {name for name in shared if not shared & set(mine["main"][name])}
    launches = mine["launches"]
    if not theirs["main"] and set(theirs["elementwise"]) <= set(mine["elementwise"]) and not launches:
        shared = set(theirs["elementwise"])
    if not shared:
        return ""
    names = [f"aten::{name}" for name in sorted(shared)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    calls = f"calls {', '.join(names[:_NAMED])}{more}, as {whose} does"
    if launches is None:
        return calls
    return f"{calls}, beside kernels of its own" if launches else f"launches no kernel of its own: it {calls}"
