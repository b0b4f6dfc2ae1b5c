"""Ours: the search of `kassay run FILE`, called as a function that ends at the first failure, of whatever kind.

What is left out is what comes after it: shrinking, the report, and the store. Cases, sandbox (one worker process),
judge and time limit for a case are those of a run, and so is how often a person's own CUDA kernel is checked.
"""

from random import Random

from _problem import Clock, Found, Problem, main

from kernel_assay.fuzz.checking.check import Examiner


def search(problem: Problem, random: Random, clock: Clock) -> None:
    """Search until the time is up; the sandbox is up when it begins, as kernels of other tools are loaded."""
    from _hunt import hunt  # noqa: PLC0415  where it lies is known once _problem is there

    def judged(cases: int) -> None:
        clock.tests = cases

    alone, seed = problem.subject.but(planted=""), random.getrandbits(31)
    with Examiner([alone], timeout=5.0) as examiner:
        clock.begin()
        caught = hunt(examiner, alone, seed, clock.left, checks_often=alone.loader == "cuda", judged=judged)
    if caught is not None:
        failure = caught.failure
        raise Found(f"{failure.verdict.kind.value}: {failure.verdict.message}", failure.case.token)


if __name__ == "__main__":
    main(search)
