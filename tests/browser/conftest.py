"""JupyterLab and Chromium, started once; each test opens a notebook of its own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.jupyter import STARTING, ChatPage, JupyterServer
from support.paths import ROOT

Open = Callable[..., ChatPage]
PICTURES = ROOT / "results" / "browser"


class PatientBrowser:
    """Longer time limits than usual, for a busy machine; a wait ends as soon as its event comes."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def new_context(self, **options: Any) -> Any:
        context = self._opened.new_context(**options)
        context.set_default_timeout(STARTING)
        return context

    def new_page(self, **options: Any) -> Any:
        page = self._opened.new_page(**options)
        page.set_default_timeout(STARTING)
        return page


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    server = JupyterServer(tmp_path_factory.mktemp("notebooks"), tmp_path_factory.mktemp("home"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The Chromium on the PATH; none is fetched."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    assert program is not None, "no Chromium on the PATH: make browser installs it on Debian"
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield PatientBrowser(opened)
        opened.close()


@pytest.fixture
def open_chat(jupyter: JupyterServer, browser: Any, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Runs cells, the last of which shows a chat widget, in a notebook named after the test."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(viewport={"width": 1100, "height": 900})

    name = re.sub(r"\W+", "-", request.node.name.removeprefix("test_")).strip("-")

    def start(*cells: str) -> ChatPage:
        return ChatPage(context.new_page(), jupyter.write_notebook(name, *cells), PICTURES)

    yield start
    for page in context.pages:
        # Of a test that failed this shows where it stood.
        page.screenshot(path=PICTURES / f"{name}.png")
    context.close()


@pytest.fixture
def show(browser: Any, files: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Opens pages of a test file by their names in its fixture `files`; none has an error of JavaScript."""
    pages = []

    def start(name: str, width: int = 1280, **options: Any) -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.errors = []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.goto(files[name].as_uri())
        page.wait_for_selector("#matrix .reply:not(:text-is('…'))")
        pages.append(page)
        return page

    yield start
    PICTURES.mkdir(parents=True, exist_ok=True)
    for number, page in enumerate(pages):
        page.screenshot(path=PICTURES / f"{request.node.name[5:].replace('/', '-')}-{number}.png")
        assert page.errors == []
        page.close()
