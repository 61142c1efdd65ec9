"""Buttons, fields and HTML lines of the widgets in this package.

This module needs ipywidgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

PICKER = {"flex": "1 1 200px", "max_width": "320px"}
FITS, WRAPS = {"width": "auto"}, {"flex_flow": "row wrap"}


def button(name: str, on_click: Callable[[], object], **options: Any) -> Any:
    """Return a button as wide as its name; `options` are those of ipywidgets.Button."""
    widget = ipywidgets.Button(description=name, layout=FITS, **options)
    widget.on_click(lambda clicked: on_click())
    return widget


def field(name: str, value: str, options: Sequence[str] = (), *, layout: dict[str, str] = PICKER, **others: Any) -> Any:
    """Return a text field with `options` to choose from."""
    return ipywidgets.Combobox(
        description=name, value=value, options=options, continuous_update=False, layout=layout, **others
    )


def html(name: str, value: str = "") -> Any:
    """Return an HTML widget with the CSS class `agentlab-<name>`."""
    return ipywidgets.HTML(value, _dom_classes=(f"agentlab-{name}",))
