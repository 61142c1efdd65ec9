"""The gate of episodes keeps statements, in every language, and drops mere questions."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from agentlab.data.datasets import load_dataset
from agentlab.flows.coordinator.memory_gate import states_a_fact

LANGUAGES = yaml.safe_load((Path(__file__).parents[3] / "data" / "gate_languages.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_statements_are_kept_and_questions_are_not(language):
    texts = LANGUAGES[language]
    assert [states_a_fact(text) for text in texts["tells"]] == [True, True]
    assert [states_a_fact(text) for text in texts["asks"]] == [False, False]


def test_statement_beside_a_question_is_kept():
    assert states_a_fact("I moved to Bergen. What is the weather like there?")
    assert not states_a_fact("What is the time at the moment?")
    assert not states_a_fact("")


def test_the_gate_is_right_about_most_turns_of_our_own_set():
    turns = [t for c in load_dataset(Path("datasets/memory")).conversations for t in c.turns]
    texts = [(any(m.op != "none" for m in t.expected_memory), t.user) for t in turns if t.expected_memory is not None]
    assert sum(states_a_fact(text) is keep for keep, text in texts) / len(texts) > 0.8
    stored = [states_a_fact(text) for keep, text in texts if keep]
    assert sum(stored) / len(stored) > 0.95, "a fact that is not stored is lost; an episode too many is not"
