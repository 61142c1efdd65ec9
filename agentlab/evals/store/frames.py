"""Data frames of untrusted text: cells stay unchanged, and are encoded when a frame is shown or exported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from msgspec import UNSET
from pandas.api.types import is_numeric_dtype

from agentlab.core.escaping import as_csv_cell, as_markdown, escape_surrogates, printable
from agentlab.evals.store.measures import format_number, score_text
from agentlab.evals.store.rows import FlowSummary


def _with_encoded_texts(name: str, encode: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a method that calls the frame's method `name` on a copy with every text encoded."""

    def method(self: Frame, *arguments: Any, **options: Any) -> Any:
        with pd.option_context("display.html.use_mathjax", False):
            return getattr(self.encoded(encode), name)(*arguments, **options)

    return method


class Frame(pd.DataFrame):
    """DataFrame whose CSV and Excel files contain no formula, and whose texts are safe on terminals and pages."""

    @property
    def _constructor(self) -> Callable[..., Frame]:
        return Frame

    def encoded(self, encode: Callable[[Any], Any]) -> pd.DataFrame:
        """Return a plain frame with every text encoded, names of rows and columns included."""

        def cell(value: Any) -> Any:
            nested = isinstance(value, (list, tuple, dict))
            return encode(str(value)) if nested or isinstance(value, str) else value

        plain = pd.DataFrame(self)
        frame: pd.DataFrame = plain.apply(lambda column: column if is_numeric_dtype(column.dtype) else column.map(cell))
        return frame.rename(index=cell, columns=cell)

    __repr__: Any = _with_encoded_texts("__repr__", printable)
    _repr_html_: Any = _with_encoded_texts("_repr_html_", printable)
    to_html: Any = _with_encoded_texts("to_html", printable)
    to_string: Any = _with_encoded_texts("to_string", printable)
    to_markdown: Any = _with_encoded_texts("to_markdown", as_markdown)
    to_csv: Any = _with_encoded_texts("to_csv", as_csv_cell)
    to_excel: Any = _with_encoded_texts("to_excel", as_csv_cell)  # type: ignore[misc]  # final for type checkers


def frame_of(rows: Sequence[Mapping[str, Any]], columns: list[str] | None = None) -> Frame:
    """Return a frame of `rows`; half a surrogate pair is escaped, since no text column can store it."""
    texts = [
        {name: escape_surrogates(cell) if isinstance(cell, str) else cell for name, cell in row.items()} for row in rows
    ]
    return Frame(texts, columns=columns)


class RunTable(Frame):
    """Table with one row per measure and one column per flow; arithmetic on it gives a plain frame of floats."""

    def as_text(self) -> pd.DataFrame:
        """Return the table as text: `-` if unknown, scores with their 95 % interval and number of turns."""
        flows: Mapping[str, FlowSummary] = self.attrs["flows"]
        rows, names = [], []
        for name, values in zip(self.index, self.to_numpy(), strict=True):
            scores = [flows[label].scores.get(name) if label in flows else None for label in self.columns]
            counts = sorted({str(score.n) for score in scores if score})
            names.append(f"{name} (n={'/'.join(counts)})" if counts else name)
            rows.append(
                [
                    score_text(score) if score and score.ci95 else format_number(None if pd.isna(value) else value)
                    for value, score in zip(values, scores, strict=True)
                ]
            )
        return pd.DataFrame(rows, index=names, columns=self.columns)

    def __repr__(self) -> str:
        return str(Frame(self.as_text()).to_string())

    def _repr_html_(self) -> str:
        return str(Frame(self.as_text()).to_html())


def run_table(flows: Mapping[str, FlowSummary]) -> RunTable:
    """Return the table of the flows: totals, means over turns, and scores by name."""
    frame = RunTable({label: _column(flow) for label, flow in flows.items()})
    frame.attrs = {"flows": dict(flows)}
    return frame


def _column(flow: FlowSummary) -> dict[str, float | None]:
    return {
        "turns": flow.turns,
        "errors": flow.errors,
        "LLM calls / turn": flow.llm_calls_per_turn,
        "embedding calls / turn": flow.embedding_calls_per_turn,
        "tool calls / turn": flow.tool_calls_per_turn,
        "memory operations / turn": flow.per_turn("memory_ops"),
        "memory tokens / turn": flow.memory_tokens_per_turn,
        "fallback rate": flow.fallback_rate,
        "input tokens / turn": flow.per_turn("input_tokens"),
        "output tokens / turn": flow.per_turn("output_tokens"),
        **({} if flow.retrieval_steps is UNSET else {"retrieval steps / turn": flow.per_turn("retrieval_steps")}),
        "cost USD": flow.cost_usd,
        "latency mean s": flow.latency_s["mean"],
        "latency p95 s": flow.latency_s["p95"],
        **{metric: score.mean for metric, score in flow.scores.items()},
    }
