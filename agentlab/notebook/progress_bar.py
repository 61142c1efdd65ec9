"""Progress bar of a run in a notebook, with the time left; `agentlab.notebook.progress` shows it."""

from __future__ import annotations

import time

import ipywidgets

from agentlab.evals.store.progress import RunProgress

BETWEEN_UPDATES = 0.1


class ProgressBar(ipywidgets.HBox):  # type: ignore[misc]  # ipywidgets has no type hints
    """A bar and a line of text, updated at most ten times per second."""

    def __init__(self) -> None:
        self.bar = ipywidgets.IntProgress(value=0, min=0, max=1, layout={"width": "260px"})
        self.line = ipywidgets.Label("starting")
        self._drawn = 0.0
        super().__init__([self.bar, self.line])

    def __repr__(self) -> str:
        return "(a progress bar)"

    def update(self, progress: RunProgress) -> None:
        running = progress.done < progress.total
        if running and time.monotonic() - self._drawn < BETWEEN_UPDATES:
            return
        self._drawn = time.monotonic()
        self.bar.max = max(1, progress.total)
        self.bar.value = progress.done
        if not running:
            self.bar.bar_style = "warning" if progress.failed else "success"
        failed = f"{progress.failed} failed" if progress.failed else ""
        left, label = (progress.eta, progress.label) if running else ("", "")
        parts = [f"turn {progress.done} of {progress.total}", left, failed, label]
        self.line.value = " · ".join(filter(None, parts))
