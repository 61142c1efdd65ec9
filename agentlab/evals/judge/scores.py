"""Adds the scores of a judge to those of its run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from agentlab.core.constants import IMPORTED, JUDGE_METRIC_PREFIX, LABEL_METRIC_PREFIX
from agentlab.evals.judge.judging import JudgeResult
from agentlab.evals.judge.labels import ReplyKey
from agentlab.evals.store.rows import MetricSummary, StoredScore, TurnRow, encode_line
from agentlab.evals.store.run import StoredRun
from agentlab.evals.store.summary import summarise_score


def judge_scores(run: StoredRun, result: JudgeResult) -> dict[ReplyKey, StoredScore]:
    """Return the score of each reply to a turn of the rubric: 0 if it is empty, unknown without a verdict."""
    judgements = {judgement.key: judgement for judgement in result.judgements}
    scores = {}
    for row in run.turn_rows():
        key = row.flow, *row.key
        if row.reply is None or not row.reply.text.strip():
            score = StoredScore(0.0, "no reply")
        elif judgement := judgements.get(key):
            value = judgement.value(result.rubric)
            verdicts = " then ".join(dict.fromkeys(map(str, judgement.verdicts)))
            no_verdict = f"no verdict that can be read: {judgement.error or verdicts}"
            score = StoredScore(value, no_verdict if value is None else verdicts)
        else:
            score = StoredScore(None, "the documents behind the reply are unknown")
        if row.key in result.turns:
            scores[key] = score
    return scores


def add_to_run(
    run: StoredRun,
    result: JudgeResult,
    fresh: Mapping[ReplyKey, StoredScore],
    labels: Mapping[ReplyKey, float] | None = None,
) -> None:
    """Write the judge's scores into the run, in place of its earlier ones; every table then shows them.

    `labels` replace the human labels that correct the judge, unless None.
    """
    metric = result.rubric.metric
    label = metric.replace(JUDGE_METRIC_PREFIX, LABEL_METRIC_PREFIX, 1)
    written = {metric: fresh}
    if labels is not None:
        written[label] = {reply: StoredScore(value, "human label") for reply, value in labels.items()}
    rows = []
    for row in run.turn_rows():
        scores = {name: score for name, score in (row.scores or {}).items() if name not in written}
        for name, values in written.items():
            if score := values.get((row.flow, *row.key)):
                scores[name] = score
        rows.append((row.scores, replace(row, scores=scores)))
    if run.result.mode == IMPORTED:
        # Rows of an import keep the order of their source, one per turn.
        run.folder.replace_lines("turns.jsonl", (encode_line(row) for _, row in rows))
    else:
        for before, row in rows:
            if row.scores != before:
                run.folder.append_turn(row)
    flows = {}
    for each, flow in run.result.flows.items():
        summaries = {name: summary for name, summary in flow.scores.items() if name not in written}
        summaries |= _summaries(written, [row for _, row in rows if row.flow == each])
        flows[each] = replace(flow, scores=summaries)
    run.folder.write_json("run.json", {**run.header, "graders": run.header["graders"] | {metric: result.sha256}})
    run.folder.write_json("summary.json", replace(run.result, flows=flows))
    run.forget()


def _summaries(names: Iterable[str], rows: Sequence[TurnRow]) -> dict[str, MetricSummary]:
    summaries = {}
    for name in names:
        own = [(row.conversation, score) for row in rows if (score := (row.scores or {}).get(name))]
        if own:
            values = [math.nan if score.value is None else score.value for _, score in own]
            summaries[name] = summarise_score(values, [conversation for conversation, _ in own])
    return summaries
