"""Every reader and parser of untrusted files, each with a valid file as its start."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agentlab as al
from agentlab.core.escaping import as_markdown, escape_json, printable
from agentlab.core.messages import Message
from agentlab.core.prices import load_prices
from agentlab.core.secrets import redact
from agentlab.data.documents import load_documents
from agentlab.evals.compare.baselines import read_baseline, write_baseline
from agentlab.evals.compare.gate import gate
from agentlab.evals.compare.pairs import compare
from agentlab.evals.judge.labels import read_labels
from agentlab.evals.judge.rubrics import load_rubric
from agentlab.evals.published.predictions import read_predictions
from agentlab.evals.published.reproduce import read_claims
from agentlab.flows.coordinator import state_file
from agentlab.flows.ego.planner import read_step
from agentlab.flows.json_replies import read_object, read_unfinished_object
from agentlab.memory import textfile
from agentlab.memory.tagged_log import TaggedLog
from agentlab.models.embedders.hashing import connect as hashing
from agentlab.models.keys import load_keys
from agentlab.models.scripted import Scripted
from agentlab.models.scripted import connect as scripted
from agentlab.tools.mcp.config import read_servers
from agentlab.tools.mcp.listing import usable_tools
from agentlab.wire.keys import digest
from agentlab.wire.recordings import Recordings
from agentlab.workbench.spec import load_spec
from support.requests import parts_of
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set
from support.unsealing import uncheck, unseal

Read = Callable[[Path], Any]
Reader = tuple[Path, Read]
"""File to damage, and the function that reads it."""
PLAN = {"thought": "t", "tool": "a", "arguments": {"q": 1}, "steps": [{"tool": "a", "purpose": "p"}], "score": 0.5}
SCHEMA = {"type": "object", "properties": {"q": {"type": "string", "pattern": "^a"}}}
PREDICTION = {"system": "one", "conversation": "c0", "turn": 0, "answer": "410 g"}
CHOICES = {name: {"worth": worth, "means": "so"} for worth, name in enumerate(("bad", "good"))}
OF_RUN = ("run.json", "turns.jsonl", "calls.jsonl", "summary.json")
STORED = [Message(role="user", text="hello")]
COORDINATOR: Any = SimpleNamespace(
    episodes=SimpleNamespace(pending=["one"]),
    history=SimpleNamespace(request_messages=lambda: STORED, restore=lambda messages: None),
)


def jsonl(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


FILES = {
    "told/sessions.jsonl": jsonl(
        {
            **{"conversation_id": "a", "session_id": "s", "date": "2026-01-05 11:00", "speakers": ["Ann"]},
            "turns": [{"id": "1", "speaker": "Ann", "text": "I play."}],
        }
    ),
    "told/questions.jsonl": jsonl(
        {"id": "q", "conversation_id": "a", "question": "What?", "reference_answers": ["x"], "evidence_ids": ["1"]}
    ),
    "predictions.jsonl": jsonl(*2 * [{**PREDICTION, "published": {"human": {"a": {"r": 4}}}}]),
    "predictions.csv": f"{','.join(PREDICTION)},published.em\none,c0,0,410 g,1\n",
    "published.json": jsonl(
        {"figures": [{"system": "one", "metric": "em", "value": 0.5, "decimals": 2, "grader": "Squad"}]}
    ),
    "labels.csv": "conversation,turn,flow,epoch,label\nc0,0,rag_only,0,0.5\n",
    "rubric.yaml": jsonl({"mine": {"asks": "Is it?", "sees": ["reference"], "choices": CHOICES}}),
    "memory.txt": "Long-term memory of agentlab, embedded with hashing/hashing-64\n"
    '<MEMORY module="memory" user="ann" id="memory_1" time="2026-01-05T10:00:00">\nAnn plays.\n</MEMORY>\n',
    "prices.yaml": 'dated: "2026"\nmodels:\n  openai/m: {input: 2, cached_input: 1, output: 10}\n',
    "keys.json": jsonl({"openai": ["key-one", "key-two"], "gemini": []}),
    "replies.yaml": "loop: true\nreplies:\n- hi\n- tool_calls: [{name: a, arguments: {b: 1}}]\n",
    "servers.json": jsonl({"mcpServers": {"t": {"command": "x", "args": ["y"], "env": {"A": "b"}}}}),
    "pages/page.html": "<html><title>t</title><p>one<ul><li>two</ul><table><tr><td>x</table></html>",
    "pages/notes.md": "# A\n\ntext [x](y)\n\n* one\n",
    "reply.txt": f"Well: ```json\n{json.dumps(PLAN)}\n``` and so on {{}}",
    "tool.json": jsonl([{"name": "a", "description": "d", "inputSchema": SCHEMA}]),
}


def readers(folder: Path) -> dict[str, Reader]:
    """The readers by name, after playing a small run into the folder."""
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    state_file.save(folder, COORDINATOR, STORED)
    rules, recorded = _played(folder)
    return {
        **_of_sets(folder, rules),
        **{f"run folder, {name}": (folder / "run" / name, reads_run) for name in OF_RUN},
        "recordings": (recorded, reads_recordings),
        "recordings, new checksums": (folder / "again.jsonl", reads_with_new_checksums),
        "baseline": (folder / "baseline.jsonl", read_baseline),
        "predictions": (folder / "predictions.jsonl", reads_predictions),
        "predictions in CSV": (folder / "predictions.csv", reads_predictions),
        "published figures": (folder / "published.json", lambda f: read_claims(f.parent)),
        "labels": (folder / "labels.csv", lambda f: read_labels(f, [("rag_only", "c0", 0, 0)])),
        "rubric": (folder / "rubric.yaml", lambda f: load_rubric(str(f))),
        "memory in text": (folder / "memory.txt", reads_memory),
        "what a coordinator kept": (
            folder / state_file.FILE,
            lambda f: state_file.restore(f.parent, COORDINATOR, STORED),
        ),
        "spec": (folder / "spec.yaml", lambda f: load_spec(f, {})),
        "prices": (folder / "prices.yaml", load_prices),
        "key file": (folder / "keys.json", reads_keys),
        "scripted model": (folder / "replies.yaml", lambda f: scripted(str(f))),
        "MCP servers": (folder / "servers.json", read_servers),
        "tools of a server": (folder / "tool.json", reads_tools),
        "output of a model": (folder / "reply.txt", reads_reply),
    }


def _played(folder: Path) -> tuple[Path, Path]:
    """Return a data set and recordings of a run. Folder and baseline have no checksums, so edits pass."""
    os.environ["AGENTLAB_HOME"] = str(folder / "home")
    rules = write_set(folder / "rules", CONVERSATIONS, DOCUMENTS)
    spec: dict[str, Any] = {
        "name": "f",
        "datasets": [str(rules)],
        "flows": ["rag_only", {"flow": "tools", "label": "t"}],
        **{"embedder": "hashing/hashing-64", "recordings": str(folder / "rec"), "retrieval": {"top_k": 2}},
        **{"mode": "auto", "limit": 3},
    }
    with al.Lab(model=Scripted(["It weighs 410 g."], loop=True), **spec) as lab:
        run = lab.run_sync(out=folder / "run")
    (folder / "spec.yaml").write_text(json.dumps({**spec, "model": "openai/m", "generation": {"seed": 0}}, indent=1))
    write_baseline(run, folder / "baseline.jsonl")
    uncheck(folder / "baseline.jsonl")
    unseal(run.path)
    (recorded,) = (folder / "rec").glob("*.jsonl")
    shutil.copyfile(recorded, folder / "again.jsonl")
    return rules, recorded


def _of_sets(folder: Path, rules: Path) -> dict[str, Reader]:
    files = [rules / "conversations.jsonl", rules / "corpus.jsonl"]
    files += [folder / "told" / "sessions.jsonl", folder / "told" / "questions.jsonl"]
    return {
        **{f"data set, {file.name}": (file, lambda f: al.load_dataset(f.parent)) for file in files},
        "web page": (folder / "pages" / "page.html", lambda f: load_documents(f.parent)),
        "Markdown": (folder / "pages" / "notes.md", lambda f: load_documents(f.parent)),
    }


def reads_run(file: Path) -> None:
    """Use one view of a run, a different one for each input."""
    run = al.open_run(file.parent)
    run.turn_rows()
    looks: list[Callable[[], Any]] = [
        *(run.table, run.causes, lambda: run.show("c0"), lambda: compare(run)),
        lambda: [trace.steps(full=True) for trace in run.traces.values()],
    ]
    if file.parent.name == "run":
        looks.append(lambda: gate(run, file.parents[1] / "baseline.jsonl"))
    repr(looks[zlib.crc32(file.read_bytes()) % len(looks)]())


def reads_memory(file: Path) -> None:
    asyncio.run(textfile.connect(file.parent, hashing("hashing-64"), user="ann").facts())
    TaggedLog(file).entries()


def reads_predictions(file: Path) -> None:
    list(read_predictions(file))


def reads_reply(file: Path) -> None:
    text = file.read_text(errors="replace")
    for parsed in (read_object(text), read_object(text, "tool"), read_unfinished_object(text)):
        read_step(parsed or {})
    for encode in (printable, as_markdown, redact):
        encode(text)
    json.loads(escape_json(json.dumps(text)))


def reads_tools(file: Path) -> None:
    try:
        rows = json.loads(file.read_text(errors="replace"))  # as the server's own library hands them on
    except (ValueError, RecursionError):
        return
    usable_tools("s", rows if isinstance(rows, list) else [rows])


def reads_keys(file: Path) -> None:
    os.environ["AGENTLAB_KEYS"] = str(file)
    load_keys("openai", "NO_SUCH_KEY")


def reads_recordings(file: Path) -> None:
    recordings = Recordings.open(file.parent, "f")
    for row in recordings.completions():
        parts_of(recordings, row)
    for line in file.read_bytes().splitlines():
        key = line[line.find(b'"key": "') + 8 :][:32].decode("latin-1")
        recordings.look_up(key)


def reads_with_new_checksums(file: Path) -> None:
    """Recordings whose edited lines have new checksums."""
    rewritten = file.parent / "rewritten" / "f.jsonl"
    rewritten.parent.mkdir(exist_ok=True)
    with rewritten.open("w") as lines:
        for line in file.read_bytes().splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                row = json.loads(line)
                if isinstance(row, dict):
                    content = {name: value for name, value in row.items() if name != "check"}
                    print(json.dumps({**content, "check": digest(content)[:12]}), file=lines)
    reads_recordings(rewritten)
