"""What somebody asks of a benchmark and cannot have is one sentence, whatever the benchmark."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
PROGRAMS = sorted(p.name for p in BENCH.iterdir() if p.is_file() and not p.suffix and p.name[0] not in "_.")
WRONG = {"natural": ("x", "-1", "1.5"), "positive": ("x", "0", "-1"), "amount": ("x", "-1", "inf", "nan")}


class ReadyError(Exception):
    """The arguments are all right, and the work would begin."""


def loaded(name):
    loader = importlib.machinery.SourceFileLoader(f"bench_{name}", str(BENCH / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module  # for its dataclasses
    loader.exec_module(module)
    return module


@pytest.fixture
def bench(monkeypatch):
    """Call a benchmark's main with some arguments, up to where they have been read."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    shared = importlib.import_module("_bench")
    seen = []

    def parse(parser, *_):
        seen.append(parser)
        parse_known(parser, sys.argv[1:])
        raise ReadyError

    parse_known = shared.Parser.parse_args
    monkeypatch.setattr(shared.Parser, "parse_args", parse)

    def call(module, *words):
        monkeypatch.setattr(sys, "argv", [module.__name__, *words])
        module.main()

    call.parsers = seen
    return call


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_cannot_be_had_is_refused_in_one_sentence(bench, capsys, name):
    try:
        module = loaded(name)
    except ModuleNotFoundError as lacking:
        pytest.skip(str(lacking))
    with pytest.raises(ReadyError):
        bench(module)
    options = [(a.option_strings[0], a.type) for a in bench.parsers[0]._actions if a.option_strings and a.type]
    assert {kind.__name__ for _, kind in options} <= {*WRONG, "Path"}
    wrong = [(option, text) for option, kind in options for text in WRONG.get(kind.__name__, ())]
    for words in [("--no-such-option",), *wrong]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            bench(module, *words)
        assert end.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert words[0] in line
