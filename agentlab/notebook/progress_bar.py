"""A progress bar for a run in a notebook, with the time that is left; nothing where there is no notebook.

await lab.run(on_progress=progress())
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentlab.evals.run.runner import RunProgress

BETWEEN_UPDATES = 0.1


def progress() -> Callable[[RunProgress], None]:
    """A callback for `on_progress`; outside a notebook, or without ipywidgets, it does nothing."""
    try:
        from IPython.core.getipython import get_ipython
        from IPython.display import display

        if getattr(get_ipython(), "kernel", None) is None:
            return lambda progress: None
        bar = ProgressBar()
    except ImportError:
        return lambda progress: None
    display(bar.view)  # type: ignore[no-untyped-call]
    return bar.update


class ProgressBar:
    """The bar and the line beside it; updated at most ten times a second, however fast the turns are."""

    def __init__(self) -> None:
        import ipywidgets

        self.bar = ipywidgets.IntProgress(value=0, min=0, max=1, layout={"width": "260px"})
        self.line = ipywidgets.Label("starting")
        self.view: Any = ipywidgets.HBox([self.bar, self.line])
        self._drawn = 0.0

    def update(self, progress: RunProgress) -> None:
        ended = progress.done >= progress.total
        if time.monotonic() - self._drawn < BETWEEN_UPDATES and not ended:
            return
        self._drawn = time.monotonic()
        self.bar.max = max(1, progress.total)
        self.bar.value = progress.done
        if ended:
            self.bar.bar_style = "warning" if progress.failed else "success"
        self.line.value = describe(progress)


def describe(progress: RunProgress) -> str:
    """The line beside the bar."""
    parts = [f"turn {progress.done} of {progress.total}"]
    left = progress.seconds_left
    if left is not None and progress.done < progress.total:
        parts.append(f"about {left:.0f} s left" if left < 90 else f"about {left / 60:.0f} min left")
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    if progress.label and progress.done < progress.total:
        parts.append(progress.label)
    return " · ".join(parts)
