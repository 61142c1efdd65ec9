"""A judge for a finished run, from a script or a notebook.

standing = al.judge(run, "correct", labels="labels.csv")
print(standing)                       # what it says of each flow, corrected by what people say
standing.difference("tools", "rag_only").interval
standing.next_to_label(20)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentlab.core.errors import AgentlabError
from agentlab.core.messages import Reply
from agentlab.evals.judge import judging
from agentlab.evals.judge.judge_report import JudgeReport, replies
from agentlab.evals.judge.labels import read_labels
from agentlab.evals.judge.rubrics import load_rubric
from agentlab.evals.judge.scores import add_to_run, grades
from agentlab.lab.lab import Lab
from agentlab.lab.run import Run

DEFAULT_JUDGE_MODEL = "local/qwen2.5-coder-1.5b"


def judge(
    run: Run,
    rubric: str = "correct",
    *,
    model: Any = DEFAULT_JUDGE_MODEL,
    labels: str | Path | None = None,
    known_answers: int = 8,
    prepare: Callable[[list[str]], None] = lambda names: None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    **spec: Any,
) -> JudgeReport:
    """Grade a run's replies and add the scores to it, as `agentlab judge` does; `spec` are keys such as `mode`.

    `model` is a name or an object. `labels` is a CSV file, which need not be there yet. Raises RunError where the
    run is not complete or has nothing that the rubric is about, ConfigError and DatasetError for rubric and labels.
    """
    run.check_complete()
    asked = load_rubric(rubric)
    file = Path(labels) if labels is not None else None
    told = read_labels(file, replies(run)) if file is not None and file.exists() else {}
    with Lab(flows=[_judge], model=model, **{"name": "judge", "mode": "auto", **spec}) as lab:
        prepare(lab.bench.local_weights())
        judged = lab.loop.run_coroutine(
            judging.judge(lab.bench, run, asked, known_answer_results=known_answers, on_progress=on_progress)
        )
    fresh = grades(run, judged)
    standing = JudgeReport(run, judged, fresh, told)
    add_to_run(run, judged, fresh)
    standing.save(run)
    return standing


async def _judge(turn: Any, session: Any) -> Reply:
    raise AgentlabError("a judge is asked by its rubric")
