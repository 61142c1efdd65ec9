"""The labelling view, worked through its own parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentlab import notebook
from agentlab.core.errors import AgentlabError
from agentlab.evals.judge.judge_report import replies
from agentlab.evals.judge.labels import add_rows, read_labels
from agentlab.lab.run import Run
from support.rules_set import CONVERSATIONS, DOCUMENTS, lab, write_set


@pytest.fixture
def run(tmp_path: Path, own_home: Path) -> Run:
    folder = write_set(tmp_path / "rules", CONVERSATIONS, DOCUMENTS)
    with lab(folder, replies=["Between 410 and 450 grams."], flows=["rag_only"]) as opened:
        return opened.run_sync(out=tmp_path / "run")


def test_labels_are_stored_and_compared_with_a_measure(run, tmp_path):
    file = tmp_path / "labels.csv"
    waiting = {"conversation": "c1", "turn": 1, "flow": "rag_only", "epoch": 0, "question": "=1+1"}
    add_rows(file, [waiting])
    labels = notebook.label(run, file)
    assert "Who won?" in labels.caption.value, "what a judge waits for comes first"
    assert "rag_only" not in labels.caption.value, "who answered is not said"
    for _ in range(5):
        (labels.right if "How heavy" in labels.caption.value else labels.wrong).click()
    labels.skip.click()
    assert labels.right.disabled and "all done: 5 labels" in labels.caption.value
    again = notebook.label(run, file)
    assert len(again.labels) == 5 and not again.right.disabled, "what was skipped comes again"
    agreed = again.agreement("answer_f1")
    assert agreed.agreement == 1.0 and 2 <= agreed.n <= 3
    assert read_labels(file, replies(run)) == again.labels and len(file.read_text().splitlines()) == 6
    with pytest.raises(AgentlabError, match="no labelled turn has the measure 'fame'"):
        again.agreement("fame")
