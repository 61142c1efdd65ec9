"""The numbers of a run as a data frame that shows itself as one reads it: whole numbers whole, means with intervals."""

from __future__ import annotations

from typing import Any

import pandas as pd

from agentlab.evals.results.rows import FlowSummary


class RunTable(pd.DataFrame):
    """One row a measure, one column a flow; what is computed from it is an ordinary data frame of floats."""

    def shown(self) -> pd.DataFrame:
        """The same as text: `-` for what is not known, of a score its interval at 95 % and the number of turns."""
        scores: dict[str, list[FlowScore]] = self.attrs.get("scores", {})
        rows, names = [], []
        for name, values in zip(self.index, self.to_numpy(), strict=True):
            known = scores.get(name, [])
            counts = sorted({str(n) for _, n in known if n})
            names.append(f"{name} (n={'/'.join(counts)})" if counts else name)
            intervals = [ci95 for ci95, _ in known] or [None] * len(values)
            rows.append([_cell(value, ci95) for value, ci95 in zip(values, intervals, strict=True)])
        return pd.DataFrame(rows, index=names, columns=self.columns)

    def __repr__(self) -> str:
        return (self.shown() if self._is_whole else pd.DataFrame(self)).to_string()

    def _repr_html_(self) -> str:
        return str((self.shown() if self._is_whole else pd.DataFrame(self)).to_html())

    @property
    def _is_whole(self) -> bool:
        """Pandas hands its attributes on to every part; a part is shown as pandas does."""
        return list(self.index) == self.attrs.get("index") and len(self.columns) == self.attrs.get("flows")


FlowScore = tuple[tuple[float, float] | None, int]
"""Interval and number of turns."""


def run_table(flows: dict[str, FlowSummary], columns: dict[str, dict[str, float | None]]) -> RunTable:
    """`columns`: of each flow its measures, means over turns; scores are among them by their names."""
    frame = RunTable(columns)
    metrics = dict.fromkeys(metric for flow in flows.values() for metric in flow.scores)
    scored = {
        m: [(s.ci95, s.n) if (s := flow.scores.get(m)) else (None, 0) for flow in flows.values()] for m in metrics
    }
    frame.attrs = {"scores": scored, "index": list(frame.index), "flows": len(flows)}
    return frame


def _cell(value: Any, ci95: tuple[float, float] | None) -> str:
    if value is None or pd.isna(value):
        return "-"
    if ci95 is not None:
        return "{:.2f} [{:.2f}, {:.2f}]".format(value, *ci95)
    if float(value).is_integer():
        return f"{value:.0f}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
