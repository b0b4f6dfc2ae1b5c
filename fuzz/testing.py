"""Hold kernels to what is right in tests of your own, case by case.

    import torch
    from kernel_assay.fuzz.testing import assay

    def scaled(x: "float32[rows, cols]"):  # what is right, in float64
        return x * torch.sigmoid(x)

    def my_kernel(x):
        return x / (1 + torch.exp(-x))

    @assay(reference=scaled)
    def test_my_kernel():
        return my_kernel

`assay` is for a test that returns its kernel; `cases` and `hold` are its parts, for `@given`:

    from hypothesis import given, settings
    from kernel_assay.fuzz.testing import cases, hold

    @settings(deadline=None)  # the first case waits for the sandbox
    @given(cases("softmax"))
    def test_my_softmax(case):
        hold(case, "my_softmax.py")

The kernel runs in the sandbox: a crash fails the test and does not end it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any, NoReturn

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.reference_place import Target, option_for
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.program import program
from kernel_assay.fuzz.api import USUAL, Kernel, SandboxLimits, check, place_of, sandbox_of
from kernel_assay.fuzz.checking.user_references import ReferenceProcess, add_reference
from kernel_assay.fuzz.generation import strategies
from kernel_assay.oracles.catalog import contract_of, load_contracts, origin_of
from kernel_assay.oracles.references.examples import words_of

__all__ = ["SandboxLimits", "assay", "cases", "hold"]

Reference = Kernel
"""`FILE[:NAME]` or `module:NAME`, or a function or a class of torch's modules that stands in a module."""


def assay(
    op: str = "",
    *,
    reference: Reference | None = None,
    grad: bool = False,
    example: Any = (),
    dtypes: tuple[str, ...] = (),
    max_elements: int | None = None,
    laws: bool = True,
    limits: SandboxLimits = USUAL,
) -> Callable[[Callable[..., Kernel]], Callable[..., None]]:
    """Make a test of a function that returns a kernel: it is held to an op, or a reference, by cases of Hypothesis.

    Its arguments are the test's: fixtures, parameters, `self`. It is called once, for all cases. Settings of Hypothesis
    may stand above it, but for a deadline: how long a kernel may take is what `limits` say. The first seven are as for
    `cases`, the last two as for `hold`.
    """
    drawn = cases(op, reference=reference, grad=grad, example=example, dtypes=dtypes, max_elements=max_elements)

    def decorated(test: Callable[..., Kernel]) -> Callable[..., None]:
        def held(kernel: Kernel, case: Case) -> None:
            __tracebackhide__ = True
            hold(case, kernel, laws=laws, limits=limits)

        held.__name__ = held.__qualname__ = test.__name__
        held.__module__ = test.__module__
        every_case = given(case=drawn)(held)

        @wraps(test)
        def made(*given_by_pytest: Any, **more: Any) -> None:
            __tracebackhide__ = True
            kernel = test(*given_by_pytest, **more)
            if kernel is None:
                raise UsageError(f"{test.__name__} returns no kernel; let it return a function, or 'FILE:NAME'")
            sandbox_of(
                kernel, op or _op_of(_place(reference, example, grad=grad)), limits
            )  # what cannot be run is no failing case
            vars(every_case).update(_above(made))
            try:
                every_case(kernel)
            except AssertionError as error:
                words = str(error)
            else:
                return
            _fail(words)  # by itself: Hypothesis' own words would name the case a second time

        for name, value in vars(every_case).items():  # by which pytest and Hypothesis know their own tests
            vars(made).setdefault(name, value)
        return made

    return decorated


def _above(test: Callable[..., None]) -> dict[str, Any]:
    """What decorators have written on a test; its settings as they suit what runs elsewhere."""
    written = {name: value for name, value in vars(test).items() if name != "__wrapped__"}
    return {name: _suited(value) if isinstance(value, settings) else value for name, value in written.items()}


def _suited(chosen: settings) -> settings:
    """Settings without a deadline, and without explaining a failure by lines of this process, none of them a kernel's.

    The sandbox has limits of its own, and the first case waits for it.
    """
    return settings(chosen, deadline=None, phases=[phase for phase in chosen.phases if phase is not Phase.explain])


def _fail(words: str) -> NoReturn:
    raise AssertionError(words)


def cases(
    op: str = "",
    *,
    reference: Reference | None = None,
    grad: bool = False,
    example: Any = (),
    dtypes: tuple[str, ...] = (),
    max_elements: int | None = None,
) -> st.SearchStrategy[Case]:
    """Cases of an op, or of a reference of your own, for `@given`.

    grad: kernels are held to the gradients of the reference, not to what it returns. example: inputs of the reference,
    in their order, or the only one, where neither annotations nor a table of its file describe them; dtypes: only these
    for the first input; none: all of an op, that of its description of a reference; max_elements: of the largest
    tensor. Raises UsageError for an unknown op, and what cannot be a reference; what the reference itself does wrong is
    said when the test runs.
    """
    if grad and reference is None:
        raise UsageError("gradients are those of a reference: name one, as cases(reference=fn, grad=True)")
    if (reference is None) != bool(op):
        raise UsageError("what is right is an op or a reference: name one, as cases('softmax') or cases(reference=fn)")
    if reference is None:
        return strategies.cases(op, dtypes=dtypes, max_elements=max_elements)
    place = _place(reference, example, grad=grad)

    def described() -> st.SearchStrategy[Case]:
        contract = contract_of(_op_of(place))
        return strategies.cases(contract, dtypes=dtypes or contract.dtypes[:1], max_elements=max_elements)

    return st.deferred(described)


def _place(reference: Reference | None, example: Any, *, grad: bool) -> str:
    """A reference as the command line names it; empty for none."""
    if reference is None:
        return ""
    examples = (example,) if hasattr(example, "shape") or not isinstance(example, Sequence) else example
    place = place_of(reference) + (words_of(examples) if len(examples) else "")
    return str(Target.read(place)._replace(grad=True)) if grad else place


def _op_of(place: str) -> str:
    """The op that a reference is, loaded once a process."""
    op = _loaded(place, folder := Path.cwd())
    if op not in load_contracts():  # somebody has forgotten all of them
        _loaded.cache_clear()
    return _loaded(place, folder)


@cache
def _loaded(place: str, folder: Path) -> str:
    return add_reference(place, folder, named=origin_of).name


def hold(case: Case, kernel: Kernel, *, laws: bool = True, limits: SandboxLimits = USUAL) -> Verdict:
    """Run a kernel on a case and return the verdict; one that is a failure raises AssertionError, in words.

    kernel: a file, `FILE:NAME`, or a function of a module (it is loaded again, in the sandbox, from its file). laws:
    hold it to the laws of the op, too. limits: limits of the sandbox.

    Raises UsageError for a kernel that cannot be loaded or called.
    """
    __tracebackhide__ = True
    verdict = check(case, kernel, laws=laws, limits=limits)
    if verdict.failed:
        _, subject = sandbox_of(kernel, case.op, limits)
        raise AssertionError(_words(case, subject.place, verdict))
    return verdict


def _words(case: Case, place: str, verdict: Verdict) -> str:
    reference, extra = contract_of(case.op).elsewhere, option_for(origin_of(case.op))
    shown = case.but(op=reference.usual_op) if isinstance(reference, ReferenceProcess) else case
    lines = [
        f"{verdict.kind}: {verdict.message}",
        f"case      {case.label}",
        f"see it    {program()} show {shown.token} --subject {shlex.quote(place)}{extra}",
    ]
    return "\n".join(lines)
