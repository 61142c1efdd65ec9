"""Help fits the terminal, says all that was written, and its commands can still be pasted."""

from __future__ import annotations

import shlex
from itertools import groupby

import pytest

from agentlab.cli.help_text import fitted
from agentlab.cli.parser import HELP, main

PAGES = sorted(HELP.glob("*.txt"))
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def words(text: str) -> list[str]:
    """Without what marks a line that goes on, and a comment."""
    return [word for word in text.split() if word not in ("\\", "#")]


def commands(text: str) -> list[list[str]]:
    """What a shell makes of each block of examples."""
    blocks = [
        "\n".join(lines) for indented, lines in groupby(text.splitlines(), lambda line: line[:1] == " ") if indented
    ]
    return [shlex.split(block, comments=True) for block in blocks if block.startswith("  agentlab ")]


@every_page
@pytest.mark.parametrize("width", [60, 78, 118, 200])
def test_a_page_of_any_width_says_the_same_and_no_line_is_too_long(page, width):
    written = page.read_text(encoding="utf-8")
    lines = [*fitted(written, width)]
    assert words("\n".join(lines)) == words(written)
    assert [line for line in lines if len(line) > width and '"' not in line and len(words(line)) > 2] == []


@every_page
@pytest.mark.parametrize("width", [40, 60, 78, 118, 200])
def test_the_examples_of_a_page_of_any_width_are_the_same_to_a_shell(page, width):
    written = page.read_text(encoding="utf-8")
    assert commands("\n".join(fitted(written, width)).replace("\\\n", "")) == commands(written)
    said = [line.partition(" #")[0].strip() for line in written.splitlines() if line.startswith("  agentlab ")]
    assert [line for line in said if "  " in line] == [], "a comment begins with #"


def test_what_has_room_stays_as_it_was_written():
    text = "examples:\n  agentlab run --limit 2      # two of each\n  agentlab run\n\nAll of it\nin one line."
    assert [*fitted(text, 80)] == [*text.splitlines()[:4], "All of it in one line."]


def test_a_comment_stays_one_where_it_needs_two_lines_and_a_list_keeps_its_columns():
    text = "  agentlab run      # two words and two more\n  name  what it means, at length"
    assert [*fitted(text, 26)] == [
        "  agentlab run",
        "      # two words and two",
        "      # more",
        "  name  what it means, at",
        "        length",
    ]


@pytest.mark.parametrize("command", ["gate", "import", "fork"])
def test_help_in_a_terminal_of_80_columns(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
