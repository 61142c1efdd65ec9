"""Verdicts of judge models and results of MCP tools as they are really sent; answers and refusals have own tests."""

from __future__ import annotations

import pytest

from agentlab.evals.judge.rubrics import load_rubric, read_verdict
from agentlab.tools.mcp.answers import to_text_result
from support.wire_forms import siblings


@pytest.mark.parametrize("row", siblings("verdict"), ids=lambda row: row["form"])
def test_a_verdict_is_read_in_any_wrapping_or_not_at_all(row):
    assert read_verdict(row["reply"], load_rubric("correct").choices) == row["verdict"]


@pytest.mark.parametrize("row", siblings("result"), ids=lambda row: row["form"])
def test_a_result_of_a_tool_shows_each_of_its_values_once(row):
    assert to_text_result(row["result"]) == {"text": row["text"], "error": row["is_error"]}
