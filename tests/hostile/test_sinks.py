"""Two hundred hostile strings in every field with untrusted content, in every command, page and file."""

from __future__ import annotations

import ast
import csv
import io
import itertools
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nbformat
import pytest
from markdown_it import MarkdownIt
from nbconvert import HTMLExporter

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.escaping import as_csv_cell, as_markdown, escape_json, fenced, printable
from agentlab.core.messages import Citation
from agentlab.lab.run import compare
from agentlab.models.scripted import Scripted, call
from agentlab.notebook.answers import FlowAnswer, FlowComparison
from support.hostile_strings import FORGED, HALVES, RAW, STRINGS, Elements
from support.small_runs import edit_header

pytestmark = pytest.mark.slow
EACH = 8
"""Conversations that the tests open one by one; the run contains all strings."""


def row(number: int, text: str) -> dict[str, Any]:
    turn = {
        "user": text,
        "reference_answers": [text],
        "relevant_doc_ids": [text],
        "expected_calls": [{"name": text, "accepted_arguments": {text: [text]}}],
        "tool_results": [{"name": text, "results": text}],
        "expected_memory": [{"op": "add", "content": text}],
        "speaker": {"id": text, "name": text},
        "metadata": {"kind": text},
    }
    return {
        "id": f"{text}{number}",
        "turns": [turn],
        "source": text,
        "licence": text,
        "tools": [{"name": text, "description": text}],
        "metadata": {"category": text},
    }


async def spreads(turn: Any, session: Any) -> al.Reply:
    """Puts its text into every kind of event."""
    text = turn.text
    await session.retrieve(text)
    completion = await session.complete(text, tools=session.tool_specs())
    for made in completion.message.tool_calls:
        await session.call_tool(made)
    with session.step(text, text):
        session.decide(text, text, text)
    session.notify(text, text, title=text)
    await session.remember(text)
    await session.recall(text)
    half = HALVES[len(text) % len(HALVES)]
    data = {"canvas": text, "chat": text + half, "shown": text}
    return al.Reply(text=text + half, citations=(Citation(doc_id=text, passage_id=text, title=text),), data=data)


async def fails(turn: Any, session: Any) -> al.Reply:
    await session.complete(turn.text)
    raise RuntimeError(turn.text)


def says(request: Any) -> Any:
    text = request.messages[-1].text
    return call(request.tools[0].name, **{text: text, "y": [text]}) if request.tools else text


spreads.__name__ = "=1+1\x1b[2J\u202e<b>x</b>`[l](javascript:x)`"
fails.__name__ = f"fails\n{FORGED}"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> al.Run:
    folder = tmp_path_factory.mktemp("sinks")
    (folder / "set").mkdir()
    rows = "".join(json.dumps(row(number, text)) + "\n" for number, text in enumerate(STRINGS))
    documents = "".join(json.dumps({"doc_id": t, "title": t, "text": t}) + "\n" for t in dict.fromkeys(STRINGS))
    (folder / "set" / "conversations.jsonl").write_text(rows)
    (folder / "set" / "corpus.jsonl").write_text(documents)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AGENTLAB_HOME", str(folder / "home"))
        spec = {"datasets": [str(folder / "set")], "embedder": "hashing/hashing-64", "memory": "textfile"}
        with al.Lab(model=Scripted([says], loop=True), flows=[spreads, fails], **spec) as lab:
            run = lab.run_sync(out=folder / "results" / "run")
    assert run.result.turns == 2 * len(STRINGS) == 400
    return run


def is_tame(text: str, location: object = "") -> None:
    assert text.strip(), location
    match = RAW.search(text)
    assert not match, f"{location}: {text[max(0, match.start() - 60) : match.end() + 20]!r}"
    forged = re.search(rf"(?m)^(?:{FORGED}|# {FORGED}|- {FORGED}|1\. {FORGED}).*", text)
    assert not forged, f"{location}: {forged[0]!r}"


def is_inert_markdown(text: str, location: object = "") -> None:
    is_tame(text, location)
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    inner = [part for token in tokens for part in token.children or ()]
    kinds = {token.type for token in (*tokens, *inner)}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "code_block", "code_inline"}, location
    headings = [after.content for token, after in itertools.pairwise(tokens) if token.type == "heading_open"]
    assert not [heading for heading in headings if heading.startswith(FORGED)], location


def is_inert_html(page: str, location: object = "") -> None:
    elements = Elements(page)
    assert not elements.active, (location, elements.active[:3])
    assert not RAW.search(page), location


