"""What a run may spend: dollars or model calls, counted from the events of its traces."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from agentlab.core.events import Event
from agentlab.core.trace import Totals, Trace, billed
from agentlab.workbench.spec import BudgetSpec

log = logging.getLogger(__name__)


class Budget:
    """The limits of a run, and what was paid for; `before` are events of earlier sittings."""

    def __init__(self, limits: BudgetSpec, before: Iterable[Event]) -> None:
        self._limits = limits
        self._paid = billed(before)

    def count(self, trace: Trace, event: Event) -> None:
        """To be called with each new event."""
        self._paid = Totals.sum([self._paid, billed([event])])

    @property
    def is_spent(self) -> bool:
        usd, calls = self._limits.usd, self._limits.calls
        paid = self._paid.cost_usd
        if usd is not None and paid is None:
            log.warning("a reply reported no tokens, so dollars can no longer be counted; the run stops here")
            return True
        over = (usd is not None and paid is not None and paid >= usd) or (
            calls is not None and self._paid.llm_calls >= calls
        )
        if over:
            spent = paid or 0.0, self._paid.llm_calls
            log.warning("the budget is spent: $%.4f, %d calls; the run stops here and can be resumed", *spent)
        return over
