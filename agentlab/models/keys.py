"""API keys: from the environment or from `llm_api_keys.json`, taken in turn, those in trouble set aside for a while.

    {"openai": ["first key", "second key"], "gemini": ["only key"]}

The file lies in the working directory, or where `AGENTLAB_KEYS` says; a key in the environment (`OPENAI_API_KEY`) wins
over it. Keys appear nowhere else: not in errors, logs, traces or recordings.
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
from agentlab.core.errors import ConfigError, ModelError, RateLimited, Refused
from agentlab.core.files import read_bytes
from agentlab.core.strict_json import parse_json

KEY_FILE = "llm_api_keys.json"
RATE_LIMITED_SECONDS = 30.0
REFUSED_SECONDS = 600.0
"""A key without permission or quota rarely gets it back within a run, but it may."""


class KeyRing:
    """Keys of one provider, taken in turn at every call; `clock` is in seconds and only goes forward."""

    def __init__(self, keys: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.keys = tuple(dict.fromkeys(keys))
        self._clock = clock
        self._turn = 0
        self._available_at = dict.fromkeys(self.keys, 0.0)

    def next_key(self, rank: Callable[[str], float] | None = None) -> str:
        """The next key that is not set aside, of those with the highest `rank`; where all are, the first to come back.

        `rank` says how much is left of what a provider allows a key.
        """
        now = self._clock()
        inturn = self.keys[self._turn :] + self.keys[: self._turn]
        free = [key for key in inturn if self._available_at[key] <= now]
        # Of equals the first in turn.
        key = max(free, key=rank or (lambda key: 0.0)) if free else self._first_back()
        self._turn = self.keys.index(key) + 1
        return key

    def _first_back(self) -> str:
        return min(self.keys, key=self._available_at.__getitem__)

    def report_failure(self, key: str, error: ModelError) -> ModelError:
        """The error of a call with `key`, which is left alone for a while if it was its fault; where another key can be
        taken meanwhile, at once or soon, the error that is returned says so."""
        if isinstance(error, RateLimited):
            seconds = RATE_LIMITED_SECONDS if error.retry_after is None else error.retry_after
        elif isinstance(error, Refused):
            seconds = REFUSED_SECONDS
        else:
            return error
        now = self._clock()
        # A second at least, or two keys that are told to come back at once would take turns for ever.
        self._available_at[key] = now + max(seconds, 1.0)
        # Whichever key comes back first is asked next, whatever is wrong with this one.
        first = self._first_back()
        soon = self._available_at[first] - now
        told = str(error).removeprefix(f"{error.model}: ")
        if soon <= 0:
            return RateLimited(told, error.model, other_keys=len(self.keys) - 1)
        is_urged = isinstance(error, Refused) or error.retry_after is not None
        if first != key and soon < REFUSED_SECONDS - 1 and is_urged:
            return RateLimited(told, error.model, retry_after=soon)
        return error

    def redact(self, said: str) -> str:
        """What a server said, on one line and shortened, without any of the keys or what looks like one."""
        text = " ".join(said.split())
        for key in sorted(self.keys, key=len, reverse=True):
            if len(key) > 4:
                text = text.replace(key, "<key>")
        return re.sub(r"sk-[A-Za-z0-9_*-]{6,}|AIza[\w-]{6,}", "<key>", text)[:300]


def server_identity(provider: str, name: str) -> tuple[str, str]:
    """What a model or embedder answers under, and the kind of server: the provider's own, or a compatible one."""
    return f"{provider}/{name}", "compatible" if os.environ.get(f"{provider.upper()}_BASE_URL") else provider


def server_and_keys(
    provider: str, variable: str, base_url: str | None, api_key: str | None
) -> tuple[str | None, KeyRing]:
    """The address to ask, None for the provider's own, and the keys: as given, else of the environment or the file.

    Raises ConfigError without a key, unless a server of one's own is named, and for what is no address.
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
        raise ConfigError(f"{upper}_BASE_URL={address!r} is not an http:// or https:// address")
    secrets.register(keys, f"a key of {provider}")
    return address, shared_ring(provider, keys or ("none",))


def clean_key(key: str, name: str) -> str:
    """The key without the blanks and marks around it; raises ConfigError, without the key, for what is no key."""
    plain = key.strip("\ufeff\u200b\u2060 \t\r\n")
    plain = plain.removeprefix("Bearer ").strip()
    if plain[:1] in ("'", '"'):
        raise ConfigError(f"{name} stands in quotes; give it without them")
    if not re.fullmatch(r"[ -~]*", plain):
        raise ConfigError(f"{name} holds a character that no header can carry, such as …; copy it again")
    return plain


@functools.cache
def shared_ring(provider: str, keys: tuple[str, ...]) -> KeyRing:
    """One for all models and embedders of a provider: what is wrong with a key, all of them know."""
    return KeyRing(keys)


def load_keys(provider: str, variable: str) -> tuple[str, ...]:
    """The keys of `provider`, () where there are none; raises ConfigError for a file that cannot be used."""
    given = os.environ.get(variable)
    if given:
        return (given,)
    file = Path(os.environ.get("AGENTLAB_KEYS") or KEY_FILE)
    try:
        # What is wrong is said without quoting the file: it holds keys.
        found = parse_json(read_bytes(file))
    except FileNotFoundError:
        return ()
    except OSError as problem:
        raise ConfigError(f"cannot read the key file {file}: {problem.strerror}") from None
    except ValueError:
        raise ConfigError(f"{file} is not JSON; it maps a provider to a list of keys") from None
    keys = found.get(provider, []) if isinstance(found, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, str) and key.strip() for key in keys):
        raise ConfigError(f"{file}: it maps a provider to a list of keys, as in {{{json.dumps(provider)}: [KEY, ...]}}")
    return tuple(key.strip() for key in keys)
