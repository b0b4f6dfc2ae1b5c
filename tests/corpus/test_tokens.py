"""A case as one word: it comes back whole for every op, and a word that is none is refused in one sentence."""

import base64
import json
import re
import zlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.base import GENERATOR_VERSION
from kernel_assay.corpus.model.case import TOKEN, Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.storage.reading import case_of
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.oracles.catalog import contract_of, load_contracts


def generated(op, count=150):
    random = Random(f"tokens {op}")
    return [generate(Target(contract_of(op)), random)[0] for _ in range(count)]


def packed(data):
    return TOKEN + base64.urlsafe_b64encode(zlib.compress(json.dumps(data).encode())).decode().rstrip("=")


def refused(word):
    with pytest.raises(UsageError) as error:
        case_of(word)
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 200
    return text


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_every_case_comes_back(op):
    for case in generated(op):
        token = case.token
        again = case_of(token)
        assert again.id == case.id
        assert again.label == case.label
        assert list(again.tensors) == list(case.tensors)
        assert again.token == token
        assert token in repr(case)


def test_a_token_is_a_short_word_that_a_shell_takes_as_it_is():
    tokens = [c.token for op in load_contracts() for c in generated(op, 40)]
    assert all(re.fullmatch(r"case:[\w-]+", t, re.ASCII) for t in tokens)
    assert max(map(len, tokens)) < 600


def test_what_shrinking_makes_of_a_case_comes_back():
    x = TensorRecipe(
        shape=(2, 3),
        dtype="float8_e4m3fn",
        origin=(4, 5),
        layout="transposed",
        fill=Fill(distribution="normal", seed=1 << 60, scale=2.0**-60, params={"below": 7, "low": -0.0, "high": 1e300}),
        specials=(Special(value="-inf", place="tile_tail"),),
        pokes=((0, 1), (5, 0xFF)),
    )
    empty, scalar = TensorRecipe(shape=(0, 3), dtype="int64"), TensorRecipe(shape=(), dtype="uint8")
    for attrs in ({}, {"eps": 1e-5, "causal": True, "to": "Infinity", "n": 0}, {"scale": float("inf")}):
        case = Case(op="gemm", tensors={"z": x, "a": empty, "m": scalar}, attrs=attrs)
        again = case_of(case.token)
        assert (again.id, list(again.tensors)) == (case.id, ["z", "a", "m"])
        assert [type(v) for v in again.attrs.values()] == [type(v) for v in case.attrs.values()]


def test_the_version_of_the_generator_is_in_it():
    case = generated("silu", 1)[0]
    text = zlib.decompress(base64.urlsafe_b64decode(case.token.removeprefix(TOKEN) + "==="))
    assert json.loads(text)["generator_version"] == GENERATOR_VERSION


@pytest.mark.parametrize("cut", [1, 2, 3, 10, 60])
def test_a_word_that_was_cut_off_is_refused(cut):
    for case in generated("softmax", 10):
        assert "cut off" in refused(case.token[:-cut])


@pytest.mark.parametrize(
    "word",
    [
        "case:",
        "case:x",
        "case:====",
        "case:é",
        "case:\udc80",
        "case:" + "A" * 10_000,
        "case:not a token at all",
        "case:..",
    ],
)
def test_a_word_that_never_was_one_is_refused(word):
    assert word[:20] in refused(word) or repr(word[:40]) in refused(word)


@pytest.mark.parametrize(
    "data",
    [
        [],
        3,
        {},
        {"op": "silu"},
        {"op": "silu", "tensors": {"x": {"shape": [-1], "dtype": "float32"}}},
        {"op": "silu", "tensors": {"x": {"shape": [1], "dtype": "float32", "colour": "red"}}},
        {"op": "silu", "tensors": {}, "schema_version": 99},
    ],
)
def test_a_word_that_holds_something_else_is_refused(data):
    refused(packed(data))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=60), st.integers(0, 300), st.characters())
def test_no_spoilt_word_is_more_than_a_mistake(noise, at, letter):
    token = generated_once().token
    for word in (TOKEN + base64.urlsafe_b64encode(noise).decode(), token[:at] + letter + token[at + 1 :]):
        try:
            case_of(word)
        except UsageError as error:
            assert "\n" not in str(error)  # noqa: PT017  one that is still a case is as good


def generated_once():
    return generated("rope", 1)[0]


def test_a_case_of_another_generator_is_refused():
    case = generated("silu", 1)[0].but(generator_version=GENERATOR_VERSION + 1)
    assert "version" in refused(case.token)
