"""Help fits 72 columns, its examples can be pasted, and a removed command names its successor."""

from __future__ import annotations

import importlib
import re
import shlex

import pytest

from agentlab.cli.options import ARGUMENTS, COMMANDS, GROUPS, NARROWED, REMOVED
from agentlab.cli.parser import HELP, MAX_WIDTH, main, parse

PAGES = sorted(HELP.glob("*.txt"))
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code
    return capsys.readouterr().out


def test_twenty_commands_each_in_one_group_and_with_one_page():
    grouped = [name for names in GROUPS.values() for name in names.split()]
    assert len(grouped) == 20 and sorted(grouped) == sorted(COMMANDS) == [page.stem for page in PAGES]
    used = {f"{name} {argument}" for name, (_, arguments) in COMMANDS.items() for argument in arguments.split()}
    assert {each.partition(" ")[2] for each in used} == set(ARGUMENTS) and set(NARROWED) <= used
    for handler, _ in COMMANDS.values():
        module, _, function = handler.partition(":")
        assert callable(getattr(importlib.import_module(f"agentlab.cli.{module}"), function))


def test_the_overview_has_a_line_for_each_command(capsys):
    screen = printed(capsys, "--help")
    assert screen == printed(capsys)
    assert max(map(len, screen.splitlines())) <= MAX_WIDTH
    for page in PAGES:
        assert f"\n  {page.stem:11}{page.read_text(encoding='utf-8').splitlines()[0]}\n" in screen


@every_page
def test_a_page_is_72_columns_wide_and_has_examples(page, capsys):
    screen = printed(capsys, page.stem, "--help")
    assert max(map(len, screen.splitlines())) <= MAX_WIDTH
    line, _, rest = page.read_text(encoding="utf-8").partition("\n\n")
    assert "\n" not in line and rest.strip() in screen, "as it was written"
    assert rest.startswith(f"examples:\n  agentlab {page.stem}")


@every_page
def test_the_examples_are_what_the_parser_takes(page):
    written = page.read_text(encoding="utf-8")
    assert "\t" not in written
    examples = [line for line in re.sub(r"\\\n *", "", written).splitlines() if line.startswith("  agentlab ")]
    for example in examples:
        written = example.partition(" #")[0].strip()
        assert "  " not in written, "a comment begins with #"
        for command in re.split(" && | > .*", written):
            if command.startswith("agentlab "):
                assert parse(shlex.split(command)[1:]).handler


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_command_names_the_one_that_does_it_now(name, capsys):
    assert main([name, "results/a"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error.startswith(f"agentlab: `agentlab {name}` is now `agentlab ")
    assert REMOVED[name].split()[0].rstrip(",") in COMMANDS


def test_an_unknown_command_names_the_nearest(capsys):
    assert main(["shwo"]) == 1
    assert "unknown command 'shwo'. Did you mean 'show'?" in capsys.readouterr().err