COMMANDS = [
    *(["show", "{run}"], ["show", "{run}", "--all"], ["show", "--trace", "{run}"], ["lint", "{set}"]),
    *(["compare", "{run}"], ["compare", "{run}", "--json"], ["cost", "{run}"], ["report", "{run}", "-o", "run.html"]),
    ["gate", "{run}", "--baseline", "base.jsonl", "--explain", "--summary", "step.md", "--junit", "gate.xml"],
    *(
        ["show", "{run}", STRINGS[24]],
        ["show", "--trace", "{run}", "x\n" + STRINGS[22]],
        ["compare", "{run}", "--flow", STRINGS[0]],
    ),
    *(["run", STRINGS[38]], ["chat", STRINGS[21]], ["list", STRINGS[21]], ["lint", STRINGS[22]]),
]


@pytest.fixture
def here(played: al.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(played.path.parents[1])
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "all.md")
    return played.path.parents[1]


def test_no_command_shows_or_leaves_anything_raw(played, here, capsys):
    main(["gate", str(played.path), "--baseline", "base.jsonl", "--update"])
    for command in COMMANDS:
        words = [word.replace("{run}", str(played.path)).replace("{set}", "set") for word in command]
        main(words)
        out, err = capsys.readouterr()
        is_tame(out + err, command[:1])
    for file in (Path("step.md"), played.path / "gate.md"):
        is_inert_markdown(file.read_text(), file.name)
    for file in (Path("gate.xml"), played.path / "junit.xml"):
        is_tame(file.read_text(), file.name)
        assert ElementTree.parse(file).getroot().tag == "testsuites"
    for file in ("gate.json", "run.json", "summary.json"):
        json.loads((played.path / file).read_text(), parse_constant=pytest.fail)
    page = Path("run.html").read_text()
    assert not RAW.search(page)
    assert Elements(page).tags <= {
        *[
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "header",
            "main",
            "section",
            "div",
            "h2",
            "details",
            "summary",
            "dl",
            "dt",
            "dd",
            "em",
            "dialog",
            "noscript",
            "script",
        ]
    }


def test_no_conversation_shows_anything_raw_in_a_terminal(played, capsys):
    for number, text in list(enumerate(STRINGS))[:: len(STRINGS) // EACH]:
        is_tame(repr(played.show(f"{text}{number}")), text[:80])
        main(["show", str(played.path), f"{text}{number}", "--trace", "--all"])
        is_tame(capsys.readouterr().out, text[:80])
    for play, trace in played.traces.items():
        is_tame(trace.steps(full=True), play[1][:80])
        is_tame(repr(trace), play[1][:80])


def test_no_representation_in_a_notebook_holds_anything_that_acts(played, here):
    answers = []
    for number, text in enumerate(STRINGS):
        trace = played.trace(spreads.__name__, f"{text}{number}")
        made = next(r.reply for r in played.folder.turns() if r.trial == (trace.flow, trace.conversation, 0))
        answers.append(FlowAnswer(flow=f"f{text}", model=text, trace=trace, reply=made))
        answers.append(FlowAnswer(flow=f"f{text}", model=text, trace=trace, error=text))
    comparison = FlowComparison(STRINGS[0] + STRINGS[22], tuple(answers))
    is_tame(repr(comparison).replace("    ", "  "))
    rendered = [comparison, played.show(f"{STRINGS[1]}1"), played.matrix()]
    rendered += [played.table(), played.turns, played.scores, played.calls]
    cells = []
    for each in rendered:
        is_tame(repr(each), type(each))
        is_inert_html(each._repr_html_(), type(each))
        bundle = {"text/html": each._repr_html_(), "text/plain": repr(each)}
        cells.append(nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("display_data", data=bundle)]))
    for picture in (played.pareto(), played.forest()):
        for content in picture._repr_mimebundle_().values():
            is_tame(content, "a picture")
    views = import_module("agentlab.evals.report.views").Views(played)
    for markdown in (views.markdown(), compare(played)._repr_markdown_()):
        is_tame(markdown, "the views of a run")
        cells.append(
            nbformat.v4.new_code_cell(
                outputs=[nbformat.v4.new_output("display_data", data={"text/markdown": markdown})]
            )
        )
    for trace in list(played.traces.values())[::10]:
        data = {"text/markdown": trace._repr_markdown_()}
        cells.append(nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("display_data", data=data)]))
    plain, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[]))
    page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=cells))
    assert sorted(Elements(page).active) == sorted(Elements(plain).active)
    assert not RAW.search(page.replace(plain[:100], ""))


