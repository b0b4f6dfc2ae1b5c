"""The engines: an endless, resumable, shardable stream of cases.

`conjecture` answers the grammar's questions itself: memory stays flat, and case i depends on (run seed, i) and on the
elites that were visible to it. Hypothesis' ConjectureData draws the same answers, but took half of the time that making
a case takes; when it replays the choices of a case, it makes the same one. `given` does it all through Hypothesis'
public API, in chunks whose body never raises; slower. tests/fuzz/test_engine.py holds both to the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.campaign import GENERATION
from kernel_assay.corpus.model.case import Case
from kernel_assay.fuzz.generation import size_distribution
from kernel_assay.fuzz.generation.declines import AS_IF, narrowed
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.model_shapes import deep_turn, far_turn, is_beyond, long_turn, tiled_turn, turn
from kernel_assay.fuzz.generation.near_repeats import near_repeat
from kernel_assay.fuzz.generation.size_distribution import Draws
from kernel_assay.fuzz.generation.strategies import MAX_WORK, ROOM_QUESTION, build, cases
from kernel_assay.kernels.backends.simt.schedule import drawn_checked, drawn_contracted, in_check_mode
from kernel_assay.oracles.spec.axes import Dims
from kernel_assay.oracles.spec.contract import Contract
from kernel_assay.oracles.spec.plain_case import plain_case

BATCH = 32
"""Cases a batch; elites found in batch b are visible from batch b + 2 on, so the stream does not depend on timing."""
CHUNK = 1000
"""Cases a chunk of the `given` engine: bounded memory, and half a second to the first case."""
MUTATE = 0.5
"""Share of cases that start from an elite, where there is one."""
NEAR_SINCE = 4
"""The generation of runs that have cases which are the last one with a few other elements."""
NEAR = 1 / 8
"""Share of cases that are the last one of their op with a few other elements."""

FIRST_CHECKED = 16
"""Cases of an op that are all run in check mode, where a run checks often: a race is seen in the first second."""
MOST_CHECKED = 1 << 20
"""Steps of the op's work, or elements, of a case behind them that is: more would take most of the run's time."""
SMALLEST_SINCE = 5
"""The generation of runs that have cases of the smallest extents there are, early long ones and deep ones."""
SMALLEST, FIRST_SMALLEST = 64, 9
"""One case of an op in so many is as small as it can be without being empty, and which is the first."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A case to try, and how it came about."""

    index: int
    case: Case
    choices: tuple[int, ...]
    """What was answered to every question of the grammar; Hypothesis can shrink from it."""
    parent: str = ""
    """Cell of the elite it was mutated from."""
    is_long: bool = False
    """It is larger than ordinary cases are: not everybody has the time for it."""
    wanted: int = -1
    """Its position in the workload of its op, if it is there as it is."""
    is_far: bool = False
    """It has more elements than 32 bits count: one subject runs it, for each takes minutes on a CPU."""


@dataclass(frozen=True)
class Target:
    """An op to search, and what limits it."""

    contract: Contract
    dtypes: tuple[str, ...] = ()
    """Dtypes at least one subject takes; () means all."""
    hints: tuple[int, ...] = ()
    """Sizes worth trying, from the subjects' own constants."""
    max_elements: int | None = None
    memory: int | None = None
    """Bytes of a case's inputs and outputs; with it, shapes of language models are tried as far as they fit."""
    contracted: bool = False
    """Whether some cases have kernels that are emulated compiled with a * b + c rounded once."""
    longest: int = 0
    """Elements of the largest tensor of a case that is long and thin."""
    farthest: int = 0
    """Bytes of a case's inputs and outputs, where there is room for one with more elements than 32 bits count."""
    generation: int = GENERATION
    """Of the rules by which cases are drawn, as the run's record has it."""
    workload: tuple[Case, ...] = ()
    """Cases that come first, and are drawn like later: with their extents, dtypes and attributes."""
    shapes: tuple[Dims, ...] = ()
    """The only extents that cases have, in turn; (): they are drawn."""
    checks_often: bool = False
    """Whether half of the cases have kernels that are emulated run in check mode, and all of the first."""
    _narrowed: dict[frozenset[str], Target] = field(default_factory=dict, init=False, compare=False, repr=False)

    def without(self, refused: frozenset[str]) -> Target:
        """The same without what is always declined."""
        if refused not in self._narrowed:
            contract, dtypes = narrowed(self.contract, self.dtypes, refused)
            self._narrowed[refused] = replace(self, contract=contract, dtypes=dtypes)
        return self._narrowed[refused]


