"""The loop of a bench: what it changes in the process it leaves as it was."""

from __future__ import annotations

import asyncio
import gc

import pytest

from agentlab.workbench.loop import RunningBench
from agentlab.workbench.spec import Spec


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["as they came", "the other way round"])
def test_the_collector_is_set_back_by_the_last_of_several(own_home, order):
    before = gc.get_threshold()
    benches = [RunningBench(Spec(datasets=["none"], flows=["tools"]), {}) for _ in range(2)]
    for bench in benches:
        bench.wait(asyncio.sleep(0))
    assert gc.get_threshold() != before
    for place in order:
        benches[place].end_loop()
    assert gc.get_threshold() == before
