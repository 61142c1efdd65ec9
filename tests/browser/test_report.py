"""The page of a run in a real browser: attacks in every field stay text, and a reply opens its trace by keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.models.scripted import Scripted
from support.attacks import ATTACKS, write_hostile_set

pytestmark = pytest.mark.browser


@pytest.fixture
def page(browser: Any, tmp_path: Path, own_home: Path) -> Any:
    write_hostile_set(tmp_path / "set")
    spec = {"embedder": "hashing/hashing-64", "flows": ["rag_only", "tools"], "datasets": [str(tmp_path / "set")]}
    with al.Lab(model=Scripted(list(ATTACKS), loop=True), **spec) as lab:
        saved = lab.run_sync(out=tmp_path / "run").report().save(tmp_path / "page.html")
    opened = browser.new_page(viewport={"width": 520, "height": 900})
    opened.errors = []
    opened.on("pageerror", lambda error: opened.errors.append(str(error)))
    opened.goto(saved.as_uri())
    yield opened
    opened.close()


def test_attacks_are_shown_and_none_runs(page):
    page.wait_for_selector("#matrix >> text=window.struck")
    assert page.evaluate("window.struck") is None and page.errors == []
    assert page.evaluate("document.querySelectorAll('main img, main a[href^=javascript], dialog img').length") == 0


def test_a_narrow_page_does_not_scroll_sideways(page):
    page.wait_for_selector("#matrix >> text=window.struck")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
