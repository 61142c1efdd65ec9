"""Help fits the terminal, says all that was written, and its commands can still be pasted."""

from __future__ import annotations

import re
import shlex

import pytest

from agentlab.cli.help_text import fitted
from agentlab.cli.parser import HELP, main

PAGES = sorted(HELP.glob("*.txt"))


def words(text: str) -> list[str]:
    """Without what marks a line that goes on, and a comment that stands below."""
    return [word for word in text.split() if word not in ("\\", "#")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.parametrize("width", [60, 78, 118, 200])
def test_a_page_of_any_width_says_the_same_and_no_line_is_too_long(page, width):
    written = page.read_text(encoding="utf-8")
    lines = [*fitted(written, width)]
    assert words("\n".join(lines)) == words(written)
    assert [line for line in lines if len(line) > width and '"' not in line and len(words(line)) > 2] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_command_that_goes_on_below_is_the_same_to_a_shell(page):
    written = page.read_text(encoding="utf-8")
    narrow = "\n".join(fitted(written, 60)).replace("\\\n", " ")
    for line in written.splitlines():
        if line.startswith("  agentlab "):
            command = shlex.split(re.split(r" {2,}", line.strip())[0])
            assert command in [shlex.split(said, comments=True) for said in narrow.splitlines() if "  agentlab" in said]


def test_what_has_room_stays_as_it_was_written():
    text = "examples:\n  agentlab run --limit 2      # two of each\n  agentlab run\n\nAll of it\nin one line."
    assert [*fitted(text, 80)] == [*text.splitlines()[:4], "All of it in one line."]


@pytest.mark.parametrize("command", ["gate", "import", "fork"])
def test_help_in_a_terminal_of_80_columns(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
