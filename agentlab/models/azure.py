"""`azure/<deployment>`: a model deployed on Azure OpenAI (`AZURE_OPENAI_ENDPOINT`, `OPENAI_API_VERSION` and a key)."""

from __future__ import annotations

from agentlab.models.chat_model import ChatModel
from agentlab.models.openai_connection import azure_connection


def identity(name: str) -> tuple[str, str]:
    return f"azure/{name}", "azure"


def connect(name: str, *, timeout: float = 600.0) -> ChatModel:
    """The deployment `name`; raises ConfigError for what the environment lacks. `timeout` is for a whole answer."""
    return ChatModel("azure", name, azure_connection(timeout))
