"""The elite table forgets what no later batch can see, and nothing else."""

from random import Random

import pytest

from kernel_assay.fuzz.generation.elites import Elite, Elites, seen_by


def naive(admitted, op, batch, random, most_lead):
    """The rule, on all admissions."""
    visible = [e for e in admitted if e.op == op and e.batch <= seen_by(batch, most_lead)]
    if not visible:
        return None
    cell = visible[int(random.random() * len(visible))].cell
    return next(e for e in reversed(visible) if e.cell == cell)


@pytest.mark.parametrize("most_lead", [2, 64])
def test_what_is_picked_is_what_all_admissions_would_give(most_lead):
    random, elites, admitted = Random(1), Elites((), most_lead), []
    for batch in range(400):
        for turn in range(3):
            op, seed = random.choice(("a", "b")), f"{batch}:{turn}"
            wanted = naive(admitted, op, batch, Random(seed), most_lead)
            assert elites.pick(op, batch, Random(seed)) == wanted
        for index in range(4):
            op, rho = random.choice(("a", "b")), random.random() * (batch + 1) / 400
            made = Elite(f"{op}|{random.randrange(6)}", op, rho, batch, index, (batch, index))
            if elites.offer(made) is not None:
                admitted.append(made)
    assert len(admitted) > 60, "nothing was forgotten"
    assert sum(map(len, elites._recent.values())) < len(admitted) / 2


@pytest.mark.parametrize("begin", [0, 3, 17, 60, 199])
def test_a_journal_that_is_ahead_gives_what_there_was(begin):
    """After kill -9 it may be; and a case of long ago is drawn with all of it (replay RUN:INDEX)."""
    random, elites, admitted, lines = Random(2), Elites(), [], []
    for batch in range(200):
        made = [
            Elite(f"a|{random.randrange(6)}", "a", random.random() * (batch + 1) / 200, batch, n, (n,))
            for n in range(4)
        ]
        lines += [
            line for elite in made if (line := elites.offer(elite)) is not None and admitted.append(elite) is None
        ]
    resumed, member = Elites(lines), Elites()
    member.learn(lines)
    for batch in range(begin, 210):
        wanted = naive(admitted, "a", batch, Random(batch), 64)
        assert resumed.pick("a", batch, Random(batch)) == member.pick("a", batch, Random(batch)) == wanted
