"""Ours: the search of `kassay run`, with the kernel alone, up to the first failure of any kind."""

from random import Random

from _problem import Clock, Found, Problem, main

from kernel_assay.fuzz.checking.check import Examiner


def search(problem: Problem, random: Random, clock: Clock) -> None:
    """Search until the time is up; the sandbox is up when it begins, as kernels of other tools are loaded."""
    from _hunt import hunt  # noqa: PLC0415  where it lies is known once _problem is there

    alone = problem.subject.but(planted="")
    with Examiner([alone], timeout=5.0) as examiner:
        clock.begin()
        caught = hunt(examiner, alone, random.getrandbits(31), clock.left)
    if caught is not None:
        clock.tests, verdict = caught.proposal.index + 1, caught.failure.verdict
        raise Found(f"{verdict.kind.value}: {verdict.message}")


if __name__ == "__main__":
    main(search)
