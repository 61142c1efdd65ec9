"""A cost passes only below a declared stop: from the spec, or from the settings of a flow."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentlab as al
from agentlab.cli.parser import main
from agentlab.evals.compare.gate import evaluate_measures
from agentlab.models.scripted import call
from support.small_runs import Answering, play, write_set


def verdict(before, after, stop=None, margin=0.25):
    rows = [{(f"c{n:03}", 0, 0): {"cost_usd": value} for n, value in enumerate(side)} for side in (before, after)]
    stops = {} if stop is None else {"flow": {"cost_usd": stop}}
    (result,), _ = evaluate_measures(
        {"flow": rows[0]}, {"flow": rows[1]}, {"cost_usd": margin}, 0.05, ["cost_usd"], stops=stops
    )
    return result


@pytest.mark.parametrize(
    ("stop", "margin", "least"),
    [(2, 0.05, 59), (2, 0.25, 11), (3, 0.05, 119), (5, 0.1, 119), (10, 0.05, 538), (10, 0.25, 107), (10, 0.5, 53)],
)
def test_least_number_of_conversations_is_printed_and_true(stop, margin, least):
    for size in (least - 1, least):
        after = np.ones(size)
        after[0] = 1 - 1e-6
        outcome = verdict(np.ones(size), after, stop, margin)
        assert (outcome.kind == "pass") == (size == least)
        assert (f"with fewer than {least} conversations (the stop is {stop:.1f} x" in outcome.why) == (size < least)


@given(
    before=st.lists(st.floats(0.5, 2), min_size=2, max_size=60),
    change=st.floats(-0.4, 0.4),
    stop=st.one_of(st.none(), st.floats(1, 20)),
)
def test_a_cost_passes_only_below_its_stop_and_its_margin(before, change, stop):
    after = [value + change for value in before]
    outcome = verdict(before, after, stop)
    if stop is None or max(after) > stop:
        assert outcome.kind != "pass" and (outcome.upper_bound is None or not outcome.changed)
    if outcome.kind == "pass":
        assert outcome.loss <= outcome.upper_bound <= outcome.margin * (1 + 1e-9)
        assert verdict(before, after, stop, margin=0.5).kind == "pass"


def test_spec_declares_a_stop_and_the_gate_and_a_claim_use_it(tmp_path, capsys):
    data = write_set(tmp_path / "set", 40)
    base = str(tmp_path / "base.jsonl")
    assert main(["gate", str(play(data, tmp_path / "before").path), "--baseline", base, "--update"]) == 0

    def stop_note(name, **spec):
        run = play(data, tmp_path / name, Answering(calls=lambda turn: 1 + (turn == ("c00", 0))), **spec)
        code = main(["gate", str(run.path), "--baseline", base])
        assert main(["compare", str(tmp_path / "before"), str(run.path), "--max-loss", "llm_calls=.25"]) == 0
        return code, capsys.readouterr().out

    code, out = stop_note("open")
    assert code == 3 and "no stop of llm_calls is declared (`stops` in the spec), so no loss is excluded" in out
    assert out.count("no stop of llm_calls is declared") == 2 and "not shown to be non-inferior" in out
    code, out = stop_note("stopped", stops={"llm_calls": 3})
    assert code == 0 and "\npass: no loss beyond the margin in llm_calls" in out and "\nyes: " in out
    code, out = stop_note("exceeded", stops={"llm_calls": 1})
    assert code == 3 and "a turn took 2.00, beyond the declared stop of 1" in out


def test_document_flows_have_stops_by_their_settings(tmp_path):
    rows = [{"id": f"c{n}", "turns": [{"user": "offside?", "reference_answers": ["yes"]}]} for n in range(3)]
    (data := tmp_path / "set").mkdir()
    (data / "conversations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (data / "corpus.jsonl").write_text(json.dumps({"doc_id": "d", "title": "Offside", "text": "Yes."}) + "\n")
    calls = call("lookup_documents", query="offside")
    variants = ["rag_only", {"flow": "tools", "max_rounds": 2}, {"flow": "tools_rag_fallback", "rewrite_query": True}]
    model = al.Scripted([calls], loop=True)
    with al.Lab(flows=variants, datasets=[str(data)], model=model, embedder="hashing/hashing-64") as lab:
        run = lab.run_sync(out=tmp_path / "run")
    stops = run.header["stops"]
    assert stops == {"rag_only": {"llm_calls": 1}, "tools": {"llm_calls": 3}, "tools_rag_fallback": {"llm_calls": 5}}
    for flow, rows_of_flow in run.turn_values.items():
        assert all(row["llm_calls"] <= stops[flow]["llm_calls"] for row in rows_of_flow.values())


def test_an_unknown_stop_is_refused(tmp_path, capsys):
    spec = tmp_path / "spec.yaml"
    spec.write_text("stops: {calls: 3}\n")
    assert main(["run", str(spec)]) == 1
    assert "stops" in capsys.readouterr().err


def test_a_saving_below_the_stop_cannot_be_undone_by_unseen_conversations(tmp_path):
    data = write_set(tmp_path / "set", 30)
    flows = [Answering("dear", calls=lambda turn: 3 - turn[1]), Answering("cheap")]
    for stop, claim in ((1, "on average, whatever was not seen"), (99, "on average")):
        run = play(data, tmp_path / f"run{stop}", *flows, stops={"llm_calls": stop})
        assert al.compare(run).pairs[0]["llm_calls"].claim == claim
