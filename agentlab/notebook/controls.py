"""Buttons, fields and lines of HTML that the widgets of this room are made of.

This file needs ipywidgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

PICKER = {"flex": "1 1 200px", "max_width": "320px"}
FITS, WRAPS = {"width": "auto"}, {"flex_flow": "row wrap"}


def button(name: str, on_click: Callable[[], object], **options: Any) -> Any:
    """As wide as its name; `options` are those of ipywidgets.Button."""
    made = ipywidgets.Button(description=name, layout=FITS, **options)
    made.on_click(lambda clicked: on_click())
    return made


def field(name: str, value: str, options: Sequence[str] = (), *, layout: dict[str, str] = PICKER, **others: Any) -> Any:
    """Where one types, or picks one of `options`."""
    return ipywidgets.Combobox(
        description=name, value=value, options=options, continuous_update=False, layout=layout, **others
    )


def html(name: str, value: str = "") -> Any:
    """HTML of the class `agentlab-<name>`."""
    return ipywidgets.HTML(value, _dom_classes=(f"agentlab-{name}",))
