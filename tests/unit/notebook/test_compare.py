"""One question through all flows, side by side."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

import agentlab as al
from agentlab import notebook
from agentlab.core.errors import Refused
from agentlab.models.scripted import Scripted
from agentlab.notebook.chat_column import ChatColumn
from agentlab.notebook.compare import ask, stop
from agentlab.notebook.turn_view import Columns
from support.widgets import ANSWER, EVIL, LOOKUP, Slow, everything, until


async def test_show_flows_puts_every_call_of_every_flow_side_by_side(lab_over):
    lab = lab_over(Scripted([f"{ANSWER} {EVIL}", LOOKUP, "Seven metres.", "No idea.", ANSWER]))
    view = await notebook.show_flows(lab, "How wide is a goal?")
    text = repr(view)
    assert [answer.flow for answer in view.answers] == ["rag_only", "tools", "tools_rag_fallback"]
    assert text.index("select_tool: calls lookup_documents") < text.index(
        "tool: lookup_documents(document_names=[], query="
    )
    assert text.index("decision: fallback needed? yes") < text.index("fallback: ")
    assert "    = Seven metres.\n" in text
    for answer in view.answers:
        totals = answer.trace.totals()
        assert f"{totals.input_tokens} in, {totals.output_tokens} out" in str(answer).splitlines()[-1]
    html = view._repr_html_()
    assert html.count("<td") == 3 and "<script" not in html and "&lt;script&gt;" in html
    assert view["tools"].reply.text == "Seven metres."
    with pytest.raises(al.AgentlabError, match="unknown flow of this comparison 'tool'"):
        view["tool"]


def test_show_flows_sync_and_a_flow_that_fails_does_not_hide_the_others(lab_over):
    lab = lab_over(Scripted([Refused(f"no {EVIL}"), ANSWER]), flows=["rag_only", "tools"])
    view = notebook.show_flows_sync(lab, "How wide is a goal?")
    assert view["rag_only"].reply is None and "    ! no" in repr(view)
    assert view["tools"].reply.text == ANSWER
    assert "<script" not in view._repr_html_()


async def test_columns_fill_while_the_flows_work_and_stop_keeps_what_came(lab_over):
    model = Slow("one two three", pause="three")
    lab = lab_over(model, flows=["rag_only", {"flow": "rag_only", "label": "second"}])
    seats = [ChatColumn(lab, variant.label) for variant in lab.bench.variants]
    columns = Columns("Count", seats, partial(stop, seats))
    answering = asyncio.wrap_future(lab.loop.submit(ask("Count", seats, columns.turns)))
    await until(lambda: "two" in everything(columns))
    page = everything(columns)
    assert "agentlab-running" in page and "waiting for the flow before it" in page and "three" not in page
    await until(lambda: " · 1 s" in everything(columns))
    columns.stop_button.click()
    rendered = await answering
    assert [answer.error for answer in rendered.answers] == ["stopped", "stopped"]
    assert "one two" in rendered._repr_html_() and "agentlab-running" not in rendered._repr_html_()
    assert all("stopped" in turn.footer.value for turn in columns.turns)
    assert rendered["rag_only"].trace.totals().input_tokens is None, "what was cancelled is not known"
    assert rendered["second"].trace.totals().llm_calls == 0
