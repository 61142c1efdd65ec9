"""The notebooks as they are committed: executed, small, and readable without a kernel and without a network."""

from __future__ import annotations

import re
from pathlib import Path

import bleach
import nbformat
import pytest

from support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MAX_BYTES = 1_500_000
TAGS = {
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "img",
    "p",
    "div",
    "span",
    "details",
    "summary",
    "pre",
    "strong",
}


def test_there_are_six_in_order():
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"0{number}" for number in range(1, 7)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_names_its_goal_and_time_and_stores_its_outputs(path: Path):
    notebook = nbformat.read(path, as_version=4)
    first = " ".join(notebook.cells[0].source.split())
    assert "**You will learn**" in first and re.search(r"\*\*Time\*\*: .* minutes to read, \d+ seconds to run", first)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert any("LIVE = False" in cell.source for cell in code), "recordings by default, live with one switch"
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert path.stat().st_size < MAX_BYTES
    kinds = {kind for cell in code for output in cell.outputs for kind in output.get("data", {})}
    assert kinds <= {"text/plain", "text/html", "text/markdown"}, "what a page without a kernel can show"
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_without_a_kernel_and_a_network_the_page_has_its_tables_and_pictures(path: Path):
    from nbconvert import HTMLExporter

    page, _ = HTMLExporter(template_name="basic").from_filename(str(path))
    assert page.count("<table") >= 2, "a table for a table, not the name of an object"
    sources = re.findall(r"<img[^>]* src=\"([^\"]*)", page)
    assert sources and all(source.startswith("data:image/svg+xml;base64,") for source in sources), "nothing is fetched"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_pictures_and_tables_remain_without_scripts_and_styles(path: Path):
    """GitHub drops scripts and styles."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    rendered = [output.data for cell in cells for output in cell.outputs if "data" in output]
    pages = [re.sub(r"<(script|style).*?</\1>", "", data.get("text/html", ""), flags=re.DOTALL) for data in rendered]
    left = bleach.clean("".join(pages), TAGS, {"img": ["src", "alt"]}, {"data"}, strip=True)
    assert left.count('<img src="data:image/svg+xml;base64,') >= 1
    assert "<table>" in left or any("| ---" in data.get("text/markdown", "") for data in rendered)


def test_the_flow_lab_keeps_its_columns_and_the_chat():
    page = (ROOT / "notebooks" / "02_flow_lab.ipynb").read_text(encoding="utf-8")
    assert "agentlab-kept-" in page and "agentlab-badge" in page


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_saved_outputs_hold_no_escape_and_parameters_have_a_cell(path: Path):
    notebook = nbformat.read(path, as_version=4)
    assert not re.search(r"\x1b|\\x1b|\\u001b", "".join(map(str, texts_of(notebook))))
    tagged = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    assert [cell.source.split("  #")[0] for cell in tagged] == ["LIVE = False"], "papermill sets it"
    assert not [cell.source for cell in notebook.cells if cell.cell_type == "code" and '"../' in cell.source]


def texts_of(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """Return the texts of each code cell's outputs, without what differs between two runs."""
    seconds = {r"(?m)^.*latency.*\n?": "", r"(?m)\| 0\.\d\d (\| [a-z ]+ \|)$": r"| SECONDS \1"}
    masks = {
        **seconds,
        r"/tmp/\S+|agentlab-\w+": "PATH",
        r"agentlab-kept-\d+": "KEPT",
        r"src=\"data:[^\"]*\"": "PICTURE",
    }
    cells = []
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        outputs = [output for output in cell.outputs if output.output_type != "stream" or output.name == "stdout"]
        data = [
            [output.get("text", ""), *(text for _, text in sorted(output.get("data", {}).items()))]
            for output in outputs
        ]
        rendered = [text for texts in data for text in texts]
        joined = "\n".join(str(text) for text in rendered)
        for pattern, name in masks.items():
            joined = re.sub(pattern, name, joined)
        cells.append(joined.splitlines())
    return cells


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_saved_outputs_are_of_todays_code_from_any_folder_with_a_parameter(path: Path, tmp_path: Path):
    """Each notebook runs in a folder of its own, as under papermill, and shows its saved outputs.

    papermill inserts its parameters in a cell after the tagged one; the inserted value has to win.
    """
    from nbclient import NotebookClient

    saved = nbformat.read(path, as_version=4)
    again = nbformat.read(path, as_version=4)
    tagged = next(n for n, cell in enumerate(again.cells) if "parameters" in cell.metadata.get("tags", ()))
    again.cells[tagged].source = "LIVE = True"
    again.cells.insert(tagged + 1, nbformat.v4.new_code_cell("# Parameters\nLIVE = False"))
    client = NotebookClient(again, resources={"metadata": {"path": str(tmp_path)}}, store_widget_state=False)
    client.execute()
    del again.cells[tagged + 1]
    for cell in again.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    differing = [
        (number, before[:3], now[:3])
        for number, (before, now) in enumerate(zip(texts_of(saved), texts_of(again), strict=True))
        if before != now
    ]
    assert differing == []
