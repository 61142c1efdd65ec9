"""The exact search ranks like the plain formula."""

from __future__ import annotations

import numpy as np

from agentlab.core.messages import Fact
from agentlab.memory.base import unit
from agentlab.memory.exact import VectorTable
from support.memories import NOW


def test_a_table_ranks_like_the_plain_formula_whatever_is_put_and_removed():
    random = np.random.default_rng(3)
    table, plain = VectorTable(), {}
    for number in range(300):
        row = unit(random.integers(-2, 3, 8))
        table.put([Fact(id=str(number), text="t", created=NOW)], [row])
        plain[str(number)] = row
        if number % 3 == 0:
            removed = str(random.choice(list(plain)))
            table.erase(removed)
            del plain[removed]
        if number % 50 == 49:
            twin = table.copy()
            twin.erase(None)
            query = unit(random.integers(-2, 3, 8))
            best = sorted(plain, key=lambda name: -round(float(np.float64(plain[name]) @ np.float64(query)), 6))
            for count in (1, 7, 1000):
                assert [fact.id for fact in table.nearest(query, count)] == best[:count]
            assert [fact.id for fact in table.all()] == list(plain)
