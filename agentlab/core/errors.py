"""Every exception agentlab raises on purpose.

AgentlabError                    one line for the user: what is wrong, where, and what to do
├─ ConfigError                   a spec, flag, environment variable or name that cannot be used
│  ├─ MissingExtra               an optional dependency is not installed
│  └─ ModelUnavailable           a named model that cannot be loaded or reached when it is first called
├─ DatasetError                  a data set that cannot be read; knows file and line
├─ RunError                      a run folder that cannot be used or continued
├─ RecordingError                a recording that is damaged, or that must not be made
├─ NotRecorded                   a replay makes a call without a recording; knows why
├─ WeightsError                  model weights that cannot be fetched or are not the pinned bytes
├─ MemoryUnavailable             the store behind a memory does not respond; it may recover
├─ ToolError                     a tool refused or failed; the model reads its text
└─ ModelError                    a model call failed; knows the model
   ├─ Retryable                  the same call may succeed later (after `retry_after` seconds, if reported)
   │  ├─ RateLimited             the provider asks to wait
   │  ├─ Unreachable             no response: connection refused or lost, time-out
   │  └─ ServerFault             the provider reports a failure of its own (HTTP 5xx)
   │     └─ UnreadableAnswer     the response has no completion; the call is made once more
   ├─ ContextOverflow            the request is longer than the model can read
   ├─ ContentFiltered            a filter of the provider rejects the request
   ├─ Refused                    a key, permission or quota problem (HTTP 401, 402, 403)
   └─ BadRequest                 the provider rejects this request

An error becomes data only where the turn can continue: in a tool call, in background work, with an unavailable memory.
The runner turns any other error into a failed turn, which counts against the flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_MESSAGE_CHARS = 4000
"""Longer messages are truncated."""


class AgentlabError(Exception):
    """Base of all errors; `str()` is one line for the user, even if a name in it has line ends."""

    def __str__(self) -> str:
        line = " ".join(super().__str__().splitlines())
        return line if len(line) <= MAX_MESSAGE_CHARS else f"{line[:MAX_MESSAGE_CHARS]}..."


class Terminated(BaseException):
    """SIGTERM or SIGHUP ends the process; unlike after an interrupt, nothing continues."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"signal {number}")


class ConfigError(AgentlabError):
    """Spec, flag, environment variable or name that cannot be used."""


class MissingExtra(ConfigError):
    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'agentlab-harness[{extra}]'")


@contextmanager
def needs(what: str, extra: str) -> Iterator[None]:
    """Raise MissingExtra if a package that this block imports is not installed."""
    try:
        yield
    except ImportError:
        raise MissingExtra(what, extra) from None


@contextmanager
def os_errors_as(kind: Callable[[str], AgentlabError], before: str, after: str = "") -> Iterator[None]:
    """Raise `kind`, with the system's reason between `before` and `after`, if this block raises OSError."""
    try:
        yield
    except OSError as problem:
        raise kind(f"{before}{problem.strerror or problem}{after}") from None


class ModelUnavailable(ConfigError):
    """Named model that cannot be loaded or reached when it is first called."""


class DatasetError(AgentlabError):
    """Data set that cannot be read; `path` and `line` locate the problem."""

    def __init__(self, problem: str, path: str | Path, line: int | None = None) -> None:
        self.path = Path(path)
        self.line = line
        super().__init__(f"{path}:{line}: {problem}" if line else f"{path}: {problem}")


class RunError(AgentlabError):
    """A run folder that cannot be used or continued."""


class RecordingError(AgentlabError):
    def __init__(self, problem: str, location: str = "") -> None:
        super().__init__(f"{location}: {problem}" if location else problem)


class NotRecorded(AgentlabError):
    def __init__(self, problem: str, cause: str) -> None:
        self.cause = cause
        """Difference from the nearest recording, in a few words that can be counted."""
        super().__init__(problem)


class WeightsError(AgentlabError):
    """Model weights that cannot be fetched or are not the pinned bytes."""


FATAL_ERRORS = (RecordingError, WeightsError, ModelUnavailable)
"""Errors that end the run, not a turn: every later turn would fail too, or would be paid for again."""


class MemoryUnavailable(AgentlabError):
    """The store behind a memory does not respond; it may recover."""


class ToolError(AgentlabError):
    """Refusal or failure of a tool; the model reads its text."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class ModelError(AgentlabError):
    """Failed model call; `model` is the model's name."""

    def __init__(self, problem: str, model: str = "") -> None:
        self.model = model
        super().__init__(f"{model}: {problem}" if model else problem)


class Retryable(ModelError):
    """The same call may succeed later."""

    def __init__(self, problem: str, model: str = "", retry_after: float | None = None) -> None:
        super().__init__(problem, model)
        self.retry_after = retry_after
        """Seconds that the provider asks to wait; None if it reports none."""


class RateLimited(Retryable):
    def __init__(self, problem: str, model: str = "", retry_after: float | None = None, *, other_keys: int = 0) -> None:
        super().__init__(problem, model, retry_after)
        self.other_keys = other_keys
        """Number of keys beside the failed one; the next attempts use them and need not wait."""


class Unreachable(Retryable):
    """No response: connection refused or lost, time-out."""


class ServerFault(Retryable):
    """The provider reports a failure of its own (HTTP 5xx)."""


class UnreadableAnswer(ServerFault):
    """The response contains no completion; the call is made once more."""


class ContextOverflow(ModelError):
    """The request is longer than the model can read."""


class ContentFiltered(ModelError):
    """A filter of the provider rejects the request."""


class Refused(ModelError):
    """Key, permission or quota problem (HTTP 401, 402, 403)."""


class BadRequest(ModelError):
    """The provider rejects this request."""

    parameter = ""
    """Name, as sent, of a parameter that the provider never accepts; "" for any other problem."""
