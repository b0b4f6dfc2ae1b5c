"""A terminal adds width and colours, and nothing else; a file gets the same text everywhere."""

import io
import re
import sys

import pytest

from kernel_assay.reports.plain import terminal
from kernel_assay.reports.plain.terminal import say, table

HEAD = ("subject", "count", "what")
ROWS = [("softmax/mine", "1,200", "a sentence of some length that goes on and on " * 3), ("b", "-", "two\nlines")]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def screen(monkeypatch):
    """A terminal of so many columns; what is printed on it."""

    def made(columns):
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "stdout", shown := Terminal())
        return shown

    return made


def words(text):
    return sorted(text.split())


@pytest.mark.parametrize("columns", [80, 100, 160])
def test_a_table_is_no_wider_than_the_terminal_and_loses_nothing(screen, columns):
    screen(columns)
    lines = table(HEAD, ROWS).splitlines()
    assert max(map(len, lines)) <= columns
    assert max(map(len, lines)) > columns - 12, "it takes the room there is"
    assert words("\n".join(lines)) == words("\n".join(" ".join(row) for row in [HEAD, *ROWS]))


def test_a_sentence_for_which_there_is_no_room_goes_below(screen):
    screen(80)
    row = ("softmax/" + "x" * 24, "planted " * 4, "a sentence of some length that goes on " * 4)
    lines = table(("subject", "state", "what"), [row, (*row[:2], "")]).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.strip() for line in lines][2:4] == [f"{row[0]}  {row[1].strip()}", row[2][:74].strip()]
    assert words("\n".join(lines)) == words(" ".join(["subject state what", *row, *row[:2]]))


def test_without_a_terminal_the_width_does_not_depend_on_where_one_is(monkeypatch):
    shown = set()
    for columns in ("40", "80", "300"):
        monkeypatch.setenv("COLUMNS", columns)
        shown.add(table(HEAD, ROWS))
    (one,) = shown
    assert max(map(len, one.splitlines())) <= terminal.WIDTH


def test_what_fits_is_one_line_a_row_with_numbers_to_the_right():
    assert table(("name", "n"), [("a  b", "1"), ("c", "1,000")]) == "  name  n\n  a  b      1\n  c     1,000"


TEXT = f"""\
1. silu/mine: mismatch (rho), new
   {"wrong " * 30}
   smallest  {"x=1 " * 40}
   replay    kassay replay {"1234 " * 30}
warning (doubtful, but no finding): silu/mine: two threads
findings: none"""


def test_a_terminal_gets_colours_and_lines_that_fit(screen):
    shown = screen(80)
    say(TEXT)
    assert "\x1b[" in shown.getvalue()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue())
    assert words(plain) == words(TEXT)
    assert [line for line in plain.splitlines() if len(line) > 80 and "kassay " not in line] == []
    assert f"\n{' ' * 13}x=1 " in plain, "what goes on below stands under its text"


def test_nobody_gets_colours_who_does_not_want_them(screen, monkeypatch, capsys):
    shown = screen(1000)
    monkeypatch.setenv("NO_COLOR", "1")
    say(TEXT)
    assert shown.getvalue() == TEXT + "\n"
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    monkeypatch.delenv("NO_COLOR")
    capsys.readouterr()


def test_a_file_gets_the_text_as_it_is(capsys):
    say(TEXT)
    assert capsys.readouterr().out == TEXT + "\n"
