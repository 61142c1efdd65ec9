"""Run the notebooks again and keep only stable outputs.

python tests/support/notebooks.py [NAME ...]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
LIVE_ONLY = "application/vnd.jupyter.widget-view+json"
"""Output to remove: without a kernel a widget is an empty frame, and its text is in a second output."""

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def execute(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, resources={"metadata": {"path": str(FOLDER)}}, store_widget_state=False, record_timing=False
    )
    client.execute()
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02}"
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(LIVE_ONLY, None)
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    notebook.nbformat_minor = 5
    nbformat.write(notebook, path)


def main() -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            started = time.monotonic()
            execute(path)
            print(f"{path.name}: {time.monotonic() - started:.0f} s, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
