"""Runs with the user's own retrievers: a column each, recorded, and replayed without their index."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.core.errors import ConfigError
from agentlab.core.events import EmbeddingCall, Search
from agentlab.models.scripted import call
from support.stores import fill

LAWS = "datasets/laws"
SEARCH = """
import json
from pathlib import Path

ROWS = [json.loads(line) for line in Path("rows.jsonl").read_text(encoding="utf-8").splitlines()]


async def search(query, *, top_k, doc_ids):
    words = set(query.lower().split())
    ranked = sorted(ROWS, key=lambda row: -len(words & set(row["text"].lower().split())))
    return [row for row in ranked if doc_ids is None or row["doc_id"] in doc_ids]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    laws = Path(LAWS).resolve()
    rows = [json.loads(line) for line in (laws / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "my_search.py").write_text(SEARCH)
    (tmp_path / "laws").mkdir()
    for name in ("conversations.jsonl", "corpus.jsonl"):
        (tmp_path / "laws" / name).write_bytes((laws / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reply(request: Any) -> Any:
    """Search with the first call of a turn, if that is possible."""
    is_first = request.messages[-1].role == "user"
    if request.tools and request.tool_choice == "auto" and is_first:
        return call("lookup_documents", query=request.messages[-1].text[-200:])
    return "Seven point three two metres [1]."


OWN = {"method": "./my_search.py"}
FLOWS = [
    {"flow": "rag_only", "label": "ours"},
    {"flow": "rag_only", "label": "own", "retrieval": OWN},
    {"flow": "tools", "label": "own tools", "retrieval": OWN},
    {"flow": "tools_rag_fallback", "label": "own fallback", "retrieval": OWN},
]


def opened(mode: str, flows: Any = FLOWS, **options: Any) -> al.Lab:
    model = al.Scripted([reply], loop=True)
    spec = {"datasets": ["laws"], "limit": 2, "embedder": "hashing/hashing-64", "recordings": "recordings", **options}
    return al.Lab(flows=flows, model=model, mode=mode, **spec)


def events(run: Any, flow: str, kind: type) -> list[Any]:
    traces = [run.trace(flow, conversation) for conversation in ("laws-001", "laws-002")]
    return [event for trace in traces for event in trace.events if isinstance(event, kind)]


def test_three_flows_over_a_function_are_recorded_and_replayed_without_it(project: Path) -> None:
    with opened("record") as lab:
        recorded = lab.run_sync(out="recorded")
    assert list(recorded.table().columns) == ["ours", "own", "own tools", "own fallback"]
    turns = len(events(recorded, "ours", Search))
    assert turns and len(events(recorded, "own", Search)) == turns, "one search a turn"
    assert len(events(recorded, "ours", EmbeddingCall)) == turns, "one embedding a turn"
    assert not events(recorded, "own", EmbeddingCall), "a function needs no vector"
    assert events(recorded, "own tools", Search)
    (project / "my_search.py").unlink()
    (project / "rows.jsonl").unlink()
    with opened("replay") as lab:
        again = lab.run_sync(out="replay")
    for flow in ("own", "own tools", "own fallback"):
        searches = events(again, flow, Search)
        assert [event.passages for event in searches] == [e.passages for e in events(recorded, flow, Search)]
        assert all(event.origin == "replay" for event in searches)
    assert not any(flow.errors for flow in again.result.flows.values())


def test_a_store_without_corpus_is_searched_recorded_and_replayed(project: Path) -> None:
    rows = [json.loads(line) for line in (project / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    store = fill(project / "store", [(row["doc_id"], row["title"], row["text"][:400]) for row in rows], 64)
    (project / "laws" / "corpus.jsonl").unlink()
    conversations = project / "laws" / "conversations.jsonl"
    text = re.sub(r', "relevant_doc_ids": \[[^]]*\]', "", conversations.read_text(encoding="utf-8"))
    conversations.write_text(text, encoding="utf-8")
    chroma = {"method": "chroma", "path": "store", "doc_id": "source", "title": "heading"}
    flows = [{"flow": flow, "retrieval": chroma} for flow in ("rag_only", "tools")]
    with opened("record", flows) as lab:
        recorded = lab.run_sync(out="recorded")
    assert events(recorded, "rag_only", Search)[0].passages
    assert len(events(recorded, "rag_only", EmbeddingCall)) == len(events(recorded, "rag_only", Search))
    titles = recorded.trace("tools", "laws-001").events
    assert any(rows[0]["title"] in str(getattr(event, "request", "")) for event in titles), "the tool lists documents"
    store.rename(project / "gone")
    for mode in ("replay", "auto"):
        with opened(mode, flows) as lab:
            again = lab.run_sync(out=mode)
        assert [e.passages for e in events(again, "tools", Search)] == [
            e.passages for e in events(recorded, "tools", Search)
        ]
        assert all(event.origin == "replay" for event in events(again, "rag_only", Search))


def test_a_change_of_the_question_is_a_miss_and_no_search(project: Path) -> None:
    with opened("record", FLOWS[1:2]) as lab:
        lab.run_sync(out="recorded")
    with opened("replay", [{**FLOWS[1], "retrieval": {**OWN, "top_k": 2}}]) as lab:
        (flow,) = lab.run_sync(out="replay").result.flows.values()
    assert flow.errors == flow.turns


def test_an_object_and_a_function_are_retrievers(project: Path) -> None:
    async def nothing(query: str, *, top_k: int, doc_ids: Any) -> list[Any]:
        return []

    with opened("live", ["rag_only"], retrieval__method=nothing) as lab:
        run = lab.run_sync(out="live")
    assert all(event.passages == () and event.index == "nothing" for event in events(run, "rag_only", Search))


def test_settings_of_one_retriever_are_not_for_another(project: Path) -> None:
    flows = [{"flow": "rag_only", "label": "words", "retrieval": {"method": "bm25"}}]
    with opened("live", flows, retrieval={"method": "chroma", "path": "nowhere", "top_k": 3}) as lab:
        run = lab.run_sync(out="live")
    assert {len(event.passages) for event in events(run, "words", Search)} == {3}
    flows = [{"flow": "rag_only", "retrieval": {"method": "chroma", "path": "nowhere"}}]
    with opened("live", flows) as lab, pytest.raises(ConfigError, match="nowhere is not a store of Chroma"):
        lab.run_sync(out="never")
