"""One question through all flows of a lab, call by call and side by side.

    await show_flows(lab, "How wide is a goal?")          # in a notebook cell: the columns fill while they work
    print(show_flows_sync(lab, "How wide is a goal?"))    # in a script

The flows take their turn one after the other, so that none waits for another's model call. For means over a data set
with intervals there is `lab.run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

from agentlab.lab.lab import Lab
from agentlab.notebook.answers import FlowComparison
from agentlab.notebook.chat_column import ChatColumn
from agentlab.notebook.render import notebook_display

if TYPE_CHECKING:
    from agentlab.notebook.turn_view import TurnView


async def show_flows(lab: Lab, question: str) -> FlowComparison:
    """Ask every flow of `lab` the question, each in a fresh conversation over the lab's documents.

    In a notebook with ipywidgets the columns fill while the flows work, with a button that stops them.
    """
    seats = [ChatColumn(lab, variant.label) for variant in lab.bench.variants]
    views: Sequence[TurnView] = ()
    with ExitStack() as at_the_end:
        at_the_end.callback(stop, seats)  # an interrupt of the kernel ends the work, too
        if (display := notebook_display()) is not None:
            from agentlab.notebook.turn_view import Columns

            columns = Columns(question, seats, partial(stop, seats))
            views, shown = columns.turns, display(columns, display_id=True)
            at_the_end.callback(shown.update, {"text/html": ""}, raw=True)
            at_the_end.callback(columns.close)
        return await asyncio.wrap_future(lab.loop.submit(ask(question, seats, views)))


def show_flows_sync(lab: Lab, question: str) -> FlowComparison:
    """`show_flows` for scripts, and for cells that do not want to await; it shows nothing before the end."""
    return lab.loop.run_coroutine(ask(question, [ChatColumn(lab, variant.label) for variant in lab.bench.variants]))


async def ask(question: str, seats: Sequence[ChatColumn], views: Sequence[TurnView] = ()) -> FlowComparison:
    """Ask one after the other; each view shows what comes in its place."""
    answers = []
    for seat, view in zip_longest(seats, views):
        answers.append(await (seat.answer(question) if view is None else view.show(question)))
        # The next flow begins when this one's background work is done and counted.
        await seat.close()
    return FlowComparison(question, tuple(answers))


def stop(seats: Iterable[ChatColumn]) -> None:
    """Break off the flow that is at work and ask no further one; what has come stays."""
    for seat in seats:
        seat.stop()
