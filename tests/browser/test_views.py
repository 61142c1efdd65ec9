"""A run and a comparison in JupyterLab: verdict, table, pictures and replies, in both themes and when saved."""

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
BESIDE = """
import agentlab as al
from agentlab import notebook
from support.planted_bug import answer
from agentlab.models.scripted import Scripted
lab = al.Lab(model=Scripted([answer], loop=True), datasets=[folder / "set"], flows=["rag_only", "tools"],
             embedder="hashing/hashing-64")
notebook.show_flows_sync(lab, "Which colour has the card for fees?")
"""
REPLIES = "That is 12 a year", "The card is blue."
"""A reply in the matrix, and a reply in the comparison."""
BACKGROUND = "e => getComputedStyle(e.closest('tr')).backgroundColor"
RUN = "void window.jupyterapp.commands.execute"
OUTPUT = ".jp-OutputArea-output"
NUMBER = "refusal_accuracy (n=8)"
LIGHTNESS = """e => {
  const [r, g, b] = getComputedStyle(e).color.match(/\\d+/g).map(Number);
  return (r + g + b) / 3;
}"""
FILTER = "e => getComputedStyle(e).filter"


def hovered(page: Any) -> list[bool]:
    """Return True for each row that keeps its colour under the mouse: of the matrix, of the comparison, of numbers."""
    stays = []
    for text in (*REPLIES, NUMBER):
        cell = page.locator(f"{OUTPUT} td", has_text=text).last
        cell.scroll_into_view_if_needed()
        page.mouse.move(0, 0)
        before = cell.evaluate(BACKGROUND)
        cell.hover()
        stays.append(cell.evaluate(BACKGROUND) == before)
    return stays


def test_a_run_shows_itself_and_stays_without_a_kernel(jupyter: JupyterServer, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 2400})
    page.goto(jupyter.write_notebook("views", CELL, "run.matrix('flipped')", BESIDE))
    page.wait_for_function(READY)
    page.evaluate(f"{RUN}('apputils:change-theme', {{theme: 'JupyterLab Dark'}})")
    page.evaluate(f"{RUN}('notebook:run-all-cells')")
    for reply in REPLIES:
        page.locator(f"{OUTPUT} td", has_text=reply).last.wait_for()
    pictures = page.locator(f"{OUTPUT} img[src*=svg]")
    assert pictures.count() == 2
    assert all("invert" in picture.evaluate(FILTER) for picture in pictures.all()), "pictures follow the dark theme"
    assert hovered(page) == [True, True, False], "a row of numbers is marked, whole answers are not"
    assert page.locator(f"{OUTPUT} td", has_text=NUMBER).count() == 1
    verdict = page.locator(f"{OUTPUT} strong").first
    assert "rag_only" in verdict.inner_text() and verdict.evaluate(LIGHTNESS) > 150, "light letters in a dark theme"
    (ROOT / "results" / "browser").mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ROOT / "results" / "browser" / "views-dark.png")
    page.evaluate(f"{RUN}('apputils:change-theme', {{theme: 'JupyterLab Light'}})")
    page.wait_for_function("document.body.dataset.jpThemeLight === 'true'")
    assert [picture.evaluate(FILTER) for picture in pictures.all()] == ["none", "none"]
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    page.close()
    # A copy nobody has trusted, opened without a kernel.
    shutil.copy(jupyter.folder / "views.ipynb", jupyter.folder / "received.ipynb")
    page = browser.new_page(viewport={"width": 1000, "height": 2400})
    page.goto(f"{jupyter.url}/doc/tree/received.ipynb")
    page.wait_for_selector(f"{OUTPUT} td:has-text('{NUMBER}')")
    assert page.locator(f"{OUTPUT} strong").first.inner_text() != ""
    page.locator(f"{OUTPUT} td", has_text=REPLIES[0]).first.wait_for(state="attached")
    assert hovered(page) == [True, True, False]
    page.close()
    assert (Path(jupyter.folder) / "views.ipynb").stat().st_size < 200_000
