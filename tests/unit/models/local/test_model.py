"""Connecting to the embedded model, and its server by name, without its weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentlab.core.errors import ConfigError, ContextOverflow, WeightsError
from agentlab.core.messages import Request
from agentlab.models.local import model as local
from agentlab.models.local import server as llama_server
from support.local_model import MODEL, user


class TestConnect:
    def test_names(self) -> None:
        assert local.connect(MODEL).name == f"local/{MODEL}"
        assert local.connect(MODEL).parallel == 1
        with pytest.raises(ConfigError, match=r"Did you mean 'qwen2\.5-coder-0\.5b'"):
            local.connect("qwen2.5-coder-0.5")
        with pytest.raises(ConfigError, match="is not a chat model; known: qwen"):
            local.connect("all-minilm-l6-v2")

    async def test_an_own_file(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        own = tmp_path / "mine.gguf"
        monkeypatch.setenv("AGENTLAB_LOCAL_MODEL", str(own))
        with pytest.raises(ConfigError, match="is not a file"):
            local.connect("whatever")
        own.write_bytes(b"not a GGUF file")
        model = local.connect("whatever")
        assert model.name == "local/mine"
        with pytest.raises(WeightsError, match=r"llama\.cpp cannot run .*mine\.gguf"):
            await model.complete(Request(messages=(user("Hi"),)), lambda text: None)
        assert model.pid is None
        await model.close()

    async def test_missing_weights_are_reported(self, monkeypatch: pytest.MonkeyPatch, own_home: Path) -> None:
        monkeypatch.setenv("AGENTLAB_OFFLINE", "1")
        with pytest.raises(WeightsError, match="AGENTLAB_OFFLINE forbids"):
            await local.connect(MODEL).start()

    def test_a_prompt_cache_is_a_number_of_mebibytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AGENTLAB_PROMPT_CACHE", "1 GB")
        with pytest.raises(ConfigError, match="AGENTLAB_PROMPT_CACHE=1 GB is not a number of MiB"):
            local.connect(MODEL)

    async def test_a_text_that_cannot_fit_is_refused_before_anything_starts(self) -> None:
        model = local.connect(MODEL)
        with pytest.raises(ContextOverflow, match="10000000 characters do not fit in 8192 tokens"):
            await model.complete(Request(messages=(user("x" * 10_000_000),)), lambda text: None)
        assert model.pid is None


def test_the_server_ends_by_itself_where_it_cannot_serve() -> None:
    wanted = {"model": "absent.gguf", "context": 8, "threads": 1, "prompt_cache": 0, "key": "k"}
    command = [sys.executable, "-m", llama_server.__name__]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # Its input stays open: it ends by itself, and says why.
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(json.dumps(wanted) + "\n")
        process.stdin.flush()
        assert process.stdout.read() == ""
        assert "absent.gguf" in process.stderr.read()
    assert process.returncode == 1
