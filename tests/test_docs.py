"""The documentation: it is built strictly, links lead somewhere, code runs, and drawings say what flows do."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from agentlab.cli.parser import main
from agentlab.core import plugins
from agentlab.core.events import PHASES
from agentlab.lab.lab import Lab
from agentlab.lab.run import open_run
from support.places import ROOT

PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md"))
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(ROOT):
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


@pytest.fixture(scope="module")
def generate() -> Any:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Links(HTMLParser):
    """What a page leads to and loads, and the places in it that can be led to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "link", "iframe"):
            self.loaded += [given[name] for name in ("src", "href") if name in given]


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site):
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > 14
    for path, page in pages.items():
        for link in page.links:
            if link.startswith(("http://", "https://")):
                assert link.startswith("https://squidfunk.github.io/"), link
                continue
            target, _, place = link.partition("#")
            found = path if target in ("", ".") else (path.parent / target).resolve()
            if found.is_dir():
                found = found / "index.html"
            assert found.exists() or path.name == "404.html", f"{path.name}: {link}"
            if place and found in pages:
                assert place in pages[found].places, f"{path.name}: {link}"
        assert not [url for url in page.loaded if "//" in url and not url.startswith("data:")], path


def test_there_is_a_page_a_flow_with_its_drawing_cost_and_every_setting(site, generate):
    from agentlab.workbench.settings import settings_of

    assert set(generate.drawn_flows()) == set(plugins.names("flows"))
    for flow in plugins.names("flows"):
        page = (site / "flows" / f"{flow}.html").read_text(encoding="utf-8")
        assert "<svg" in page and "calls" in page
        assert all(f"<code>{name}</code>" in page for name in settings_of(flow))
        assert all(phase in PHASES for phase, _, _ in generate.steps_of(flow))


def test_the_drawings_hold_every_phase_that_recorded_runs_went_through(generate, tmp_path):
    seen = set()
    for name in ("laws", "morning", "assistant"):
        with contextlib.chdir(ROOT), Lab(f"evals/recorded/{name}.yaml", mode="replay", limit=2) as lab:
            run = lab.run_sync(out=tmp_path / name)
            flows = {entry.name: entry.flow for entry in lab.bench.spec.flows}
        for label, summary in open_run(run.path).result.flows.items():
            drawn = {phase for phase, _, _ in generate.steps_of(flows[label])}
            assert set(summary.phases) <= drawn, label
            seen.add(flows[label])
    assert seen == set(plugins.names("flows"))


def test_the_reference_has_every_command_and_every_key(site):
    from agentlab.workbench.spec import Spec

    commands = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    assert all(f"agentlab {file.stem}" in commands for file in (ROOT / "agentlab/cli/help").glob("*.txt"))
    spec = (site / "reference" / "spec.html").read_text(encoding="utf-8")
    assert all(f"<code>{key}</code>" in spec for key in Spec.model_fields)
    measures = (site / "reference" / "measures.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in measures for name in plugins.names("evals.scorers"))


@pytest.fixture
def checkout(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("evals", "datasets"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_in_a_page_runs(page, checkout, capsys):
    namespace: dict[str, Any] = {}
    for language, code in re.findall(
        r"^```(\w+)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    ):
        if language == "bash":
            for line in code.strip().splitlines():
                program, *arguments = shlex.split(line, comments=True)
                assert program == "agentlab"
                assert main(arguments) == 0, f"{line}: {capsys.readouterr().err}"
        elif language == "python":
            exec(compile(code, str(page), "exec"), namespace)
