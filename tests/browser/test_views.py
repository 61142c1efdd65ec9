"""A run as the last line of a cell, in JupyterLab: verdict, table, pictures; in a dark theme, and once it was saved."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from support.jupyter import READY, JupyterServer
from support.paths import ROOT

pytestmark = pytest.mark.browser
CELL = """
import pathlib, tempfile
from support.planted_bug import play_planted
folder = pathlib.Path(tempfile.mkdtemp())
run = play_planted(folder / "set", folder / "run", 8)
run
"""
RUN = "void window.jupyterapp.commands.execute"
OUTPUT = ".jp-OutputArea-output"
LIGHTNESS = """e => {
  const [r, g, b] = getComputedStyle(e).color.match(/\\d+/g).map(Number);
  return (r + g + b) / 3;
}"""


def test_a_run_shows_itself_and_stays_when_the_kernel_is_gone(jupyter: JupyterServer, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 2400})
    page.goto(jupyter.write_notebook("views", CELL, "run.matrix('flipped')"))
    page.wait_for_function(READY)
    page.evaluate(f"{RUN}('apputils:change-theme', {{theme: 'JupyterLab Dark'}})")
    page.evaluate(f"{RUN}('notebook:run-all-cells')")
    page.wait_for_selector(f"{OUTPUT} td:has-text('That is 12 a year')")
    assert page.locator(f"{OUTPUT} img[src*=svg], {OUTPUT} svg").count() == 2
    assert page.locator(f"{OUTPUT} td", has_text="refusal_accuracy (n=8)").count() == 1
    verdict = page.locator(f"{OUTPUT} strong").first
    assert "rag_only" in verdict.inner_text() and verdict.evaluate(LIGHTNESS) > 150, "light letters in a dark theme"
    (ROOT / "results" / "browser").mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ROOT / "results" / "browser" / "views-dark.png")
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    page.close()
    # A copy nobody has trusted, opened without a kernel.
    shutil.copy(jupyter.folder / "views.ipynb", jupyter.folder / "received.ipynb")
    page = browser.new_page(viewport={"width": 1000, "height": 2400})
    page.goto(f"{jupyter.url}/doc/tree/received.ipynb")
    page.wait_for_selector(f"{OUTPUT} td:has-text('refusal_accuracy (n=8)')")
    assert page.locator(f"{OUTPUT} strong").first.inner_text() != ""
    page.locator(f"{OUTPUT} td", has_text="That is 12 a year").first.wait_for(state="attached")
    page.close()
    assert (Path(jupyter.folder) / "views.ipynb").stat().st_size < 200_000
