"""Searches of a flow's own retriever: unknown unless the flow or the spec reports their documents, never 0."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import ConfigError
from agentlab.core.events import Search
from agentlab.models.scripted import call
from agentlab.session.own_searches import LookupTool

LOOKUPS = ("lookup_accuracy", "retrieval_recall", "retrieval_mrr", "groundedness")
TEXT = "A player is offside when nearer to the goal line than the ball."


async def silent(turn, session):
    """Search with a retriever of its own without reporting the search."""
    completion = await session.complete(turn.text)
    return al.Reply(text=completion.text)


async def noting(turn, session):
    session.note_search(["law11"] if "offside" in turn.text else [{"doc_id": "web", "text": "Nothing."}], turn.text)
    completion = await session.complete(turn.text)
    return al.Reply(text=completion.text)


async def offering(turn, session):
    completion = await session.complete(turn.text, tools=session.tool_specs())
    return al.Reply(text=completion.text)


async def finding(arguments, context):
    return json.dumps({"results": [{"id": "law11", "text": TEXT}, {"id": "law9", "text": "..."}]})


async def calling(turn, session):
    await session.call_tool(call("finding", query="offside").tool_calls[0])
    completion = await session.complete(turn.text)
    return al.Reply(text=completion.text)


@pytest.fixture
def data(tmp_path):
    (folder := tmp_path / "set").mkdir()
    turn = {"user": "When is a player offside?", "reference_answers": ["nearer"], "relevant_doc_ids": ["law11"]}
    rows = [{"id": f"c{n:02}", "turns": [{**turn, "needs_document_lookup": True}]} for n in range(30)]
    (folder / "conversations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "corpus.jsonl").write_text(json.dumps({"doc_id": "law11", "title": "Offside", "text": TEXT}) + "\n")
    return str(folder)


def play(data, out, *flows, **spec):
    model = al.Scripted(["When nearer to the goal line."], loop=True)
    spec = {"embedder": "hashing/hashing-64", **spec}
    with al.Lab(flows=[*flows], datasets=[data], model=model, **spec) as lab:
        return lab.run_sync(out=out)


def test_searches_that_the_session_does_not_see_are_unknown_and_decide_nothing(data, tmp_path, capsys):
    run = play(data, tmp_path / "run", silent, "rag_only", primary=["lookup_accuracy", "llm_calls"])
    assert all(run.means["silent"][name] is None for name in LOOKUPS)
    assert run.means["rag_only"]["lookup_accuracy"] == 1.0
    assert main(["show", str(run.path), "--all"]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "lookup_accuracy" in line and "│" in line)
    assert " - " in row and "Ship " not in out.replace("Ship none", "") and "0.00 [" not in row
    assert main(["compare", str(run.path)]) == 0
    assert "worse in lookup_accuracy" not in capsys.readouterr().out
    assert not [cause for cause in run.causes().itertuples() if "looked nothing up" in str(cause)]


def test_noted_searches_are_graded_like_those_of_the_session(data, tmp_path):
    run = play(data, tmp_path / "run", noting)
    means = run.means["noting"]
    assert [means[name] for name in LOOKUPS[:3]] == [1.0, 1.0, 1.0] and means["groundedness"] > 0.5
    (search,) = [event for event in run.trace("noting", "c00").events if isinstance(event, Search)]
    assert (search.passages[0].text, search.passages[0].title, search.index) == (TEXT, "Offside", "own")


def test_a_flow_that_could_search_and_did_not_has_known_look_ups(data, tmp_path):
    class Offering:
        name = "offering"
        TOOLS = ("lookup_documents",)
        respond = staticmethod(offering)

    run = play(data, tmp_path / "run", Offering())
    assert run.means["offering"]["lookup_accuracy"] == 0.0


def test_spec_names_a_tool_that_searches(data, tmp_path):
    tool = al.tool(description="find", parameters={"query": {"type": "string"}})(finding)

    class Calling:
        name = "calling"
        TOOLS = (tool,)
        respond = staticmethod(calling)

    lookup = {"tool": "finding", "documents": "results"}
    run = play(data, tmp_path / "run", Calling(), lookup=lookup)
    assert [run.means["calling"][name] for name in LOOKUPS[:3]] == [1.0, 1.0, 1.0]
    assert play(data, tmp_path / "without", Calling()).means["calling"]["lookup_accuracy"] is None
    wrong = play(data, tmp_path / "wrong", Calling(), lookup={"tool": "finding", "documents": "hits.id"})
    (search,) = [event for event in wrong.trace("calling", "c00").events if isinstance(event, Search)]
    assert search.passages == ()


def test_what_a_search_found_must_be_documents(data, tmp_path):
    async def careless(turn, session):
        session.note_search(["some text of a web page"])

    run = play(data, tmp_path / "run", careless)
    (error,) = {row.error for row in run.turn_rows()}
    assert error.startswith("ConfigError: a search found 'some text of a web page', which is no document of the data")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_output_of_a_tool_gives_documents_or_one_line(value):
    lookup = LookupTool(tool="t", documents="a.b")
    assert isinstance(lookup.documents_of(json.dumps(value)), list)
    with pytest.raises(ConfigError, match="no JSON"):
        lookup.documents_of("{")
    nested = {"a": [{"b": ["x"]}, {"b": {"doc_id": "y"}}, {"c": 1}]}
    assert lookup.documents_of(json.dumps(nested)) == ["x", {"doc_id": "y"}]
