"""Limits and settings of the coordinator, and one line for a wrong one."""

from __future__ import annotations

import pytest

from agentlab.core.errors import ConfigError
from agentlab.flows import coordinator
from agentlab.workbench.spec import FlowSpec, Spec
from agentlab.workbench.variants import make_variant


async def test_limits_are_the_described_ones_unless_set():
    settings = coordinator.Settings()
    assert (settings.max_history_tokens, settings.max_tool_turns, settings.trim_chunk_size) == (8000, 5, 1000)


def test_missing_instructions_and_wrong_settings_are_one_line():
    for settings, message in (
        ({"system_instruction": "nowhere.txt"}, "nowhere.txt cannot be read"),
        ({"trim_chunk_size": -1}, "trim_chunk_size"),
        ({"context_in": "nowhere"}, "context_in"),
        ({"max_tokens_of_history": 1}, "unknown key"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_variant(Spec(), FlowSpec.model_validate({"flow": "coordinator", **settings}))
