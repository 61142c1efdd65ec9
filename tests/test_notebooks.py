"""The notebooks as they are committed: executed, small, and readable without a kernel and without a network."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from support.places import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_BYTES = 1_500_000


def test_there_are_six_in_order():
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"0{number}" for number in range(1, 7)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_says_what_one_learns_and_how_long_it_takes_and_holds_what_it_shows(path: Path):
    notebook = nbformat.read(path, as_version=4)
    first = notebook.cells[0].source
    assert "**You will learn**" in first and re.search(r"\*\*Time\*\*: .* minutes to read, \d+ seconds to\s+run", first)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert any("LIVE = False" in cell.source for cell in code), "recordings by default, live with one switch"
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert path.stat().st_size < MOST_BYTES
    kinds = {kind for cell in code for output in cell.outputs for kind in output.get("data", {})}
    assert kinds <= {"text/plain", "text/html", "text/markdown"}, "what a page without a kernel can show"
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_without_a_kernel_the_page_has_its_tables(path: Path):
    from nbconvert import HTMLExporter

    page, _ = HTMLExporter().from_filename(str(path))
    tables = page.count("<table")
    assert tables >= 2, "a table for a table, not the name of an object"


def test_the_flow_lab_keeps_its_columns_and_the_chat():
    page = (ROOT / "notebooks" / "02_flow_lab.ipynb").read_text(encoding="utf-8")
    assert "agentlab-kept-" in page and "agentlab-badge" in page
