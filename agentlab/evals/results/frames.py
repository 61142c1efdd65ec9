"""Data frames of what others wrote: cells stay as they are, and are encoded wherever a frame is shown or exported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from agentlab.core.shown import as_cell, as_markdown, printable


class Frame(pd.DataFrame):
    """A DataFrame whose `to_csv` and `to_excel` hold no formula, and whose texts act on no terminal and no page."""

    @property
    def _constructor(self) -> Callable[..., Frame]:
        return Frame

    def encoded(self, encode: Callable[[Any], Any]) -> pd.DataFrame:
        """A plain frame with every text in it, names of rows and columns included, encoded."""

        def cell(value: Any) -> Any:
            return encode(value) if isinstance(value, str) else encode(str(value)) if _is_nested(value) else value

        plain = pd.DataFrame(self)
        texts = [not pd.api.types.is_numeric_dtype(kind) for kind in plain.dtypes]
        columns = [
            plain.iloc[:, place].map(cell) if is_text else plain.iloc[:, place] for place, is_text in enumerate(texts)
        ]
        frame = pd.concat(columns, axis=1) if columns else plain
        return frame.rename(index=cell, columns=cell)

    def __repr__(self) -> str:
        return repr(self.encoded(printable))

    def _repr_html_(self) -> str | None:
        with pd.option_context("display.html.use_mathjax", False):
            shown: Any = self.encoded(printable)
            return str(shown._repr_html_())

    def to_html(self, *arguments: Any, **options: Any) -> Any:
        with pd.option_context("display.html.use_mathjax", False):
            return self.encoded(printable).to_html(*arguments, **options)

    def to_string(self, *arguments: Any, **options: Any) -> Any:
        return self.encoded(printable).to_string(*arguments, **options)

    def to_markdown(self, *arguments: Any, **options: Any) -> Any:
        return self.encoded(as_markdown).to_markdown(*arguments, **options)

    def to_csv(self, *arguments: Any, **options: Any) -> Any:
        return self.encoded(as_cell).to_csv(*arguments, **options)

    def to_excel(self, *arguments: Any, **options: Any) -> None:  # type: ignore[misc]  # final for type checkers
        self.encoded(as_cell).to_excel(*arguments, **options)


def _is_nested(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict))
