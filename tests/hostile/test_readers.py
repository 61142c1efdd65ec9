"""Damaged and edited files of every format: an unusable file gives one line of agentlab, and no traceback.

A longer run: `pytest tests/hostile/test_readers.py --hypothesis-profile torture`.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.core.errors import AgentlabError
from agentlab.core.prices import load_prices
from agentlab.data.datasets import load_dataset
from agentlab.evals.compare.baselines import write_baseline
from agentlab.evals.compare.gate import gate
from agentlab.evals.compare.pairs import compare
from agentlab.evals.judge.labels import read_labels
from agentlab.evals.judge.rubrics import load_rubric
from agentlab.evals.published.predictions import read_predictions
from agentlab.evals.published.reproduce import read_claims
from agentlab.lab.run import open_run
from agentlab.models import scripted
from agentlab.models.keys import load_keys
from agentlab.tools.mcp.config import read_servers
from agentlab.wire.recordings import Recordings
from agentlab.workbench.spec import load_spec
from support.mutations import mutated
from support.paths import TESTS
from support.requests import parts_of
from support.small_runs import play, write_set
from support.unsealing import uncheck, unseal


def use(read: Callable[[], object]) -> None:
    """Accept input, or refuse it in one line that names a location."""
    try:
        read()
    except AgentlabError as refused:
        problem = str(refused)
        assert "\n" not in problem and len(problem) < 5000, problem


def look_at(folder: Path, baseline: Path) -> None:
    run = open_run(folder)
    use(lambda: run.table())
    for name in ("turns", "calls", "scores"):
        use(lambda name=name: getattr(run, name))
    use(lambda: run.show("c00"))
    use(lambda: [trace.steps(full=True) for trace in run.traces.values()])
    use(lambda: str(compare(run)))
    use(lambda: str(gate(run, baseline)))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and its baseline."""
    folder = tmp_path_factory.mktemp("finished")
    run = play(write_set(folder / "colours", 2), folder / "run")
    write_baseline(run, folder / "baseline.jsonl")
    # Without checksums, or every edit would be refused for that alone.
    unseal(run.path)
    uncheck(folder / "baseline.jsonl")
    return folder


@pytest.mark.parametrize("name", ["run.json", "summary.json", "turns.jsonl", "calls.jsonl"])
@given(data=st.data())
def test_a_run_folder(finished, name, data):
    file = finished / "run" / name
    content = file.read_bytes()
    try:
        file.write_bytes(data.draw(mutated(content)))
        use(lambda: look_at(finished / "run", finished / "baseline.jsonl"))
    finally:
        file.write_bytes(content)


@given(data=st.data())
def test_a_baseline(finished, data):
    edited = finished / "edited.jsonl"
    edited.write_bytes(data.draw(mutated((finished / "baseline.jsonl").read_bytes())))
    use(lambda: str(gate(open_run(finished / "run"), edited)))


@given(data=st.data())
def test_recordings(tmp_path, data):
    content = (TESTS / "data" / "recordings_format_1" / "run.jsonl").read_bytes()
    (tmp_path / "run.jsonl").write_bytes(data.draw(mutated(content)))

    def read() -> None:
        recordings = Recordings.open(tmp_path, "run")
        for row in recordings.completions():
            parts_of(recordings, row)

    use(read)
    use(lambda: Recordings.open(tmp_path, "run", write=True))


SPEC = b"""name: mine
datasets: [datasets/laws]
flows: [rag_only, {flow: tools, label: k8, retrieval: {top_k: 8}, generation: {seed: 1}}]
today: 2026-01-01T12:00:00
budget: {usd: 1.5, calls: 20}
prompts: {rag_only: {answer: "text"}}
"""
SCRIPT = b"""loop: true
replies:
  - tool_calls: [{name: lookup_documents, arguments: {query: offside}}]
  - text: Level is onside.
  - error: RateLimited
"""
PRICES = b"dated: 2026-10\nmodels:\n  openai/x: {input: 1.5, cached_input: .5, output: 2}\n"
KEYS = b'{"openai": ["one-key-of-mine", "another"], "gemini": []}'
MCP = b'{"mcpServers": {"time": {"command": "mcp-server-time", "args": ["-v"], "env": {"A": "${B}"}}, "x": {"url": "http://x"}}}'
ROWS = b'{"id": "c0", "turns": [{"user": "hi", "reference_answers": ["a"]}], "metadata": {"n": 1}}\n'


PREDICTED = b'{"system": "one", "conversation": "c0", "turn": 0, "answer": "blue", "published": {"em": 1}}\n'
RUBRIC = b"mine: {asks: Is it?, sees: [reference], choices: {a: {worth: 1, means: x}, b: {worth: 0, means: y}}}\n"


def predictions(file: Path) -> Any:
    return list(read_predictions(file))


def data_set(file: Path) -> Any:
    return load_dataset(file.parent)


def keys(file: Path) -> Any:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AGENTLAB_KEYS", str(file))
        return load_keys("openai", "NO_SUCH_VARIABLE")


