"""The progress bar shows the progress and the remaining time of a run."""

from __future__ import annotations

from agentlab.evals.store.progress import RunProgress
from agentlab.notebook.progress_bar import ProgressBar


def test_progress_bar_shows_progress_and_remaining_time():
    bar = ProgressBar()
    bar.update(RunProgress(done=1, total=3, failed=0, seconds_left=20.0, label="tools · laws-001"))
    assert (bar.bar.value, bar.bar.max) == (1, 3)
    assert bar.line.value == "turn 1 of 3 · about 20 s left · tools · laws-001"
    bar.update(RunProgress(done=2, total=3, failed=0, seconds_left=10.0))
    assert bar.bar.value == 1, "not more than ten updates a second"
    bar.update(RunProgress(done=3, total=3, failed=1, seconds_left=0.0))
    assert (bar.bar.value, bar.bar.bar_style, bar.line.value) == (3, "warning", "turn 3 of 3 · 1 failed")
    bar = ProgressBar()
    bar.update(RunProgress(done=1, total=2, failed=0, seconds_left=240.0))
    assert "about 4 min left" in bar.line.value
