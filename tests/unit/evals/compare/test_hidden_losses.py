"""A turn that no rule decides, and a conversation that nobody answered, may hide a loss."""

from __future__ import annotations

import json

import pytest

import agentlab as al
from agentlab.evals.compare.baselines import mean_over_epochs, write_baseline
from agentlab.evals.compare.gate import gate
from agentlab.evals.compare.headline import recommend

DEAR, CHEAP = "dear", "cheap"
WRONG = "a split of one ripe banana with some cherries and cream"


def imported(folder, answers, *, name="run", turns=(), **options):
    """Import answers of systems, a list of texts by conversation each; further conversations have `turns`."""
    folder.mkdir(exist_ok=True)
    count = len(next(iter(answers.values())))
    rows = [{"id": f"c{n}", "turns": [{"user": f"{n}", "reference_answers": ["lawyer"]}]} for n in range(count)]
    rows += [{"id": f"long{n}", "turns": [{"user": f"{n} {t}"} for t in range(size)]} for n, size in enumerate(turns)]
    (folder / "conversations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    lines = [
        {"system": system, "conversation": f"c{n}", "turn": 0, "answer": text, "cost_usd": 1 + (system == DEAR)}
        for system, texts in answers.items()
        for n, text in enumerate(texts)
    ]
    (folder / "predictions.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    chosen = {"scorers": ["correctness"], "primary": ["answer_correctness", "cost_usd"]} | options
    return al.import_predictions(folder, folder / name, **chosen)


@pytest.mark.parametrize(("undecided", "ships"), [(0, True), (1, True), (3, False), (12, False)])
def test_a_flow_that_hides_its_losses_in_undecided_replies_is_not_shipped(tmp_path, undecided, ships):
    answers = {DEAR: ["lawyer"] * 60, CHEAP: ["banana"] * undecided + ["lawyer"] * (60 - undecided)}
    run = imported(tmp_path / "set", answers)
    verdict, comparison = recommend(run)
    paired = comparison.pairs[0]["answer_correctness"].paired
    assert (paired.left_out, len(paired.keys)) == (undecided, 60 - undecided)
    assert (verdict.kind, verdict.flow) == (("ship", CHEAP) if ships else ("cheapest", CHEAP))


def test_an_undecided_reply_of_the_other_flow_hides_no_loss_of_a_right_one(tmp_path):
    answers = {DEAR: ["banana"] * 12 + ["lawyer"] * 48, CHEAP: ["lawyer"] * 60}
    assert recommend(imported(tmp_path / "right", answers))[0].flow == CHEAP
    wrong = answers | {CHEAP: [WRONG] * 12 + ["lawyer"] * 48}
    verdict, comparison = recommend(imported(tmp_path / "wrong", wrong))
    assert verdict.kind != "ship" and comparison.pairs[0]["answer_correctness"].paired.left_out == 12


def test_undecided_replies_of_both_flows_hide_nothing(tmp_path):
    answers = ["banana"] * 12 + ["lawyer"] * 48
    verdict, _ = recommend(imported(tmp_path / "set", {DEAR: answers, CHEAP: answers}))
    assert (verdict.kind, verdict.flow) == ("ship", CHEAP)


def test_unanswered_conversations_of_the_data_set_count_with_their_length(tmp_path):
    answers = {DEAR: ["lawyer"] * 60, CHEAP: ["lawyer"] * 60}
    assert recommend(imported(tmp_path / "one", answers, turns=[1]))[0].kind == "ship"
    assert recommend(imported(tmp_path / "long", answers, turns=[1, 40]))[0].kind == "cheapest"


def test_a_turn_with_an_undecided_epoch_is_undecided():
    rows = {("c", 0, epoch): {"llm_calls": 1.0, "answer_correctness": 1.0} for epoch in range(3)}
    assert mean_over_epochs({"flow": rows}) == {"flow": {("c", 0, 0): {"llm_calls": 1.0, "answer_correctness": 1.0}}}
    del rows["c", 0, 1]["answer_correctness"]
    assert mean_over_epochs({"flow": rows}) == {"flow": {("c", 0, 0): {"llm_calls": 1.0}}}


def test_a_gate_counts_an_undecided_reply_as_the_largest_loss(tmp_path):
    write_baseline(imported(tmp_path / "set", {CHEAP: ["lawyer"] * 60}), base := tmp_path / "base.jsonl")
    bounds = {}
    for reply in ("banana", WRONG):
        run = imported(tmp_path / "set", {CHEAP: [reply] + ["lawyer"] * 59}, name=reply[:6])
        (verdict,) = (j for j in gate(run, base).measure_verdicts if j.measure.name == "answer_correctness")
        bounds[reply] = verdict.upper_bound
    assert bounds["banana"] == pytest.approx(bounds[WRONG])
