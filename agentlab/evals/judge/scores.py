"""What a judge said of a run as scores of that run, in every table like those of any scorer."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from agentlab.core.names import IMPORTED
from agentlab.evals.judge.judging import Judged
from agentlab.evals.store.rows import SHARED, Graded, ScoreRow, encode_line
from agentlab.evals.store.run import StoredRun
from agentlab.evals.store.summary import summarise_scores


def score_rows(run: StoredRun, judged: Judged) -> list[ScoreRow]:
    """Of each flow on each turn that the rubric is about: 0 without a reply, unknown without a verdict."""
    judgements = {judgement.key: judgement for judgement in judged.judgements}
    rows = []
    for row in run.played():
        if (row.conversation, row.turn, row.epoch) not in judged.turns:
            continue
        value: float | None = None
        reason = "what it was made of is not known"
        if row.reply is None or not row.reply.text.strip():
            value, reason = 0.0, "no reply"
        elif judgement := judgements.get((row.flow, row.conversation, row.turn, row.epoch)):
            value = judgement.value(judged.rubric)
            said = " then ".join(dict.fromkeys(map(str, judgement.verdicts)))
            reason = said if value is not None else f"no verdict that can be read: {judgement.error or said}"
        of = {name: getattr(row, name) for name in SHARED}
        rows.append(ScoreRow(**of, metric=judged.rubric.metric, value=value, reason=reason))
    return rows


def add_to_run(run: StoredRun, judged: Judged, fresh: Sequence[ScoreRow]) -> None:
    """Put the judge's scores among the run's own, in place of those that it gave before: every table has them then."""
    metric = judged.rubric.metric
    said = {(row.flow, row.conversation, row.turn, row.epoch): Graded(row.value, row.reason) for row in fresh}
    rows = []
    for row in run.played():
        scores = {name: score for name, score in (row.scores or {}).items() if name != metric}
        if (mine := said.get((row.flow, row.conversation, row.turn, row.epoch))) is not None:
            scores[metric] = mine
        rows.append((row.scores, replace(row, scores=scores)))
    if run.result.mode == IMPORTED:
        # They stay in the order of their source, one a turn.
        run.folder.replace_lines("turns.jsonl", (encode_line(row) for _, row in rows))
    else:
        for before, row in rows:
            if row.scores != before:
                run.folder.append_turn(row)
    flows = {}
    for label, flow in run.result.flows.items():
        kept = {name: summary for name, summary in flow.scores.items() if name != metric}
        own = summarise_scores([row for row in fresh if row.flow == label])
        flows[label] = replace(flow, scores=kept | own)
    run.folder.write_json("run.json", {**run.header, "graders": run.header["graders"] | {metric: judged.sha256}})
    run.folder.write_json("summary.json", replace(run.result, flows=flows))
    run.forget()
