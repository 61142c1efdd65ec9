"""The documentation in Chromium, opened from a folder: search works and all code can be read, at any width."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT

pytestmark = pytest.mark.browser
OUT_OF_REACH = """() => [...document.querySelectorAll('.md-typeset pre > code')].filter(
    code => code.scrollWidth > code.clientWidth + 1 && getComputedStyle(code).overflowX !== 'auto').length"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(ROOT):
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    return folder


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_search_finds_a_page_and_code_can_be_read(site: Path, browser: Any, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    for file in site.rglob("*.html"):
        page.goto(file.as_uri())
        assert page.evaluate(OUT_OF_REACH) == 0, file.name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, file.name
    page.goto((site / "howto" / "own.html").as_uri())
    page.click("label.md-header__button[for=__search]" if width < 960 else ".md-search__input")
    page.locator(".md-search__input").press_sequentially("budget")
    page.wait_for_selector(".md-search-result__item")
    assert "How do I cap what a run spends?" in page.locator(".md-search-result__list").inner_text()
    page.close()
