"""Lets a judge model grade a finished run.

report = al.judge(run, "correct", labels="labels.csv")
print(report)                         # estimates for each flow, corrected by human labels
report.difference("tools", "rag_only").interval
report.next_to_label(20)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentlab.core.errors import AgentlabError
from agentlab.core.messages import Reply
from agentlab.evals.judge import judging
from agentlab.evals.judge.judge_report import JudgeReport, replies
from agentlab.evals.judge.judging import JudgeResult, add_to_run, judge_scores
from agentlab.evals.judge.labels import read_labels
from agentlab.evals.judge.rubrics import Rubric, load_rubric
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
    """Grade the replies of a run with a judge model, add the scores to the run, and return a report.

    `rubric` is a shipped one (`correct`, `grounded`, ...) or a file. `model` is a name or an object. `labels` is a CSV
    file of human labels, which may not exist yet. `known_answers` turns are also judged with right and wrong answers.
    `spec` are keys of a spec, such as `mode`.

    With labels the report gives estimates corrected for the judge's errors (prediction-powered inference, Angelopoulos
    et al. 2023). Raises RunError for an incomplete run or one without replies to judge, ConfigError for the rubric,
    DatasetError for the labels.
    """
    run.check_complete()
    loaded_rubric = load_rubric(rubric)
    file = Path(labels) if labels is not None else None
    human_labels = read_labels(file, replies(run)) if file is not None and file.exists() else {}
    options = {"known_answer_count": known_answers, "on_progress": on_progress}
    judgements = _judged(run, loaded_rubric, model, prepare, spec, options)
    scores = judge_scores(run, judgements)
    report = JudgeReport(run, judgements, scores, human_labels)
    add_to_run(run, judgements, scores, report.primary_labels if human_labels else None)
    report.save(run)
    return report


def judge_undecided(
    run: Run,
    rubric: str = "correct",
    *,
    model: Any = DEFAULT_JUDGE_MODEL,
    known_answers: int = 8,
    prepare: Callable[[list[str]], None] = lambda names: None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    **spec: Any,
) -> JudgeResult:
    """Grade only the replies that `answer_correctness` leaves undecided, and add the scores to the run, apart.

    They are in the measure `judge_correct_undecided`, of which no primary measure is made. The arguments are those of
    `judge`. Raises RunError if no reply is undecided.
    """
    run.check_complete()
    options = {"known_answer_count": known_answers, "undecided": True, "on_progress": on_progress}
    judgements = _judged(run, load_rubric(rubric), model, prepare, spec, options)
    add_to_run(run, judgements, judge_scores(run, judgements))
    return judgements


def _judged(
    run: Run,
    rubric: Rubric,
    model: Any,
    prepare: Callable[[list[str]], None],
    spec: Mapping[str, Any],
    options: Mapping[str, Any],
) -> JudgeResult:
    with Lab(flows=[_judge], model=model, **{"name": "judge", "mode": "auto", **spec}) as lab:
        prepare(lab.bench.local_weights())
        return lab.loop.run_coroutine(judging.judge(lab.bench, run, rubric, **options))


async def _judge(turn: Any, session: Any) -> Reply:
    raise AgentlabError("the judge has no turns; `judging.judge` calls it with a rubric")
