"""Prompts from files: names, refused files, the output of `agentlab list prompts`, and the record in a run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import ConfigError, RunError
from agentlab.models.scripted import Scripted
from agentlab.workbench.spec import FlowSpec, Spec
from agentlab.workbench.variants import Variant, make_variant

LATIN = "Schönes Wetter: {result}".encode("latin-1")


@pytest.fixture
def prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLM_AGENT_DATA_DIR", str(tmp_path))
    return tmp_path / "prompts"


def put(file: Path, text: str | bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def variant(**settings: Any) -> Variant:
    return make_variant(Spec(), FlowSpec.model_validate({"flow": "ego", **settings}))


@pytest.mark.parametrize("name", ["BUBBLE", "bubble", "Bubble_Prompt", "BUBBLE_PROMPT"])
@pytest.mark.parametrize("suffix", [".txt", ".TXT"])
def test_a_prompt_goes_by_its_name_however_it_is_written(prompts, name, suffix):
    put(prompts / "ego" / f"{name}{suffix}", "In verse: {result}\n")
    put(prompts / "ego" / "notes.md", "tried on Monday")
    assert variant().prompts["bubble"] == "In verse: {result}"


def refused(prompts: Path, capsys: pytest.CaptureFixture[str], *text: str) -> None:
    """Assert that `agentlab list prompts` prints one line of error and that a Lab raises."""
    assert main(["list", "prompts", "--flow", "ego"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    for part in text:
        assert part in line
    with pytest.raises(ConfigError):
        al.Lab(flows=["ego"], model=Scripted([]), embedder="hashing/hashing-64")


def test_a_file_that_is_not_utf8_is_named(prompts, capsys):
    file = put(prompts / "ego" / "BUBBLE.txt", LATIN)
    refused(prompts, capsys, f"{file} is not UTF-8 text")


@pytest.mark.parametrize("other", ["bubble.txt", "BUBBLE_PROMPT.txt", "BUBBLE.TXT"])
def test_two_files_for_one_prompt_are_refused(prompts, capsys, other):
    put(prompts / "ego" / "BUBBLE.txt", "a")
    put(prompts / "ego" / other, "b")
    if len(list((prompts / "ego").iterdir())) < 2:
        pytest.skip("this file system does not tell upper case from lower")
    refused(prompts, capsys, str(prompts / "ego"), "BUBBLE.txt", other, "keep one of them")


def test_a_file_outside_the_folder_of_a_module_is_refused(prompts, capsys):
    file = put(prompts / "BUBBLE.txt", "a")
    refused(
        prompts, capsys, f"{file}: move it into the folder of its module, one of: coordinator, ego, memory, planner"
    )


@pytest.mark.parametrize(("flow", "setting"), [("ego", "personality"), ("coordinator", "system_instruction")])
def test_a_text_file_of_the_settings_is_read_before_the_run(tmp_path, flow, setting):
    file = put(tmp_path / "own.txt", LATIN)
    with pytest.raises(ConfigError, match=rf"{setting}: {file} is not UTF-8 text"):
        make_variant(Spec(), FlowSpec.model_validate({"flow": flow, setting: str(file)}))


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    """Return the lines of `agentlab list prompts` by their first word."""
    assert main(["list", "prompts", *arguments]) == 0
    return {line.split()[0]: " ".join(line.split()[1:]) for line in capsys.readouterr().out.splitlines()}


def test_listing_names_the_file_and_placeholders_of_a_prompt(prompts, capsys):
    assert listed(capsys, "--flow", "ego")["ego"] == f"(files in {prompts})"
    own = listed(capsys, "--flow", "ego")["memory_analysis"]
    assert own == "memory/MEMORY_ANALYSIS.txt {content}"
    file = put(prompts / "memory" / "MEMORY_ANALYSIS_PROMPT.txt", "Sum up.")
    assert listed(capsys, "--flow", "ego")["memory_analysis"] == f"{own} (from {file}; not used: {{content}})"
    put(file, "Sum up: {content}")
    assert listed(capsys, "--flow", "ego")["memory_analysis"] == f"{own} (from {file})"


def test_the_listing_names_no_file_where_none_is_read(tmp_path, capsys):
    spec = put(tmp_path / "spec.yaml", "flows: [tools]\nprompts: {tools: {system_with_tools: 'Use {tool}.'}}\n")
    lines = listed(capsys, str(spec))
    assert lines["tools"] == ""
    assert lines["system_with_tools"] == "{tool} {documents} (from the spec; not used: {documents})"


def play(tmp_path: Path, name: str, **options: Any) -> dict[str, Any]:
    """The header of a run of one turn."""
    put(tmp_path / "set" / "conversations.jsonl", '{"id": "a", "turns": [{"user": "What is an oboe?"}]}\n')
    model = Scripted(['{"chat": "A woodwind.", "canvas": ""}'], loop=True)
    flows = [{"flow": "ego", "planning": False}, {"flow": "ego", "label": "other", "prompts": {"bubble": "{result}"}}]
    settings = {"embedder": "hashing/hashing-64", "scorers": ["answer"], "datasets": [str(tmp_path / "set")]}
    with al.Lab(flows=flows, model=model, **settings) as lab:
        lab.run_sync(out=tmp_path / name, **options)
    return json.loads((tmp_path / name / "run.json").read_text())


def test_a_run_writes_down_which_prompt_files_it_was_made_with(prompts, tmp_path, own_home):
    assert "prompt_files" not in play(tmp_path, "without")
    texts = {"ego/BUBBLE.txt": "In verse: {result}\n", "planner/plan_prompt.txt": "Plan: {message}"}
    for file, text in texts.items():
        put(prompts / file, text)
    bubble, planned = (hashlib.sha256(text.encode()).hexdigest() for text in texts.values())
    # Of the second flow, the spec has the last word about one of them.
    assert play(tmp_path, "with")["prompt_files"] == {"ego/bubble": bubble, "ego/plan": planned, "other/plan": planned}


def test_a_run_is_not_continued_with_other_prompt_files(prompts, tmp_path, own_home):
    file = put(prompts / "ego" / "BUBBLE.txt", "In verse: {result}")
    header = play(tmp_path, "run")
    assert play(tmp_path, "run", resume=True) == header
    put(file, "In prose: {result}")
    with pytest.raises(RunError, match="prompt_files: ego/bubble differs in that run"):
        play(tmp_path, "run", resume=True)
