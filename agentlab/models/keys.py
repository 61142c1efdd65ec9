"""API keys from the environment or `llm_api_keys.json`: used in rotation, and paused after a failure.

    {"openai": ["first key", "second key"], "gemini": ["only key"]}

The file is in the working directory, or at the path `AGENTLAB_KEYS`. A key in the environment (`OPENAI_API_KEY`) has
precedence over the file. Keys never appear in errors, logs, traces or recordings.
"""

from __future__ import annotations

import functools
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from agentlab.core import secrets
from agentlab.core.constants import COMPATIBLE
from agentlab.core.errors import ConfigError, ModelError, RateLimited, Refused
from agentlab.core.files import read_bytes
from agentlab.core.strict_json import parse_json

KEY_FILE = "llm_api_keys.json"
RATE_LIMITED_SECONDS = 30.0
REFUSED_SECONDS = 600.0
"""A pause, not a removal: a key may regain its permission or quota within a run, though it rarely does."""


class KeyRing:
    """The keys of one provider, used in rotation; `clock` is a monotonic clock in seconds."""

    def __init__(self, keys: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.keys = tuple(dict.fromkeys(keys))
        self._clock = clock
        self._turn = 0
        self._available_at = dict.fromkeys(self.keys, 0.0)

    def next_key(self, rank: Callable[[str], float] | None = None) -> str:
        """Return the next key that is not paused; if all are, return the one whose pause ends first.

        `rank` returns the remaining quota of a key: the key with the highest rank is used.
        """
        now = self._clock()
        in_order = self.keys[self._turn :] + self.keys[: self._turn]
        free = [key for key in in_order if self._available_at[key] <= now]
        # `max` returns the first of equal keys, which keeps the rotation.
        key = max(free, key=rank or (lambda key: 0.0)) if free else min(self.keys, key=self._available_at.__getitem__)
        self._turn = self.keys.index(key) + 1
        return key

    def report_failure(self, key: str, error: ModelError) -> ModelError:
        """Pause `key` if the error is its fault, and return the error to raise.

        If another key is free now or soon, that error is RateLimited, so that the call is retried with it.
        """
        if isinstance(error, RateLimited):
            seconds = RATE_LIMITED_SECONDS if error.retry_after is None else error.retry_after
        elif isinstance(error, Refused):
            seconds = REFUSED_SECONDS
        else:
            return error
        now = self._clock()
        # At least one second: with a pause of 0 two keys would alternate forever.
        self._available_at[key] = now + max(seconds, 1.0)
        # The next call uses the key whose pause ends first.
        first = min(self.keys, key=self._available_at.__getitem__)
        soon = self._available_at[first] - now
        text = str(error).removeprefix(f"{error.model}: ")
        if soon <= 0:
            return RateLimited(text, error.model, other_keys=len(self.keys) - 1)
        has_fixed_pause = isinstance(error, Refused) or error.retry_after is not None
        if first != key and soon < REFUSED_SECONDS - 1 and has_fixed_pause:
            return RateLimited(text, error.model, retry_after=soon)
        return error

    def redact(self, text: str) -> str:
        """Return the text of a server on one line of at most 300 characters, with every key masked."""
        text = " ".join(text.split())
        for key in sorted(self.keys, key=len, reverse=True):
            if len(key) > 4:
                text = text.replace(key, "<key>")
        return re.sub(r"sk-[A-Za-z0-9_*-]{6,}|AIza[\w-]{6,}", "<key>", text)[:300]


def server_identity(provider: str, name: str) -> tuple[str, str]:
    """Return the full name of a model or embedder and the kind of server: the provider itself, or `compatible`."""
    return f"{provider}/{name}", COMPATIBLE if os.environ.get(f"{provider.upper()}_BASE_URL") else provider


def server_and_keys(
    provider: str, variable: str, base_url: str | None, api_key: str | None
) -> tuple[str | None, KeyRing]:
    """Return the address of the server, None for the provider's own, and its keys.

    Arguments have precedence over the environment and the key file. Raises ConfigError for an invalid address, and
    without a key if no address is set.
    """
    upper = provider.upper()
    address = (base_url or os.environ.get(f"{upper}_BASE_URL") or "").strip().rstrip("/") or None
    given = (api_key,) if api_key else load_keys(provider, variable)
    keys = tuple(filter(None, (clean_key(key, f"the key of {provider}") for key in given)))
    if not keys and address is None:
        raise ConfigError(
            f"{provider} needs a key: set {upper}_API_KEY, write it into {KEY_FILE}, or set {upper}_BASE_URL to use"
            " another compatible server"
        )
    if address and not re.match(r"https?://[^/]", address):
        raise ConfigError(f"the address {address!r} of {provider} ({upper}_BASE_URL) is not an http:// or https:// one")
    secrets.register(keys, f"a key of {provider}")
    return address, shared_ring(provider, keys or ("none",))


def clean_key(key: str, name: str) -> str:
    """Return the key without surrounding blanks and `Bearer`; raises ConfigError, which never quotes the key."""
    plain = key.strip("\ufeff\u200b\u2060 \t\r\n").removeprefix("Bearer ").strip()
    if plain[:1] in ("'", '"'):
        raise ConfigError(f"{name} is in quotes; remove the quotes")
    if not re.fullmatch(r"[ -~]*", plain):
        raise ConfigError(
            f"{name} contains a character that an HTTP header cannot carry, such as …; copy the key again"
        )
    return plain


@functools.cache
def shared_ring(provider: str, keys: tuple[str, ...]) -> KeyRing:
    """Return the one ring for all models and embedders of a provider, so that they share the pauses."""
    return KeyRing(keys)


def load_keys(provider: str, variable: str) -> tuple[str, ...]:
    """Return the keys of `provider`, () without any; raises ConfigError if the key file is invalid."""
    if given := os.environ.get(variable):
        return (given,)
    file = Path(os.environ.get("AGENTLAB_KEYS") or KEY_FILE)
    try:
        # No error quotes the file: it contains keys.
        document = parse_json(read_bytes(file))
    except FileNotFoundError:
        return ()
    except OSError as problem:
        raise ConfigError(f"cannot read the key file {file}: {problem.strerror}") from None
    except ValueError:
        raise ConfigError(f"{file} is not JSON; write a map from provider to a list of keys") from None
    keys = document.get(provider, []) if isinstance(document, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, str) and key.strip() for key in keys):
        raise ConfigError(
            f"{file}: write a map from provider to a list of keys, such as {{{json.dumps(provider)}: [KEY, ...]}}"
        )
    return tuple(key.strip() for key in keys)
