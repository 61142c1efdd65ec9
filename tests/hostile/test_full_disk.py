"""A full disk ends a run with one line, and --resume completes it as if the disk had never been full."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentlab.cli.parser import main
from agentlab.lab.run import open_run
from support.full_disk import FullDisk
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set

MEASURED = {"latency_s", "phases", "billed"}
"""Values that a second process may change: times, and costs paid twice."""


@pytest.fixture
def spec(tmp_path: Path, own_home: Path) -> Path:
    write_set(tmp_path / "rules", CONVERSATIONS[:2], DOCUMENTS)
    (tmp_path / "replies.yaml").write_text("loop: true\nreplies: [Between 410 and 450 grams.]\n")
    file = tmp_path / "spec.yaml"
    file.write_text(
        f"datasets: [{tmp_path / 'rules'}]\nflows: [rag_only]\nembedder: hashing/hashing-64\n"
        f"scorers: [answer]\nmodel: scripted/{tmp_path / 'replies.yaml'}\n"
    )
    return file


def outcome(out: Path) -> dict[str, Any]:
    summary = open_run(out).summary
    flows = {
        label: {name: value for name, value in flow.items() if name not in MEASURED}
        for label, flow in summary["flows"].items()
    }
    turns = [
        (row.conversation, row.turn, row.reply.text if row.reply else None, row.error)
        for row in open_run(out).folder.turns()
    ]
    scores = [score.reason for row in open_run(out).folder.turns() for score in (row.scores or {}).values()]
    return {"status": summary["status"], "flows": flows, "turns": turns, "scores": scores}


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.99], ids=["before", "within", "at the end of"])
@pytest.mark.parametrize(
    "name, at",
    [("run.json", 0), ("turns.jsonl", 0), ("turns.jsonl", 2), ("summary.json", 0)]
    + [("calls.jsonl", number) for number in (0, 1, 7)],
)
def test_full_disk_is_one_line_and_the_run_continues(spec, tmp_path, capsys, name, at, fraction):
    assert main(["run", str(spec), "--out", str(tmp_path / "whole")]) == 0
    capsys.readouterr()
    out = tmp_path / "cut"
    with pytest.MonkeyPatch.context() as patched:
        disk = FullDisk(patched, name, at, fraction)
        assert main(["run", str(spec), "--out", str(out)]) == 1
    assert disk.failed
    err = capsys.readouterr().err
    assert "Traceback" not in err
    errors = [line for line in err.splitlines() if line.startswith("agentlab:")]
    assert len(errors) == 1 and name in errors[0] and "No space left" in errors[0] and "--resume" in errors[0]
    for file in out.glob("*.jsonl"):
        assert not file.read_bytes() or file.read_bytes().endswith(b"\n")
        assert all(json.loads(line) for line in file.read_text().splitlines())
    assert main(["run", str(spec), "--out", str(out), "--resume"]) == 0
    assert outcome(out) == outcome(tmp_path / "whole")


def test_a_flow_that_survives_whatever_happens_does_not_write_past_the_gap(spec, tmp_path, capsys):
    (tmp_path / "stubborn.py").write_text(
        '"""Never gives up."""\nimport agentlab as al\n\n'
        "async def respond(turn, session):\n"
        "    for _ in range(5):\n"
        "        try:\n            await session.complete(turn.text)\n"
        "        except Exception:\n            pass\n"
        '    return al.Reply(text="done")\n'
    )
    run = ["run", str(spec), "--flow", str(tmp_path / "stubborn.py"), "--out", str(tmp_path / "cut")]
    with pytest.MonkeyPatch.context() as patched:
        FullDisk(patched, "calls.jsonl", at=1, fraction=0.5)
        assert main(run) == 1
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "cut" / "calls.jsonl").read_text().splitlines()]
    assert kinds == ["message", "model_call"]
    assert not (tmp_path / "cut" / "turns.jsonl").exists()
    assert main([*run, "--resume"]) == 0
    assert open_run(tmp_path / "cut").summary["flows"]["stubborn"]["llm_calls"] == 20


@pytest.mark.parametrize("name", ["run.json", "summary.json"])
def test_failed_import_on_a_full_disk_leaves_nothing(spec, tmp_path, capsys, name):
    rows = [{"system": "s", "conversation": c["id"], "turn": 0, "answer": "so"} for c in CONVERSATIONS[:2]]
    (tmp_path / "rules" / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["import", "predictions", str(tmp_path / "rules" / "answers.jsonl"), "--out", str(tmp_path / "imported")]
    with pytest.MonkeyPatch.context() as patched:
        FullDisk(patched, name)
        assert main(command) == 1
    err = capsys.readouterr().err
    assert "No space left" in err and "--resume" not in err
    assert not [file for file in tmp_path.iterdir() if "imported" in file.name]
    assert main(command) == 0


def test_half_written_file_of_a_killed_process_blocks_nothing(spec, tmp_path):
    out = tmp_path / "cut"
    out.mkdir()
    left = out / f".run.json.{'0f' * 16}.new"
    left.write_text('{"format"')
    assert main(["run", str(spec), "--out", str(out), "--resume"]) == 0
    left.write_text('{"format"')
    assert main(["run", str(spec), "--out", str(out), "--resume"]) == 0
    assert not left.exists()


def test_folder_with_unrelated_files_is_refused(spec, tmp_path, capsys):
    out = tmp_path / "mine"
    out.mkdir()
    (out / ".notes.new").write_text("precious")
    assert main(["run", str(spec), "--out", str(out)]) == 1
    assert "is not empty" in capsys.readouterr().err and (out / ".notes.new").exists()