Engine = Callable[[Sequence[Target], int, int, Elites], Iterator[list[Proposal]]]
"""(targets, run seed, first index, elites) -> batches without end."""


def conjecture_engine(targets: Sequence[Target], run_seed: int, start: int, elites: Elites) -> Iterator[list[Proposal]]:
    """Batches from index start on; start must be a multiple of BATCH."""
    if start % BATCH:
        raise InternalError(f"a stream cannot start at index {start}, inside a batch of {BATCH}")
    index = start
    while True:
        yield [propose(targets, run_seed, i, elites) for i in range(index, index + BATCH)]
        index += BATCH


def propose(targets: Sequence[Target], run_seed: int, index: int, elites: Elites) -> Proposal:
    """Case number index of a run: a function of the seed, the index and the elites visible in its batch."""
    made = _ordinary(targets, run_seed, index, elites)
    again = targets[index % len(targets)].generation >= NEAR_SINCE
    return (again and _once_more(targets, run_seed, made, elites)) or made


def _ordinary(targets: Sequence[Target], run_seed: int, index: int, elites: Elites) -> Proposal:
    """The same of a case that does not look at the last one."""
    target, number = targets[index % len(targets)], index // len(targets)
    if number < len(target.workload) or (target.workload and number % FAVOURED == 0):
        return _of_workload(target, Random(f"{run_seed}:{index}"), index, number)
    if number % AS_IF and (refused := elites.refused(target.contract.name, index // BATCH)):
        with suppress(UsageError):  # the smallest case of what is left may be too large
            return _proposed(target.without(refused), run_seed, index, number, elites)
    return _proposed(target, run_seed, index, number, elites)


def _once_more(targets: Sequence[Target], run_seed: int, made: Proposal, elites: Elites) -> Proposal | None:
    """The last case of the op once more, if it is that turn, with a few other elements.

    Only one of the same batch: it has run in the same process, and the same elites are visible to it. Shapes whose turn
    it is come all the same.
    """
    target, number = targets[made.index % len(targets)], made.index // len(targets)
    index, before = made.index, made.index - len(targets)
    if made.is_long or made.wanted >= 0 or before < index // BATCH * BATCH:
        return None
    random = Random(f"{run_seed}:{made.index}:near")
    if random.random() >= NEAR:
        return None
    if _shapes(target, run_seed, number - len(target.workload)):
        return None
    last = propose(targets, run_seed, before, elites)
    elsewhere = target.contract.elsewhere
    near = None if last.is_long else near_repeat(last.case, random, elsewhere.weights if elsewhere else ())
    return None if near is None else Proposal(index, near, (), last.parent)


def _proposed(target: Target, run_seed: int, index: int, number: int, elites: Elites) -> Proposal:
    """Case number index, which is one of this op; number: which."""
    random, contract = Random(f"{run_seed}:{index}"), target.contract
    number -= len(target.workload)
    if target.shapes:
        roomy = replace(target, max_elements=None, memory=None)
        case, choices = generate(roomy, random, shapes=(target.shapes[number % len(target.shapes)],))
        is_long = is_beyond(contract, contract.dims_of(case), contract.max_elements, MAX_WORK)
        return Proposal(index, scheduled(target, case, number), choices, is_long=is_long)
    if number < len(contract.shapes):
        dtype = target.dtypes[0] if target.dtypes else ""
        return Proposal(
            index, plain_case(contract, contract.shapes[number], dtype, run_seed & _SEEDS), (), is_long=True
        )
    if far := _far(target, run_seed, index, number):
        return far
    shapes, early = _shapes(target, run_seed, number), target.generation >= SMALLEST_SINCE
    given: tuple[Dims, ...] = ()
    if early and number % SMALLEST == FIRST_SMALLEST:
        given = ({name: dim.least or dim.multiple for name, dim in contract.dims.items()},)
    elif early and not shapes:
        given = deep_turn(contract, run_seed, number)
    if given:
        return Proposal(index, scheduled(target, generate(target, random, shapes=given)[0], number), ())
    if not shapes and (long := long_turn(contract, target.longest, run_seed, number, early=early)):
        roomy = replace(target, contract=long.contract, max_elements=None, memory=None)
        return Proposal(index, *generate(roomy, random, shapes=(long.dims,)), is_long=True)
    parent = None
    if random.random() < MUTATE and not shapes:
        parent = elites.pick(contract.name, index // BATCH, random)
    steer = _steer(parent.choices, random) if parent else {}
    case, choices = generate(target, random, steer, shapes)
    return Proposal(index, scheduled(target, case, number), choices, parent.cell if parent else "")


def _shapes(target: Target, run_seed: int, number: int) -> tuple[Dims, ...]:
    """Shapes that case `number` of an op may have; () if it is an ordinary case."""
    shapes = () if target.memory is None else turn(target.contract, run_seed, number)
    return shapes or tiled_turn(target.contract, target.max_elements, run_seed, number)


def _of_workload(target: Target, random: Random, index: int, number: int) -> Proposal:
    """Case number index: as it stands in the workload, or drawn like one of those that stand there."""
    position = number if number < len(target.workload) else number // FAVOURED % len(target.workload)
    model = target.workload[position]
    contract = target.contract
    is_long = is_beyond(contract, contract.dims_of(model), contract.max_elements, MAX_WORK)
    if number < len(target.workload):
        seeds = random.getrandbits(32)
        tensors = {name: t.but(fill=t.fill.but(seed=seeds + i)) for i, (name, t) in enumerate(model.tensors.items())}
        case = scheduled(target, model.but(tensors=tensors), number)
        return Proposal(index, case, (), is_long=is_long, wanted=position)
    given, roomy = like(contract, model), replace(target, max_elements=None, memory=None, dtypes=())
    case, choices = generate(replace(roomy, contract=given), random, shapes=(contract.dims_of(model),))
    return Proposal(index, scheduled(target, case, number), choices, is_long=is_long)


def like(contract: Contract, model: Case) -> Contract:
    """The contract of the cases with the inputs, dtypes and attributes of one; extents and layouts are left open."""
    absent = [name for name in contract.inputs if name not in model.tensors]
    found = contract.narrowed(absent, tuple(model.tensors), {})
    dtypes = {name: t.dtype for name, t in model.tensors.items()}
    return replace(
        found,
        variants=tuple(v for v in found.variants if all(v[name] == t for name, t in dtypes.items())),
        attrs={name: (value,) for name, value in contract.attrs_of(model).items()},
    )


FAVOURED = 4
"""One case of an op in so many is like one of its workload, where there is one."""
_SEEDS = (1 << 32) - 1
DRAWS = 16
"""Times that a case with more elements than 32 bits count is drawn, until one has a dtype that is narrow enough."""


def _far(target: Target, run_seed: int, index: int, number: int) -> Proposal | None:
    """Case number index, if it has more elements than 32 bits count. Its layouts are plain: gaps would cost as much."""
    contract, random = target.contract, None
    for dims in far_turn(contract, target.farthest, run_seed, number):
        random = random or Random(f"{run_seed}:{index}:far")  # hardly any case comes here
        roomy = replace(target, max_elements=None, memory=target.farthest)
        for _ in range(DRAWS):
            case, _ = generate(roomy, random, shapes=(dims,))
            if contract.dims_of(case) == dims and not any(t.layout == "broadcast" for t in case.tensors.values()):
                plain = {name: t.but(layout="contiguous") for name, t in case.tensors.items()}
                return Proposal(index, case.but(tensors=plain, outputs={}), (), is_long=True, is_far=True)
    return None


def scheduled(target: Target, case: Case, number: int) -> Case:
    """Number `number` of its op, in check mode or with a * b + c rounded once, if it is one of those.

    Its seeds decide, and no question is asked.
    """
    if target.checks_often and (number < FIRST_CHECKED or drawn_checked(case)) and _is_light(target.contract, case):
        return in_check_mode(case)
    return case.but(contracted=True) if target.contracted and drawn_contracted(case) else case


def _is_light(contract: Contract, case: Case) -> bool:
    return not is_beyond(contract, contract.dims_of(case), MOST_CHECKED, MOST_CHECKED)


def generate(
    target: Target, random: Random, steer: Mapping[int, int] | None = None, shapes: Sequence[Dims] = ()
) -> tuple[Case, tuple[int, ...]]:
    """One case; steer says which questions (by number) already have an answer, shapes which it may have (see build)."""
    draws, steered = Draws(random, target.hints), steer or {}
    choices: list[int] = []

    def choose(low: int, high: int) -> int:
        forced = steered.get(len(choices))
        value = draws.integer(low, high) if forced is None else min(high, max(low, forced))
        choices.append(value)
        return value

    limits = {"max_elements": target.max_elements, "memory": target.memory}
    case = build(target.contract, choose, dtypes=target.dtypes, shapes=shapes, generation=target.generation, **limits)
    return case, tuple(choices)


def _steer(parent: tuple[int, ...], random: Random) -> dict[int, int]:
    """Keep all answers of the parent but one to three; of those, some are nudged, the others drawn anew.

    How much room there is is always drawn anew: larger inputs tend to use more of their budget, and elites would grow.
    """
    steer = dict(enumerate(parent))
    steer.pop(ROOM_QUESTION, None)
    for _ in range(random.choice((1, 1, 2, 3))):
        position = int(random.random() * len(parent))
        if random.random() < 0.5:
            steer.pop(position, None)
        elif position in steer:
            value = steer[position]
            steer[position] = random.choice((value - 1, value + 1, value * 2, value // 2))
    return steer


def given_engine(targets: Sequence[Target], run_seed: int, start: int, elites: Elites) -> Iterator[list[Proposal]]:
    """The same through public API only (and without elites or given shapes): chunk after chunk of `@given`."""
    del elites
    if start % BATCH:
        raise InternalError(f"a stream cannot start at index {start}, inside a batch of {BATCH}")
    size_distribution.register()
    pending: list[Proposal] = []
    index = start // CHUNK * CHUNK
    while True:
        for case in _chunk(targets, run_seed, index // CHUNK):
            if index >= start:
                pending.append(Proposal(index, case, ()))
            index += 1
            if len(pending) == BATCH:
                yield pending
                pending = []


def _chunk(targets: Sequence[Target], run_seed: int, number: int) -> list[Case]:
    """CHUNK cases, the targets in turn."""
    streams = [
        _examples(t, f"{run_seed}:{number}:{i}", -(-CHUNK // len(targets)), number * CHUNK)
        for i, t in enumerate(targets)
    ]
    return [streams[i % len(targets)][i // len(targets)] for i in range(CHUNK)]


def _examples(target: Target, run_seed: str, count: int, begin: int) -> list[Case]:
    found: list[Case] = []

    @seed(Random(run_seed).getrandbits(64))
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=False,
        backend=size_distribution.BACKEND,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(
        cases(
            target.contract,
            dtypes=target.dtypes,
            max_elements=target.max_elements,
            memory=target.memory,
            generation=target.generation,
        )
    )
    def collect(case: Case) -> None:
        found.append(scheduled(target, case, begin + len(found)))

    while len(found) < count:
        collect()
    return found[:count]


ENGINES: dict[str, Engine] = {"conjecture": conjecture_engine, "given": given_engine}
