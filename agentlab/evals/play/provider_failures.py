"""Turns that failed because of the provider; `--resume` plays their conversations again from the first one on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from agentlab.core.errors import RateLimited, Refused, Retryable, ServerFault, Unreachable
from agentlab.core.events import Event, ModelCall
from agentlab.evals.store.rows import TurnRow
from agentlab.wire.keys import in_flight_key
from agentlab.wire.queue import QueuedModel
from agentlab.wire.recorder import Recorder
from agentlab.wire.recording_schema import Completed

_ERRORS = tuple(f"{kind.__name__}:" for kind in (Retryable, RateLimited, Unreachable, ServerFault, Refused))
"""Errors of an outage, a limit or an account, which pass. A refused request stays refused."""


def first_provider_failure(rows: Iterable[TurnRow]) -> int | None:
    """Return the number of the first turn that failed because of the provider; None without one."""
    return next((row.turn for row in rows if (row.error or "").startswith(_ERRORS)), None)


class EarlierAnswers(Recorder):
    """Completions of an earlier attempt at a live conversation, before the turn that failed."""

    def __init__(self, events: Iterable[Event], until: int, model: QueuedModel, epoch: int) -> None:
        super().__init__()
        self._answers: defaultdict[str, list[Completed]] = defaultdict(list)
        for event in events:
            if isinstance(event, ModelCall) and event.turn < until and event.completion and event.error is None:
                key = in_flight_key(model.name, model.endpoint, event.request, epoch)
                entry = Completed(
                    key=key,
                    request={"messages": [], "tools": []},
                    repeat=len(self._answers[key]),
                    seconds=event.seconds,
                    completion=event.completion,
                )
                self._answers[key].append(entry)

    def look_up(self, key: str) -> Any:
        """Return the next completion of this key, or None; each one serves once, in its order."""
        return self._answers[key].pop(0) if self._answers.get(key) else None
