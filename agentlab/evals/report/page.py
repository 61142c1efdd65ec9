"""The page of a run: one HTML file that needs no network and trusts no text of the run.

    report(run).save("run.html")            # or: agentlab report RUN -o run.html

Untrusted text is JSON that cannot close its element, and the script shows it as text only. A Content-Security-Policy
allows the page's own script and style by their hashes, and forbids every address.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentlab.core.errors import RunError, os_errors_as
from agentlab.core.escaping import as_html, escape_json, one_line
from agentlab.core.files import write_atomically
from agentlab.core.version import __version__
from agentlab.evals.compare.measure_verdict import ESTIMAND
from agentlab.evals.report.content import Content
from agentlab.evals.report.drawing import Picture, forest, pareto
from agentlab.evals.store.run import StoredRun

HERE = Path(__file__).parent
SCRIPTS = ("figures.js", "matrix.js", "drawer.js", "start.js")


class Page:
    """An HTML document; a notebook shows it in a frame."""

    def __init__(self, text: str, title: str) -> None:
        self.text, self.title = text, title

    def save(self, path: str | Path) -> Path:
        """Write the page; raises RunError if the file cannot be written."""
        path = Path(path)
        with os_errors_as(RunError, f"{path}: the report cannot be written: "):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, self.text)
        return path

    def __repr__(self) -> str:
        return f"<Page of {one_line(self.title)}: {len(self.text) / 1e6:.1f} MB; .save('run.html') writes it>"

    def _repr_html_(self) -> str:
        frame = 'sandbox="allow-scripts" width="100%" height="900" style="border: 0"'
        return f'<iframe {frame} srcdoc="{as_html(self.text)}"></iframe>'


def report(run: StoredRun, other: StoredRun | None = None) -> Page:
    """Return the page of one run, or of two side by side; raises RunError if a run has not ended."""
    runs = [run] if other is None else [run, other]
    content = Content(runs)
    folders = " ".join(shlex.quote(str(each.path)) for each in runs)
    title = " and ".join(each.run_id for each in runs)
    figures = {"plot": pareto(content, *content.axes)}
    if pairs := content.pairs:
        figures |= {"forest": forest(content, pairs), "others": forest(content, pairs, primary=False)}
    data = {
        "title": title,
        "agentlab": __version__,
        "command": f"agentlab report {folders} -o run.html",
        "folders": folders,
        "verdict": content.verdict._asdict(),
        **content.as_json(),
    }
    return Page(_document(data, figures, content.caption), title)


def _document(data: Mapping[str, Any], figures: Mapping[str, Picture], caption: str) -> str:
    """Return the page as HTML."""
    # A "<" in a text could close the element that contains the data.
    json_text = escape_json(json.dumps(data, separators=(",", ":"), allow_nan=False)).replace("<", "\\u003c")
    script = "\n".join((HERE / name).read_text(encoding="utf-8") for name in SCRIPTS)
    style = (HERE / "page.css").read_text(encoding="utf-8")
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src blob:; base-uri 'none'"
    parts = {"title": as_html(data["title"]), "policy": policy, "style": style, "script": script, "data": json_text}
    parts |= {"caption": as_html(caption), "estimand": ESTIMAND, "forest": "", "others": ""}
    parts["forest_title"] = "Nothing to compare: the page has one flow"
    parts |= {name: as_html(figure.svg) for name, figure in figures.items()}
    parts |= {f"{name}_title": as_html(one_line(figure.title)) for name, figure in figures.items()}
    text = (HERE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"{{(\w+)}}", lambda name: parts[name[1]], text)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
