"""The documentation: a strict build, links, code that runs, and drawings that match recorded runs."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import shlex
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest

import agentlab as al
from agentlab.cli.options import COMMANDS
from agentlab.cli.parser import main, make_parser
from agentlab.core import plugins
from agentlab.core.events import PHASES
from agentlab.lab.lab import Lab
from agentlab.lab.run import open_run
from support.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TEMPLATE = ROOT / "agentlab" / "cli" / "template" / "my_flow.py"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
STAND_INS = {"model": "scripted/replies.yaml", "embedder": "hashing/hashing-64"}
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
    """Links and loaded files of a page, and the anchors in it."""

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
            target, _, position = link.partition("#")
            result = path if target in ("", ".") else (path.parent / target).resolve()
            if result.is_dir():
                result = result / "index.html"
            assert result.exists() or path.name == "404.html", f"{path.name}: {link}"
            if position and result in pages:
                assert position in pages[result].places, f"{path.name}: {link}"
        assert not [url for url in page.loaded if "//" in url and not url.startswith("data:")], path


def test_there_is_a_page_a_flow_with_its_drawing_cost_and_every_setting(site, generate):
    from agentlab.workbench.settings import settings_of

    assert set(generate.drawn_flows()) == set(plugins.names("flows"))
    for flow in plugins.names("flows"):
        page = (site / "flows" / f"{flow}.html").read_text(encoding="utf-8")
        assert "<svg" in page and "calls" in page
        assert all(f"<code>{name}</code>" in page for name in settings_of(flow))
        assert all(phase in PHASES for phase, _, _ in generate.steps_of(flow))
        loops = "".join("*" if "*" in marks else " " for _, marks, _ in generate.steps_of(flow)).split()
        assert page.count('class="loop"') == len(loops), "an arrow leads back to the first step of each loop"


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


def test_the_reference_has_every_command_key_and_public_name(site):
    from agentlab.workbench.spec import Spec

    commands = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    assert all(f"agentlab {name}" in commands for name in COMMANDS)
    spec = (site / "reference" / "spec.html").read_text(encoding="utf-8")
    assert all(f"<code>{key}</code>" in spec for key in Spec.model_fields)
    measures = (site / "reference" / "measures.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in measures for name in plugins.names("evals.scorers"))
    python = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert all(f'id="al.{name}"' in python for name in al.__all__ if name != "__version__")


@pytest.fixture
def checkout(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the checkout, in which `evals/flows.yaml` uses a scripted model and needs no weights."""
    for name in ("evals", "datasets"):
        (tmp_path / name).mkdir()
        for path in (ROOT / name).iterdir():
            (tmp_path / name / path.name).symlink_to(path)
    spec = (ROOT / "evals" / "flows.yaml").read_text(encoding="utf-8")
    for key, value in STAND_INS.items():
        spec = re.sub(rf"^{key}: .*$", f"{key}: {value}", spec, flags=re.MULTILINE)
        monkeypatch.setenv(f"AGENTLAB_{key.upper()}", value)
    (tmp_path / "evals" / "flows.yaml").unlink()
    (tmp_path / "evals" / "flows.yaml").write_text(f"{spec}recordings: recordings\n", encoding="utf-8")
    (tmp_path / "replies.yaml").write_text("loop: true\nreplies: [The ball is 22 cm wide.]\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "stdin", io.StringIO("How heavy is the ball?\n"))
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_in_a_page_runs(page, checkout, capsys):
    """`bash` and `python` blocks run in order, a title makes a file, `text` below a command is part of its output."""
    namespace: dict[str, Any] = {}
    printed = ""
    for language, title, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        if title:
            (checkout / title).parent.mkdir(parents=True, exist_ok=True)
            (checkout / title).write_text(code, encoding="utf-8")
        elif language == "bash":
            for line in code.replace("\\\n", " ").strip().splitlines():
                program, *arguments = shlex.split(line, comments=True)
                assert program == "agentlab"
                assert main(arguments) == 0, f"{line}: {capsys.readouterr().err}"
            printed = capsys.readouterr().out
        elif language == "python":
            exec(compile(code, str(page), "exec"), namespace)
        elif language == "text":
            rows = [line for line in code.splitlines() if line[0] in "┃│"]
            sentence = " ".join(line for line in code.splitlines() if line not in rows)
            assert [row for row in rows if row not in printed] == []
            assert " ".join(sentence.split()) in " ".join(printed.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_in_a_page_are_commands(page):
    """Every `agentlab ...` of a page parses, in `sh` blocks and in sentences too; every `make ...` is a target."""
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+)[\w -]*:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    typed = [code.replace("\\\n", " ") for language, _, code in BLOCK.findall(text) if language in ("bash", "sh")]
    typed += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", BLOCK.sub("", text))]
    for line in "\n".join(typed).splitlines():
        if line.startswith("make "):
            assert line.split()[1] in targets, line
        elif line.startswith("agentlab "):
            _, command, *options = shlex.split(line, comments=True)
            assert command in COMMANDS, line
            if options:
                make_parser(command).parse_args(options)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", *NOTEBOOKS, TEMPLATE], ids=lambda page: page.stem)
def test_examples_import_only_the_front_door(page):
    """Code of pages, notebooks and the project of `init` uses public names, and the package has each of them."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        text = "\n".join(cell.source for cell in nbformat.reads(text, 4).cells if cell.cell_type == "code")
    elif page.suffix == ".md":
        text = "\n".join(code for language, _, code in BLOCK.findall(text) if language == "python")
    imported = set(re.findall(r"^ *((?:from|import) agentlab.*)$", text, re.MULTILINE))
    assert imported <= {"import agentlab as al", "from agentlab import notebook"}
    assert set(re.findall(r"\bal\.(\w+)", text)) <= {*al.__all__, "__file__"}


def test_links_and_anchors_of_the_readme_lead_somewhere():
    for page in (ROOT / "README.md", ROOT / "results" / "README.md", ROOT / "datasets" / "README.md"):
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
            if "://" in target:
                continue
            linked = page if not target else page.parent / target
            assert linked.exists(), f"{page}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
                assert anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}, anchor


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md"])
def test_tests_that_a_page_names_exist(name):
    named = re.findall(r"`(tests/[\w/*]+\.py)", (ROOT / name).read_text(encoding="utf-8"))
    assert named and [path for path in named if not [*ROOT.glob(path)]] == []
