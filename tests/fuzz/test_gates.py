"""The simplest rule that fits what the neighbours did, and nothing when none fits."""

import pytest

from fuzz.gates import explain


def fails(sizes, rule):
    return {n: rule(n) for n in sizes}


NEAR = range(1, 70)


@pytest.mark.parametrize(
    ("sizes", "rule", "text"),
    [
        (NEAR, lambda k: k >= 33, "fails only if k >= 33"),
        (NEAR, lambda k: k == 17, "fails only if k == 17"),
        (NEAR, lambda k: k % 32 != 0, "fails only if k % 32 != 0"),
        (NEAR, lambda k: k % 32 != 0 and k > 32, "fails only if k % 32 != 0 and k >= 33"),
        (NEAR, lambda k: k % 2 == 1, "fails only if k % 2 != 0"),
        (NEAR, lambda k: k % 8 == 3, "fails only if k % 8 == 3"),
        (NEAR, lambda k: k % 8 == 3 and k > 8, "fails only if k % 8 == 3 and k >= 11"),
        (NEAR, lambda k: 5 <= k <= 9, "fails only if 5 <= k <= 9"),
        (NEAR, lambda k: True, ""),
        (NEAR, lambda k: False, ""),
        (NEAR, lambda k: k in {2, 3, 5, 7, 11, 13, 17, 61}, ""),
        ((4, 5), lambda k: k == 5, ""),
        ((), lambda k: True, ""),
    ],
)
def test_explain(sizes, rule, text):
    assert explain("k", fails(sizes, rule)) == text


def test_a_rule_speaks_of_its_dimension():
    assert explain("cols", fails(NEAR, lambda n: n > 4)).endswith("cols >= 5")
