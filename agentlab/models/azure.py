"""`azure/<deployment>`: a model deployed on Azure OpenAI (`AZURE_OPENAI_ENDPOINT`, `OPENAI_API_VERSION` and a key)."""

from __future__ import annotations

from agentlab.core.protocols import Model


def identity(name: str) -> tuple[str, str]:
    return f"azure/{name}", "azure"


def connect(name: str, *, timeout: float = 600.0) -> Model:
    """The deployment `name`; raises ConfigError for what the environment lacks. `timeout` is for a whole response."""
    from agentlab.models.chat_model import ChatModel  # with the SDK, which only calls need
    from agentlab.models.openai_connection import azure_connection

    return ChatModel("azure", name, azure_connection(timeout))
