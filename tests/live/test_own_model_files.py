"""A model file that the catalogue does not know, by its path and from a hub on this machine: tried, then used."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from agentlab.cli.parser import main
from agentlab.core.messages import Request
from agentlab.core.plugins import resolve
from agentlab.models import weights
from support.local_model import LOOKUP, MODEL, user
from support.model_hub import Hubs

pytestmark = pytest.mark.real_model


async def test_a_file_of_a_hub_and_its_path_are_tried_once_and_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (file,) = weights.fetch(MODEL).values()
    hub = Hubs()
    hub.body = file.read_bytes()
    threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setenv("AGENTLAB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    for switch in ("AGENTLAB_OFFLINE", "HF_HUB_OFFLINE", "AGENTLAB_LOCAL_MODEL"):
        monkeypatch.delenv(switch, raising=False)
    sha256 = hashlib.sha256(hub.body).hexdigest()
    replies = []
    try:
        for name in (f"hf:org/coder-GGUF/coder.gguf@{sha256}", str(file)):
            model = resolve("models", "local").connect(name, context=1024)
            about = {"tools": (LOOKUP,), "tool_choice": "required", "temperature": 0, "max_tokens": 48}
            request = Request(messages=(user("How wide is a goal?"),), **about)
            replies.append((await model.complete(request, lambda text: None)).message)
            await model.close()
    finally:
        hub.shutdown()
        hub.server_close()
    assert replies[0] == replies[1] and [call.name for call in replies[0].tool_calls] == [LOOKUP.name]
    assert len([*(tmp_path / "home" / "trials").rglob("*.json")]) == 1, "the same content is tried once"
    main(["doctor"])
    assert "chat template of the file; system role; calls tools" in capsys.readouterr().out
