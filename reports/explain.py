"""Explanations of verdicts: what each means, how it is decided, what to do; one text each in reports/verdicts/.

Every kind has a text, and so has a rule that is worth one of its own; any other rule is explained by the kind that it
decides. The second paragraph of a text is its short form, the third names the rules of a kind or the kinds of a rule:

    # out_of_bounds                   # rho
    The kernel wrote bytes ...        An element is farther ...
    rules: guard                      kinds: mismatch
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.kinds import Kind


def topics() -> tuple[str, ...]:
    """Topics that can be explained: the kinds in the order of their definition, then the rules by name."""
    return (*(kind.value for kind in Kind), *sorted(_rules()))


def explain(topic: str) -> str:
    """The text on a kind or a rule, in Markdown; `law:NAME` is the rule `law`. Raises UsageError for anything else."""
    return _texts()[_home(topic)]


def short(topic: str) -> str:
    """Explain a topic in one sentence. Raises UsageError like explain."""
    return " ".join(_paragraph(explain(topic), 1).split())


def sections(topic: str) -> dict[str, str]:
    """A text's sections by their headings. Raises UsageError like explain."""
    _, *parts = explain(topic).split("\n## ")
    pairs = (part.partition("\n") for part in parts)
    return {heading: body.strip() for heading, _, body in pairs}


def related(topic: str) -> tuple[str, ...]:
    """The rules that decide a kind, or the kinds that a rule can decide. Raises UsageError like explain."""
    name = _name(topic)
    home = _home(topic)
    return _named(_texts()[home]) if name == home else (home,)


@cache
def _texts() -> dict[str, str]:
    """All texts by name."""
    folder = files("kernel_assay.reports") / "verdicts"
    found = (file for file in folder.iterdir() if file.name.endswith(".md"))
    return {file.name.removesuffix(".md"): file.read_text("utf-8") for file in found}


@cache
def _rules() -> dict[str, str]:
    """Rule -> name of the text that explains it."""
    texts = _texts()
    named = {rule: kind.value for kind in Kind for rule in _named(texts[kind.value])}
    return {rule: rule if rule in texts else kind for rule, kind in named.items()}


def _named(text: str) -> tuple[str, ...]:
    """Names in the third paragraph."""
    names = _paragraph(text, 2).partition(": ")[2]
    return () if names == "none" else tuple(names.split(", "))


def _paragraph(text: str, number: int) -> str:
    return text.split("\n\n", number + 1)[number]


def _name(topic: str) -> str:
    """The topic as a person may write it: any case, hyphens, and the law's own name behind a colon."""
    name = topic.strip().lower().replace("-", "_")
    return "law" if name.startswith("law:") else name


def _home(topic: str) -> str:
    """Name of the text that explains a topic."""
    name = _name(topic)
    home = name if name in _texts() else _rules().get(name)
    if home is None:
        near = get_close_matches(name, topics())
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(topics())}"
        raise UsageError(f"{topic!r} is neither a verdict nor a rule; {hint}")
    return home
