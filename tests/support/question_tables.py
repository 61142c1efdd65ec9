"""Conversations and columns of a table of questions, in a form for comparison."""

from __future__ import annotations

from agentlab.data.questions import Questions


def turns_of(made: Questions) -> list[list[tuple[str, list[str]]]]:
    """Questions and answers by conversation."""
    return [[(turn.user, turn.reference_answers) for turn in each.turns] for each in made.conversations]


def columns(made: Questions) -> dict[str, str]:
    pairs = (line.split(" <- ") for line in made.lines if " <- " in line)
    return {role.strip(): names.split(";")[0] for role, names in pairs}
