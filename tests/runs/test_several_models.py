"""Several models on the command line: each flow of the spec gets a variant for each of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentlab.cli.parser import main
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set

MODELS = ["--model", "scripted/eight.yaml", "--model", "scripted/ten.yaml"]


@pytest.fixture
def folder(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_set(tmp_path / "rules", CONVERSATIONS[:2], DOCUMENTS)
    for name in ("eight", "ten"):
        (tmp_path / f"{name}.yaml").write_text(f"loop: true\nreplies: ['{name.title()}']\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTLAB_EMBEDDER", "hashing/hashing-64")
    return tmp_path


def flows(path: str) -> list[str]:
    return list(json.loads(Path(path, "summary.json").read_text())["flows"])


def test_each_flow_gets_a_variant_for_each_model(folder):
    assert main(["run", "--dataset", "rules", "--flow", "rag_only", *MODELS, "--out", "results/a"]) == 0
    assert flows("results/a") == ["rag_only@eight.yaml", "rag_only@ten.yaml"]
    rows = [json.loads(line) for line in Path("results/a/turns.jsonl").read_text().splitlines()]
    replies = {row["flow"]: row["reply"]["text"] for row in rows if row.get("reply")}
    assert replies == {"rag_only@eight.yaml": "Eight", "rag_only@ten.yaml": "Ten"}


def test_a_flow_with_a_model_of_its_own_keeps_it(folder):
    spec = "flows: [{flow: rag_only, label: own, model: scripted/ten.yaml}, rag_only]\ndatasets: [rules]\n"
    (folder / "spec.yaml").write_text(spec)
    assert main(["run", "spec.yaml", *MODELS, "--out", "results/b"]) == 0
    assert flows("results/b") == ["own", "rag_only@eight.yaml", "rag_only@ten.yaml"]


def test_one_model_named_once_or_twice_makes_no_variants(folder):
    one = MODELS[:2]
    assert main(["run", "--dataset", "rules", "--flow", "rag_only", *one, *one, "--out", "results/c"]) == 0
    assert flows("results/c") == ["rag_only"]


def test_models_of_one_name_differ_by_their_provider(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "ten.yaml").write_text("loop: true\nreplies: [Other]\n")
    models = [*MODELS[2:], "--model", "scripted/sub/ten.yaml"]
    assert main(["run", "--dataset", "rules", "--flow", "rag_only", *models, "--out", "results/d"]) == 0
    assert flows("results/d") == ["rag_only@scripted/ten.yaml", "rag_only@scripted/sub/ten.yaml"]
