"""Embeddings of OpenAI, or of any server with its embeddings protocol (`OPENAI_BASE_URL`, `OPENAI_API_KEY`).

connect("text-embedding-3-small")
connect("text-embedding-3-large", dimensions=256)       # asks the server for shorter vectors
"""

from __future__ import annotations

from agentlab.core.protocols import Embedder
from agentlab.models.keys import server_and_keys, server_identity


def identity(name: str) -> tuple[str, str]:
    return server_identity("openai", name)


def connect(
    name: str,
    *,
    dimensions: int | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float = 60.0,
) -> Embedder:
    """The embedder `name` on the server given by `OPENAI_BASE_URL`, or OpenAI's own; ConfigError without a key.

    `dimensions` is sent to the server only if given; `timeout` is in seconds.
    """
    from agentlab.models.embedders.openai_embedder import OpenAIEmbedder  # with the SDK, which only calls need
    from agentlab.models.openai_connection import Connection

    address, keys = server_and_keys("openai", "OPENAI_API_KEY", base_url, api_key)
    return OpenAIEmbedder("openai", name, Connection(address, keys, timeout), dimensions)
