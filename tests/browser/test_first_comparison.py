"""A first comparison after `make lab`, with the notebooks as the only guide."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from support.jupyter import READY, RUN_CELL, STARTING, JupyterServer
from support.paths import ROOT

pytestmark = pytest.mark.browser
OUTPUT = ".jp-OutputArea-output"
RUN_ALL = "void window.jupyterapp.commands.execute('notebook:run-all-cells')"
DONE = """
() => {
  const cells = window.jupyterapp.shell.currentWidget.content.widgets.filter(cell => cell.model.type === 'code');
  const idle = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle';
  return idle && cells.every(cell => cell.model.executionCount > 0);
}
"""
OWN = """
async def short(turn, session):
    passages = await session.retrieve(turn.text, top_k=1)
    completion = await session.complete(f"In three words, from this: {passages[0]}. {turn.text}")
    return al.Reply(text=" ".join(completion.text.split()[-3:]))

added = {"user": "For how long may I keep books?", "reference_answers": ["four weeks"], "relevant_doc_ids": ["loans"]}
with (home / "library" / "conversations.jsonl").open("a") as file:
    print(json.dumps({"id": "keeping", "turns": [added]}), file=file)
own = al.Lab(flows=[terse, short], datasets=[home / "library"], model=model, embedder="hashing/hashing-256")
run = await own.run(out=home / "mine")
run
"""


@pytest.mark.parametrize("name", ["01_quick_tour", "06_your_own"])
def test_notebook_runs_and_an_added_cell_compares_two_flows(jupyter: JupyterServer, browser: Any, name: str):
    for folder in ("notebooks", "datasets", "evals"):
        if not (jupyter.folder / folder).exists():
            shutil.copytree(ROOT / folder, jupyter.folder / folder, ignore=shutil.ignore_patterns("*.lock"))
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.goto(f"{jupyter.url}/doc/tree/notebooks/{name}.ipynb")
    page.wait_for_function(READY)
    page.evaluate(RUN_ALL)
    page.wait_for_function(DONE, timeout=2 * STARTING)
    page.locator(f"{OUTPUT} img[src^='data:image/svg']").first.wait_for(state="attached")
    assert page.locator(f"{OUTPUT}[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    if name == "06_your_own":
        rendered = page.evaluate(RUN_CELL, OWN)
        assert "short" in rendered and "conversations" in rendered
        page.locator(f"{OUTPUT} td", has_text="answer_f1 (n=").last.wait_for()
    page.close()