def test_no_export_holds_a_formula_or_anything_raw(played):
    for frame in (played.table(), played.turns, played.scores, played.calls):
        text = frame.to_csv()
        assert not RAW.search(text.replace("\r\n", "\n"))
        for cells in csv.reader(io.StringIO(text)):
            for cell in cells:
                formula = cell.lstrip(" \n").startswith(("=", "+", "-", "@", "\t", "\r"))
                assert not formula or re.fullmatch(r"-?[\d.]+(e-?\d+)?", cell), cell[:80]
    assert played.turns["user"].tolist().count("=1+1") == 2, "in Python texts are as they were"
    assert any(reply.endswith(r"\ud83d" + "\x1b[2J") for reply in played.turns["reply"]), "half a pair is no text"


def test_the_table_of_a_run_holds_no_formula_and_nothing_raw(played, here):
    assert main(["export", str(played.path), "--to", "csv", "-o", "turns.csv"]) == 0
    text = Path("turns.csv").read_bytes().decode().replace("\r\n", "\n")
    assert not RAW.search(text)
    cells_of_csv = [cell for cells in csv.reader(io.StringIO(text)) for cell in cells]
    assert "'=1+1" in cells_of_csv and not [cell for cell in cells_of_csv if cell.startswith(("=", "+", "@"))]


def test_a_log_has_one_line_of_ours_where_one_was_written(played):
    log = (played.path / "run.log").read_text(encoding="utf-8")
    is_tame(log, "run.log")
    assert len(log.splitlines()) > 400
    assert all(re.match(r"\d{4}-\d\d-\d\d |    ", line) for line in log.splitlines() if line)


def test_edited_header_and_summary_are_shown_as_text(played, here, capsys):
    evil = STRINGS[21] + STRINGS[0] + f"\n{FORGED}"
    edit_header(played, lambda header: header.update(run_id=evil, started=evil) or header["spec"].update(model=evil))
    summary = json.loads((played.path / "summary.json").read_text())
    (played.path / "summary.json").write_text(json.dumps({**summary, "run_id": evil, "model": evil, "status": evil}))
    for command in (["show", str(played.path)], ["report", str(played.path), "-o", "edited.html"]):
        main(command)
        out, err = capsys.readouterr()
        is_tame(out + err, command)
    is_inert_title = Path("edited.html").read_text()
    assert "<script>window" not in is_inert_title and not RAW.search(is_inert_title)
    is_tame(repr(al.open_run(played.path)))


@pytest.mark.parametrize("text", ["answer_f1", "Between 410 and 450 grams.", "日本語 é 👩‍👩‍👧 नमस्ते", "-0.5"])
def test_harmless_text_is_unchanged(text):
    assert printable(text) == as_markdown(text) == text
    assert json.loads(escape_json(json.dumps(text))) == text
    assert fenced(text) == f"```text\n{text}\n```"
    assert as_csv_cell(1.5) == 1.5 and as_csv_cell("plain") == "plain"


def test_invisible_characters_are_made_visible_in_pages_too():
    assert printable("\x1b[2J\u202eevil\r\n") == "\\x1b[2J\\u202eevil\n"
    for text in [*STRINGS, *HALVES]:
        assert not RAW.search(json.loads(escape_json(json.dumps(text)))), text[:80]
        is_inert_markdown(f"* {as_markdown(text)}x", text[:80])
        is_inert_markdown(f"| {as_markdown(text)} |\n| - |\n| x{as_markdown(text)} |", text[:80])


@pytest.mark.parametrize("text", ["snake_case_name", "__x__", "_x_ y", "a __b__ c", "x__y"])
def test_underscore_is_no_emphasis_and_needs_no_backslash_in_a_word(text):
    (inline,) = [
        token for token in MarkdownIt("gfm-like", {"linkify": False}).parse(as_markdown(text)) if token.children
    ]
    assert "".join(part.content for part in inline.children) == text
    assert {part.type for part in inline.children} <= {"text", "text_special"}


def test_only_sinks_print():
    package = Path(al.__file__).parent
    prints: set[str] = set()
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("print", "Console"):
                prints.add(f"{node.func.id} {file.relative_to(package)}")
    assert prints == {"print cli/echo.py", "print lab/run.py", "Console evals/report/tables.py"}
