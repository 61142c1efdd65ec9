"""Every exception agentlab raises on purpose.

AgentlabError                    one line for the user: what is wrong, where, and the mend
├─ ConfigError                   a spec, flag, environment variable or name that cannot be used
│  ├─ MissingExtra               an optional dependency is not installed
│  └─ ModelUnavailable               a model that was named and cannot be had, now that it is to be asked
├─ DatasetError                  a data set that cannot be read; knows file and line
├─ RunError                      a run folder that cannot be used or continued
├─ RecordingError                a recording that is damaged, or that must not be made
├─ NotRecorded                   a replay was asked for a call that was never recorded; knows why
├─ WeightsError                  model weights that cannot be fetched or are not the pinned bytes
├─ MemoryUnavailable             the store behind a memory is gone or does not answer; it may come back
├─ ToolError                     a tool refused or failed; its text is shown to the model
└─ ModelError                    a model call failed; knows the model
   ├─ Retryable                  the same call may go through later
   │  ├─ RateLimited             the provider asks to wait (`retry_after` seconds, if it said)
   │  ├─ Unreachable             no answer: connection refused or lost, time-out
   │  └─ ServerFault             the provider answered that it failed (HTTP 5xx)
   ├─ ContextOverflow            the request is longer than the model can read
   ├─ Refused                    a key, permission or quota problem (HTTP 401, 402, 403)
   └─ BadRequest                 the provider will not take this request

Errors become data only where a step may fail without the turn (a tool's call, of which the model is told; background
work; a memory that is away) and in the runner: the turn is marked failed and counts against the flow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_MESSAGE_CHARS = 4000
"""Characters of a message."""


class AgentlabError(Exception):
    """Base of all; `str()` is the one line shown to the user, whatever names of others stand in it."""

    def __str__(self) -> str:
        line = " ".join(super().__str__().splitlines())
        return line if len(line) <= MAX_MESSAGE_CHARS else f"{line[:MAX_MESSAGE_CHARS]}..."


class Terminated(BaseException):
    """The process is to end, by SIGTERM or SIGHUP; as an interrupt, but nothing goes on after it."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"signal {number}")


class ConfigError(AgentlabError):
    """A spec, flag, environment variable or name that cannot be used."""


class MissingExtra(ConfigError):
    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'agentlab-harness[{extra}]'")


@contextmanager
def needs(what: str, extra: str) -> Iterator[None]:
    """Raise MissingExtra where a package that is imported in this block is not installed."""
    try:
        yield
    except ImportError:
        raise MissingExtra(what, extra) from None


class ModelUnavailable(ConfigError):
    """A model that was named and cannot be had, now that it is to be asked."""


class DatasetError(AgentlabError):
    def __init__(self, problem: str, path: str | Path, line: int | None = None) -> None:
        self.path = Path(path)
        self.line = line
        super().__init__(f"{path}:{line}: {problem}" if line else f"{path}: {problem}")


class RunError(AgentlabError):
    """A run folder that cannot be used or continued."""


class RecordingError(AgentlabError):
    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(f"{where}: {problem}" if where else problem)


class NotRecorded(AgentlabError):
    def __init__(self, problem: str, cause: str) -> None:
        self.cause = cause
        """What differs from the nearest recording, in a few words that can be counted."""
        super().__init__(problem)


class WeightsError(AgentlabError):
    """Model weights that cannot be fetched or are not the pinned bytes."""


FATAL_ERRORS = (RecordingError, WeightsError, ModelUnavailable)
"""No turn could go on without it, or each would be paid for again: it ends the run, not a turn."""


class MemoryUnavailable(AgentlabError):
    """The store behind a memory is gone or does not answer; it may come back."""


class ToolError(AgentlabError):
    def __str__(self) -> str:
        return Exception.__str__(self)


class ModelError(AgentlabError):
    def __init__(self, problem: str, model: str = "") -> None:
        self.model = model
        super().__init__(f"{model}: {problem}" if model else problem)


class Retryable(ModelError):
    """The same call may go through later."""


class RateLimited(Retryable):
    def __init__(self, problem: str, model: str = "", retry_after: float | None = None, *, other_keys: int = 0) -> None:
        super().__init__(problem, model)
        self.retry_after = retry_after
        self.other_keys = other_keys
        """How many keys there are beside the one that failed; the next attempts take those, and need not wait."""


class Unreachable(Retryable):
    """No answer: connection refused or lost, time-out."""


class ServerFault(Retryable):
    """The provider answered that it failed (HTTP 5xx)."""


class ContextOverflow(ModelError):
    """The request is longer than the model can read."""


class Refused(ModelError):
    """A key, permission or quota problem (HTTP 401, 402, 403)."""


class BadRequest(ModelError):
    """The provider will not take this request."""
