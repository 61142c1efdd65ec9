"""The page of losses outside English shows the existing losses and no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import agentlab as al
from agentlab.core.messages import Request
from agentlab.data.datasets import load_dataset
from agentlab.models.scripted import Scripted
from support.paths import OWN, ROOT

CONVERSATIONS = load_dataset(OWN / "worldwide").conversations
ENGLISH = {
    turn.user: turn.reference_answers[0]
    for conversation in CONVERSATIONS
    for turn in conversation.turns
    if conversation.metadata["language"] == "en" and turn.reference_answers
}
IN_ANY_LANGUAGE = {turn.user: turn.reference_answers[:1] for each in CONVERSATIONS for turn in each.turns}


def page_of(folder: Path, answers: dict[str, str]) -> str:
    """Return the page of a run in which the model has these answers, and `42 of them` for everything else."""

    def reply(request: Request) -> str:
        question = request.messages[-1].text.rpartition("Question: ")[2]
        return answers.get(question, "42 of them")

    spec = {"datasets": [str(OWN / "worldwide")], "embedder": "hashing/hashing-64", "concurrency": 1}
    with al.Lab(model=Scripted([reply], loop=True), flows=["rag_only", "tools"], **spec) as lab:
        lab.run_sync(out=folder)
    command = [sys.executable, "evals/worldwide.py", str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def cells_of(page: str, start: str) -> list[list[str]]:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    return [row for row in rows if row[0].strip("`").startswith(start)]


@pytest.fixture(scope="module")
def english_only(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of(tmp_path_factory.mktemp("worldwide") / "run", ENGLISH)


def test_a_model_that_answers_english_only_loses_all_right_answers_elsewhere(english_only):
    rows = cells_of(english_only, "answer_correctness")
    for _, flow, turns, english, elsewhere, difference, p in rows[:2]:
        assert flow in ("`rag_only`", "`tools`") and int(turns) > 20
        assert float(english) > 0.9 and float(elsewhere) < 0.2 and float(p) < 0.05
        assert float(difference.split()[0]) < -0.8
    languages = [row[1] for row in rows if len(row) == 4]
    assert languages == ["German", "Spanish", "Russian", "Arabic", "Chinese", "Japanese"]


def test_a_model_that_answers_every_language_loses_nothing(tmp_path):
    page = page_of(tmp_path / "run", {user: answers[0] for user, answers in IN_ANY_LANGUAGE.items() if answers})
    for _, _, _, english, elsewhere, difference, _ in cells_of(page, "answer_correctness")[:2]:
        assert english == elsewhere and difference.startswith("+0 ")


@pytest.mark.parametrize("measure", ["refusal_accuracy", "answered", "groundedness", "answer_correctness of answers"])
def test_a_measure_that_is_not_validated_outside_english_has_no_p_value(english_only, measure):
    rows = cells_of(english_only, measure)
    assert rows and all("decides nothing" in row[0] and row[6] == "-" for row in rows)
