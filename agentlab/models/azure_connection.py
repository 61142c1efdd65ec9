"""The way to a model deployed on Azure OpenAI, through the SDK's client for it.

The environment names it: `AZURE_OPENAI_ENDPOINT`, `OPENAI_API_VERSION`, and `AZURE_OPENAI_API_KEY` (or several keys of
`azure` in the key file) or `AZURE_OPENAI_AD_TOKEN`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from agentlab.core import secrets
from agentlab.core.errors import ConfigError
from agentlab.models.keys import clean_key, load_keys, shared_ring
from agentlab.models.openai_connection import Connection

if TYPE_CHECKING:
    import openai

TOKEN = "AZURE_OPENAI_AD_TOKEN"  # noqa: S105 - the name of a variable


class AzureConnection(Connection):
    """One resource and its keys or token; the SDK puts the deployment into the address."""

    def connect(self, key: str, **options: Any) -> openai.AsyncAzureOpenAI:
        import openai

        credential: Any = {"azure_ad_token" if os.environ.get(TOKEN) else "api_key": key}
        return openai.AsyncAzureOpenAI(azure_endpoint=self.base_url or "", **credential, **options)


def azure_connection(timeout: float) -> AzureConnection:
    """The way to the resource that the environment names; raises ConfigError for what it lacks."""
    token = os.environ.get(TOKEN)
    given = (token,) if token else load_keys("azure", "AZURE_OPENAI_API_KEY")
    keys = tuple(clean_key(key, "the key of azure") for key in given)
    lacking = [name for name in ("AZURE_OPENAI_ENDPOINT", "OPENAI_API_VERSION") if not os.environ.get(name)]
    lacking += [] if keys else ["AZURE_OPENAI_API_KEY"]
    if lacking:
        raise ConfigError(f"azure needs {' and '.join(lacking)}: the portal shows it beside the resource")
    secrets.register(keys, "a key of azure")
    return AzureConnection(os.environ["AZURE_OPENAI_ENDPOINT"].strip(), shared_ring("azure", keys), timeout)