FILES: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "spec.yaml": (SPEC, load_spec),
    "script.yaml": (SCRIPT, lambda file: scripted.connect(str(file))),
    "prices.yaml": (PRICES, lambda file: load_prices(str(file))),
    "keys.json": (KEYS, keys),
    "mcp.json": (MCP, read_servers),
    "conversations.jsonl": (ROWS, data_set),
    "predictions.jsonl": (PREDICTED, predictions),
    "predictions.csv": (b"system,conversation,turn,answer,published.em\none,c0,0,blue,1\n", predictions),
    "published.json": (b'{"figures": []}', lambda file: read_claims(file.parent)),
    "labels.csv": (
        b"conversation,turn,flow,label\nc0,0,one,1\n",
        lambda file: read_labels(file, [("one", "c0", 0, 0)]),
    ),
    "rubric.yaml": (RUBRIC, lambda file: load_rubric(str(file))),
}


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
def test_a_file_that_a_user_names(tmp_path, name, data):
    content, read = FILES[name]
    file = tmp_path / name
    file.write_bytes(data.draw(mutated(content, is_json=not name.endswith(".yaml"))))
    use(lambda: read(file))


SPECIAL = [(name, kind) for name in FILES for kind in ("pipe", "device", "folder", "huge")]
SPECIAL.remove(("mcp.json", "folder"))  # a folder of servers is a data folder


@pytest.mark.parametrize(("name", "kind"), SPECIAL)
def test_special_file_is_one_line(tmp_path, name, kind):
    file = tmp_path / name
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "device":
            file.symlink_to("/dev/zero")
        case "folder":
            file.mkdir()
        case "huge":
            with file.open("wb") as sparse:
                sparse.truncate(2**32)
    with pytest.raises(AgentlabError) as refused:
        FILES[name][1](file)
    assert "\n" not in str(refused.value) and name in str(refused.value)


def test_duplicate_key_is_named_with_its_line(tmp_path):
    (tmp_path / "spec.yaml").write_text("flows: [rag_only]\nlimit: 1\nlimit: 2\n")
    with pytest.raises(AgentlabError, match=r"spec\.yaml: line 3: duplicate key 'limit'"):
        load_spec(tmp_path / "spec.yaml")


def test_anchors_that_multiply_are_refused(tmp_path):
    names = "abcdefghijkl"
    lines = [f"a: &a [{', '.join('x' * 9)}]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in itertools.pairwise(names)]
    (tmp_path / "spec.yaml").write_text("\n".join(lines))
    with pytest.raises(AgentlabError, match="more than 1000000 parts"):
        load_spec(tmp_path / "spec.yaml")


def test_a_key_file_never_shows_what_it_holds(tmp_path):
    (tmp_path / "keys.json").write_text('{"openai": ["sk-precious" ')
    with pytest.raises(AgentlabError) as refused:
        keys(tmp_path / "keys.json")
    assert "precious" not in str(refused.value)


@pytest.mark.parametrize("name", ["run.json", "calls.jsonl", "turns.jsonl"])
def test_a_link_in_a_run_folder_leads_nowhere(finished, tmp_path, name):
    """The target of a link is neither read nor written."""
    folder = tmp_path / "run"
    folder.mkdir()
    for file in (finished / "run").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    other = tmp_path / "precious"
    other.write_bytes((folder / name).read_bytes() + b"unfinished")
    (folder / name).unlink()
    (folder / name).symlink_to(other)
    with pytest.raises(AgentlabError, match="it is a link"):
        len(open_run(folder).turns)
    with pytest.raises(AgentlabError, match="it is a link"):
        play(finished / "colours", folder, resume=True)
    assert other.read_bytes().endswith(b"unfinished")


@pytest.mark.parametrize("name", ["run.log", "shards", "judges"])
def test_nothing_is_written_through_a_link_in_a_run_folder(finished, tmp_path, name):
    shutil.copytree(finished / "run", tmp_path / "run")
    (tmp_path / "run" / "run.log").unlink()
    (tmp_path / "precious").mkdir() if name != "run.log" else (tmp_path / "precious").write_text("mine")
    (tmp_path / "run" / name).symlink_to(tmp_path / "precious")
    with pytest.raises(AgentlabError, match="it is a link"):
        play(finished / "colours", tmp_path / "run", resume=True)


def test_a_link_among_recordings_leads_nowhere(tmp_path):
    other = tmp_path / "precious"
    other.write_bytes(b"unfinished")
    folder = tmp_path / "recordings"
    folder.mkdir()
    (folder / "a.jsonl").symlink_to(other)
    for write in (False, True):
        with pytest.raises(AgentlabError, match=r"a\.jsonl.* it is a link"):
            Recordings.open(folder, "a", write=write)
    assert other.read_bytes() == b"unfinished"


def test_a_summary_without_turns_has_no_shares_of_one(finished, tmp_path):
    folder = shutil.copytree(finished / "run", tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    summary["flows"]["answering"]["turns"] = 0
    (folder / "summary.json").write_text(json.dumps(summary))
    assert "answering" in str(open_run(folder).table().columns)
