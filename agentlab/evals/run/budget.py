"""What a run may spend: dollars or model calls, counted from the events of its traces."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from agentlab.core.events import Event
from agentlab.core.trace import Trace, billed
from agentlab.workbench.spec import BudgetSpec

log = logging.getLogger(__name__)


class Budget:
    """The limits of a run, and the traces that count against them; `spent_before` are events that nobody keeps."""

    def __init__(self, limits: BudgetSpec, traces: Iterable[Trace], spent_before: Iterable[Event]) -> None:
        self._limits = limits
        # Without limits nothing is kept: ten thousand calls would make every garbage collection a long one.
        self._limited = limits.usd is not None or limits.calls is not None
        self._traces = list(traces) if self._limited else []
        self._spent_before = billed(spent_before)

    def watch(self, trace: Trace) -> None:
        if self._limited:
            self._traces.append(trace)

    @property
    def is_spent(self) -> bool:
        if not self._limited:
            return False
        usd_limit, calls_limit = self._limits.usd, self._limits.calls
        spent = [self._spent_before, *(billed(trace.events) for trace in self._traces)]
        calls = sum(totals.llm_calls for totals in spent)
        if usd_limit is not None and any(totals.cost_usd is None for totals in spent):
            log.warning("a reply reported no tokens, so dollars can no longer be counted; the run stops here")
            return True
        usd = sum(totals.cost_usd or 0.0 for totals in spent)
        over = (usd_limit is not None and usd >= usd_limit) or (calls_limit is not None and calls >= calls_limit)
        if over:
            log.warning("the budget is spent: $%.4f, %d calls; the run stops here and can be resumed", usd, calls)
        return over
