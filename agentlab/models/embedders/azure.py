"""Embeddings of a model deployed on Azure OpenAI; the environment names it as for the chat models of `azure`."""

from __future__ import annotations

from agentlab.core.protocols import Embedder


def identity(name: str) -> tuple[str, str]:
    return f"azure/{name}", "azure"


def connect(name: str, *, dimensions: int | None = None, timeout: float = 60.0) -> Embedder:
    """The deployment `name`; `dimensions` is sent only if given, `timeout` is in seconds."""
    from agentlab.models.embedders.openai_embedder import OpenAIEmbedder  # with the SDK, which only calls need
    from agentlab.models.openai_connection import azure_connection

    return OpenAIEmbedder("azure", name, azure_connection(timeout), dimensions)
