"""JupyterLab on 127.0.0.1 over a temporary folder, and a notebook of it in a real browser."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from textwrap import dedent
from typing import Any

import nbformat

from support.paths import TESTS

STARTING = 120_000
"""Milliseconds that a page, a kernel, or a cell that imports agentlab, may take on a busy machine."""
SETTLED = {
    "apputils-extension/notification": '{"fetchNews": "false"}',
    "notebook-extension/tracker": '{"autoStartDefaultKernel": true}',
}
"""Settings that suppress JupyterLab's first questions to a user."""
READY = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
RUN_CELL = """
async source => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  const run = name => window.jupyterapp.commands.execute(name);
  notebook.activeCellIndex = notebook.widgets.length - 1;
  await run('notebook:insert-cell-below');
  notebook.activeCell.model.sharedModel.setSource(source);
  const cell = notebook.activeCell;
  await run('notebook:run-cell');
  const output = () => cell.outputArea.node.querySelector('.jp-OutputArea-output');
  while (!output()) await new Promise(later => setTimeout(later, 100));
  return output().innerText.trim();
}
"""
WATCH = """
() => {
  // Every text that ever stood in a reply area, turn by turn; a turn's reply area is one element for good.
  window.seen = new Map();
  window.attacked = [];
  window.alert = text => window.attacked.push(String(text));
  const look = () => document.querySelectorAll('.agentlab-reply').forEach(area => {
    const texts = window.seen.get(area) || [];
    const text = area.innerText.trim();
    if (texts[texts.length - 1] !== text) texts.push(text);
    window.seen.set(area, texts);
  });
  new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
}
"""


class JupyterServer:
    """A server without password in a process of its own; `stop` ends it."""

    def __init__(self, folder: Path, home: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.folder = folder
        settings = [
            *("--no-browser", "--allow-root", f"--port={port}", "--ip=127.0.0.1", f"--ServerApp.root_dir={folder}"),
            *("--IdentityProvider.token=", "--ServerApp.port_retries=0"),
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
            "--LabApp.extension_manager=readonly",
            "--LabApp.expose_app_in_browser=True",
        ]
        own = {name: str(home / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
        own |= {"IPYTHONDIR": str(home / "ipython"), "AGENTLAB_HOME": str(home / "agentlab")}
        paths = os.pathsep.join([str(TESTS), str(TESTS.parent)])
        for name, setting in SETTLED.items():
            file = home / "JUPYTER_CONFIG_DIR/lab/user-settings/@jupyterlab" / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True)
            file.write_text(setting)
        with (home / "jupyter.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *settings],
                env={**os.environ, **own, "PYTHONPATH": paths},
                stdout=log,
                stderr=log,
            )
        for _ in range(1_200):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/api", timeout=5):
                return
            assert self._process.poll() is None, (home / "jupyter.log").read_text()
            time.sleep(0.1)
        raise AssertionError("JupyterLab does not come up")

    def write_notebook(self, name: str, *cells: str) -> str:
        """The address of a new notebook with these cells."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(dedent(cell).strip()) for cell in cells])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, self.folder / f"{name}.ipynb")
        return f"{self.url}/doc/tree/{name}.ipynb"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)


class ChatPage:
    """The chat widget of a notebook whose cells have been run, as a user sees and works it."""

    def __init__(self, page: Any, address: str, pictures: Path) -> None:
        self.page = page
        self._pictures = pictures
        page.goto(address)
        page.evaluate(WATCH)
        page.wait_for_function(READY)
        page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")
        page.get_by_placeholder("Type a message").wait_for()

    def ask(self, text: str) -> None:
        box = self.page.get_by_placeholder("Type a message")
        box.fill(text)
        box.press("Enter")

    def click(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def part(self, name: str, turn: int) -> Any:
        """Return a part of a turn: its `steps`, `reply`, `canvas` or `footer`."""
        return self.page.locator(f".agentlab-{name}").nth(turn)

    def wait_for(self, name: str, turn: int, text: str) -> None:
        """Wait until the text is shown, as a part of the content."""
        self.part(name, turn).filter(has_text=text).wait_for(state="attached")

    def wait_for_end(self, turn: int) -> None:
        self.wait_for("footer", turn, "model call")

    def text(self, name: str, turn: int) -> str:
        return str(self.part(name, turn).inner_text()).strip()

    def seen(self, turn: int) -> list[str]:
        """Return every text that the reply area of the turn has shown, oldest first."""
        area = self.part("reply", turn).element_handle()
        return list(self.page.evaluate("area => window.seen.get(area) || []", area))

    def attacks(self) -> list[str]:
        """Return the effects of a model's text on the browser."""
        return list(self.page.evaluate("window.attacked"))

    def run_cell(self, source: str) -> str:
        """Run a further cell in the notebook's kernel and return its output."""
        return str(self.page.evaluate(RUN_CELL, source))

    def picture(self, name: str) -> None:
        self.page.screenshot(path=self._pictures / f"{name}.png")
