"""`agentlab chat` on the embedded model in a pseudo-terminal: each flow replies, is interrupted, saved and replayed."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pexpect
import pytest

pytestmark = pytest.mark.real_model
AGENTLAB = str(Path(sys.executable).with_name("agentlab"))
FLOWS = ["rag_only", "tools", "tools_rag_fallback", "chatbox", "discord", "coordinator", "ego"]
ANSWERED = r"model calls? "
LINE_TAKEN = re.escape("\x1b[?2004l")
"""The end of bracketed paste: the text after it is no echo of typed text."""


@pytest.fixture
def terminal(tmp_path: Path):
    """Starts chats in a terminal of 80 columns, which all keep their things in one folder."""
    started = []

    def start(flow: str, greeting: str = "") -> Any:
        short = ["--set", "generation.max_tokens=48"] if flow != "ego" else []
        child = pexpect.spawn(
            AGENTLAB,
            ["chat", flow, "--memory", "kept", *short],
            cwd=tmp_path,
            env={**os.environ, "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm"},
            dimensions=(24, 80),
            encoding="utf-8",
            timeout=400,
        )
        started.append(child)
        child.expect(greeting)
        child.expect("lists the commands")
        child.expect(">")
        return child

    yield start
    for child in started:
        child.close(force=True)


@pytest.mark.parametrize("flow", FLOWS)
def test_chat_replies_cancels_ends_and_saves(flow, terminal, tmp_path):
    chat = terminal(flow)
    chat.sendline("My name is Anna and I live in Bern. What time is it?")
    chat.expect(ANSWERED)
    chat.expect(">")
    chat.sendline("/quit")
    chat.expect(pexpect.EOF)
    chat = terminal(flow, "Continuing your chat with")
    chat.sendline("Tell me a long story about a dog and a cat.")
    chat.expect(LINE_TAKEN)
    chat.expect(r"available|complete|recall|embed|context|history|attempt|memor")
    chat.sendintr()
    chat.expect(r"\(interrupted\)")
    chat.sendline("/save saved")
    chat.expect("replay it with: agentlab run saved/spec.yaml")
    chat.sendline("/quit")
    chat.expect(pexpect.EOF)
    chat.close()
    assert chat.exitstatus == 0
    replayed, status = pexpect.run(
        f"{AGENTLAB} run saved/spec.yaml", cwd=tmp_path, encoding="utf-8", withexitstatus=True, timeout=400
    )
    assert status == 0 and re.search(r"model calls: [1-9]\d* reused, 0 new", replayed), replayed[-1500:]
