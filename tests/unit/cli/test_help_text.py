"""Help fits a terminal of 80 columns, and its examples can be pasted."""

from __future__ import annotations

import re
import shlex

import pytest

from agentlab.cli.parser import HELP, main, make_parser

PAGES = sorted(HELP.glob("*.txt"))
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@every_page
def test_help_in_a_terminal_of_80_columns(page, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([page.stem, "--help"])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert page.read_text(encoding="utf-8").partition("\n\n")[2].strip() in shown, "as it was written"


@every_page
def test_the_examples_are_what_the_parser_takes(page):
    written = page.read_text(encoding="utf-8")
    assert "\t" not in written
    examples = [line for line in re.sub(r"\\\n *", "", written).splitlines() if line.startswith("  agentlab ")]
    assert examples
    for example in examples:
        written = example.partition(" #")[0].strip()
        assert "  " not in written, "a comment begins with #"
        for command in re.split(" && | > .*", written):
            if command.startswith("agentlab "):
                assert make_parser().parse_args(shlex.split(command)[1:]).command
