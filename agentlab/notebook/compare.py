"""One question to all flows of a lab, call by call and side by side.

    await show_flows(lab, "How wide is a goal?")          # in a notebook cell: the columns fill as the flows work
    print(show_flows_sync(lab, "How wide is a goal?"))    # in a script

The flows answer one after the other, so that none waits for another's model call. `lab.run` gives means over a data set
with intervals.
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
    columns = [ChatColumn(lab, variant.label) for variant in lab.bench.variants]
    views: Sequence[TurnView] = ()
    with ExitStack() as cleanup:
        cleanup.callback(stop, columns)  # also if the kernel is interrupted
        if (display := notebook_display()) is not None:
            from agentlab.notebook.turn_view import Columns

            widget = Columns(question, columns, partial(stop, columns))
            views, handle = widget.turns, display(widget, display_id=True)
            cleanup.callback(handle.update, {"text/html": ""}, raw=True)
            cleanup.callback(widget.close)
        return await asyncio.wrap_future(lab.loop.submit(ask(question, columns, views)))


def show_flows_sync(lab: Lab, question: str) -> FlowComparison:
    """Run `show_flows` without `await`, in a script or a cell; nothing is shown before the end."""
    return lab.loop.run_coroutine(ask(question, [ChatColumn(lab, variant.label) for variant in lab.bench.variants]))


async def ask(question: str, columns: Sequence[ChatColumn], views: Sequence[TurnView] = ()) -> FlowComparison:
    """Ask one flow after the other; each view shows the answer of its column."""
    answers = []
    for column, view in zip_longest(columns, views):
        answers.append(await (column.answer(question) if view is None else view.show(question)))
        # The background work of a flow ends, and is counted, before the next flow starts.
        await column.close()
    return FlowComparison(question, tuple(answers))


def stop(columns: Iterable[ChatColumn]) -> None:
    """Cancel the running answer and all later ones; earlier answers stay."""
    for column in columns:
        column.stop()
