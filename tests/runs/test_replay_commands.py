"""The command line replays and explains, and a broken run folder is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentlab.cli.parser import main
from support.replays import FLOWS, play
from support.unsealing import unseal


@pytest.fixture
def recorded(dataset, tmp_path) -> Path:
    play(dataset, "record", tmp_path / "recorded", flows=FLOWS)
    return tmp_path / "recordings" / "run.jsonl"


@pytest.mark.slow
def test_the_command_line_replays_and_explains(dataset, recorded, tmp_path, capsys):
    spec = tmp_path / "spec.yaml"
    script = tmp_path / "script.yaml"
    script.write_text("loop: true\nreplies: [The documents do not say.]\n")
    spec.write_text(
        f"name: small\ndatasets: [{dataset}]\nflows: [rag_only]\nmodel: scripted/{script}\n"
        f"embedder: hashing/hashing-64\nrecordings: {tmp_path / 'small'}\n"
    )
    assert main(["replay", str(spec)]) == 1
    assert "there are no recordings" in capsys.readouterr().err
    assert main(["run", str(spec), "--mode", "record", "--out", str(tmp_path / "r1")]) == 0
    assert "0 reused, 6 new" in capsys.readouterr().out
    assert main(["run", str(spec), "--mode", "replay", "--out", str(tmp_path / "r2")]) == 0
    assert "6 reused, 0 new" in capsys.readouterr().out
    assert main(["replay", str(spec), "--explain", "--set", "generation.max_tokens=9"]) == 1
    printed = capsys.readouterr().out
    assert "NOT RECORDED: 6" in printed and printed.count("max_tokens is 9, was 256") >= 6
    assert (
        main(["run", str(spec), "--mode", "auto", "--set", "generation.max_tokens=9", "--out", str(tmp_path / "r3")])
        == 0
    )
    assert main(["replay", str(spec)]) == 0
    assert main(["replay", str(spec), "--set", "generation.max_tokens=9"]) == 0


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("summary.json", "{"),
        ("summary.json", "{}"),
        ("turns.jsonl", b"\xff\n"),
        ("turns.jsonl", "{}\n"),
        ("turns.jsonl", ""),
    ],
)
def test_a_broken_run_folder_is_one_line(dataset, tmp_path, capsys, file, content):
    play(dataset, "live", tmp_path / "good", flows=["rag_only", "tools"])
    play(dataset, "live", tmp_path / "bad", flows=["rag_only", "tools"])
    (tmp_path / "bad" / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["compare", str(tmp_path / "bad"), str(tmp_path / "good")]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("agentlab: ") and printed.count("\n") == 1 and "Traceback" not in printed


@pytest.mark.parametrize(
    "content",
    ['{"kind": "?", "flow": "tools", "conversation": "c0", "epoch": 0, "take": 0}\n', "3\n", '{"kind": "tool"}\n'],
)
def test_broken_ledger_is_one_line_and_comparisons_ignore_it(dataset, tmp_path, capsys, content):
    play(dataset, "live", tmp_path / "run", flows=["rag_only", "tools"])
    (tmp_path / "run" / "calls.jsonl").write_text(content)
    unseal(tmp_path / "run")
    assert main(["compare", str(tmp_path / "run")]) == 0
    assert "predates checksums" in capsys.readouterr().err
    assert main(["show", "--trace", str(tmp_path / "run"), "c0"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("agentlab: ") and printed.count("\n") == 1 and "Traceback" not in printed
