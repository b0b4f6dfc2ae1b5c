"""Docstrings begin with what the thing does, and folders stay small enough to be read."""

import ast
import re

import pytest
from tree import PACKAGES, ROOT, is_subject

WEAK = (
    " of in at on by with without from to for within as if after before during beside between among behind "
    " below above under over upon until like than per when where what who whom which whose why how it its "
    " they their he she this these those that there here nothing nobody everything everyone both his her "
    " our ours us we you your "
)
"""Prepositions, pronouns and question words; `Whether` is fine, for predicates."""
MOST_WEAK = 0.03
MOST_MODULES = 15


def docstrings(text):
    found = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, found)]
    return [doc for node in nodes if (doc := ast.get_docstring(node))]


def is_weak(doc):
    word = re.match(r"\W*(\w+)", doc)
    return word is not None and f" {word[1].lower()} " in WEAK


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_begin_with_what_the_thing_does(package):
    docs = [doc for path in sorted((ROOT / package).rglob("*.py")) for doc in docstrings(path.read_text("utf-8"))]
    weak = [doc.splitlines()[0] for doc in docs if is_weak(doc)]
    assert len(docs) > 50
    assert len(weak) <= MOST_WEAK * len(docs), weak


def test_a_weak_beginning_is_noticed():
    text = '"""Of the case."""\n\n\ndef f():\n    """Whether it is so."""\n\n\nclass A:\n    """There."""\n'
    assert [is_weak(doc) for doc in docstrings(text)] == [True, False, True]


def test_no_folder_has_more_modules_than_a_person_reads():
    """Folders of ops are lists, and so are contracts."""
    sizes = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if path.name != "__init__.py" and not is_subject(path) and "templates" not in path.parts:
                sizes[path.parent] = sizes.get(path.parent, 0) + 1
    assert len(sizes) > 20
    listed = ROOT / "oracles" / "contracts"
    assert {str(folder): n for folder, n in sizes.items() if n > MOST_MODULES and folder != listed} == {}
