"""`openai/<model>`: any server with OpenAI's chat completions (`OPENAI_BASE_URL`, `OPENAI_API_KEY` or key file)."""

from __future__ import annotations

from agentlab.core.protocols import Model
from agentlab.models.keys import server_and_keys, server_identity


def identity(name: str) -> tuple[str, str]:
    return server_identity("openai", name)


def connect(name: str, *, base_url: str | None = None, api_key: str | None = None, timeout: float = 600.0) -> Model:
    """The model `name` on the server given by `OPENAI_BASE_URL`, or OpenAI's own; raises ConfigError without a key.

    `timeout` is in seconds, for a whole response; two minutes of silence end it, too.
    """
    from agentlab.models.chat_model import ChatModel  # with the SDK, which only calls need
    from agentlab.models.openai_connection import Connection

    address, keys = server_and_keys("openai", "OPENAI_API_KEY", base_url, api_key)
    return ChatModel("openai", name, Connection(address, keys, timeout))
