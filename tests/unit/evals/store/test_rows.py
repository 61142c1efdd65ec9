"""The rows of a run folder: written rows are read back unchanged, and errors name a damaged row."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from agentlab.core.errors import RunError
from agentlab.core.messages import Citation, Reply, from_json
from agentlab.core.trace import Totals
from agentlab.evals.store.rows import StoredScore, Summary, TurnRow, encode
from agentlab.lab.run import open_run
from support.small_runs import Answering, play, write_set
from support.unsealing import unseal

TURN = TurnRow(
    flow="tools",
    dataset="laws",
    conversation="laws-001",
    turn=1,
    category=None,
    epoch=0,
    take=2,
    user="How wide? \ud83d",
    reply=Reply(text="7.32 m [1]", citations=(Citation(doc_id="field", passage_id="field#0", title="The field"),)),
    error=None,
    wall_seconds=0.25,
    totals=Totals(llm_calls=2, cost_usd=None),
    latency_s=0.25,
    memory_tokens=0,
    memory_unavailable=0,
    phases={"answer": {"calls": 2, "input_tokens": 5, "output_tokens": None, "seconds": 0.25}},
    scores={"f1": StoredScore(0.5, "half of it \ud83d"), "own": StoredScore(None, "not a number")},
)


def test_a_row_is_read_as_it_was_written():
    assert from_json(TurnRow, json.loads(encode(TURN))) == TURN


def test_a_turn_has_its_fields_in_order_with_all_totals():
    row = json.loads(encode(TURN))
    assert list(row) == [
        *("flow", "dataset", "conversation", "turn", "category", "epoch", "take"),
        *("user", "reply", "error", "wall_seconds", "totals", "latency_s", "memory_tokens", "memory_unavailable"),
        *("phases", "scores"),
    ]
    assert list(row["reply"]) == ["text", "citations", "data"]
    assert (row["totals"]["tool_calls"], row["totals"]["cost_usd"]) == (0, None)


def test_keys_missing_in_an_older_run_are_not_written():
    older = replace(TURN, category=UNSET)
    assert "category" not in json.loads(encode(older))


def test_a_summary_is_read_with_its_types(tmp_path, own_home):
    run = play(write_set(tmp_path / "set", conversations=2), tmp_path / "run")
    assert json.loads(encode(run.result)) == run.summary
    assert from_json(Summary, run.summary).flows["answering"].scores["answer_f1"].n == 4


@pytest.mark.parametrize(
    ("file", "old", "new", "text"),
    [
        ("turns.jsonl", '"user"', '"said"', "turns.jsonl:1: ValueError: Object missing required field `user`"),
        (
            "turns.jsonl",
            '"turn":0',
            '"turn":"0"',
            "turns.jsonl:1: ValueError: Expected `int`, got `str`",
        ),
        ("turns.jsonl", '"value"', '"values"', "turns.jsonl:1: ValueError: Object missing required field `value`"),
        ("calls.jsonl", '"take"', '"took"', "calls.jsonl:1: ValueError: Object missing required field `take`"),
        ("calls.jsonl", '{"flow"', '["flow"', "calls.jsonl:1: JSONDecodeError"),
    ],
)
def test_a_broken_row_is_named_by_file_line_and_field(tmp_path, own_home, file, old, new, text):
    run = play(write_set(tmp_path / "set", conversations=2), tmp_path / "run")
    content = (run.path / file).read_text()
    (run.path / file).write_text(content.replace(old, new, 1))
    unseal(run.path)
    broken = open_run(run.path)
    with pytest.raises(RunError) as refused:
        _ = broken.turns, broken.scores, broken.calls
    assert text in str(refused.value) and "\n" not in str(refused.value)


def test_comparing_two_flows_loads_no_pandas(tmp_path, own_home):
    data = write_set(tmp_path / "set", conversations=3)
    play(data, tmp_path / "run", Answering("a"), Answering("b", wrong={("c01", 0)}))
    code = (
        "import sys; from agentlab import open_run; from agentlab.evals.compare.pairs import compare;"
        f"compare(open_run({str(tmp_path / 'run')!r})); sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
