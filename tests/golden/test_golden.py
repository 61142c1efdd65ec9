"""Keys and prompts are those of the golden files; `make gate` holds rows, figures and pages likewise."""

from __future__ import annotations

import pytest

from support.golden import GOLDEN, RECORDINGS, is_near, keys_worked_out, local_bodies, prompts, recorded_keys

FILES = sorted(RECORDINGS.glob("*.jsonl"))


def golden(name: str) -> list[str]:
    return (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recorded_call_has_the_same_key_today(file):
    worked_out = keys_worked_out(file)
    assert golden(f"keys/{file.stem}") == [*recorded_keys(file)]
    assert {line: worked_out[line] for line in worked_out} == {line: line for line in worked_out}


def test_prompts_and_tool_texts_are_the_same_to_the_letter():
    assert golden("prompts") == [*prompts()]


def test_embedded_models_are_sent_the_same_bytes():
    assert golden("local") == [*local_bodies()]


def test_numbers_may_differ_by_a_processor_and_words_by_nothing():
    assert is_near("better (0.171 -> 0.307)", "better (0.1711 -> 0.3069)")
    assert not is_near("better (0.171 -> 0.307)", "worse (0.171 -> 0.307)")
    assert not is_near("better (0.171 -> 0.307)", "better (0.171 -> 0.317)")
    assert not is_near("43 turns", "44 turns")
