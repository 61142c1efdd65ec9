"""A run in a notebook: verdict, table and pictures as outputs that need no kernel and no network."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from markdown_it import MarkdownIt
from traitlets.config import Config

import agentlab as al
from agentlab.core.errors import ConfigError
from agentlab.lab.run import Run, compare
from agentlab.models.scripted import Scripted
from support.attacks import ATTACKS, write_hostile_set
from support.planted_bug import PLANTED, WHOLE, play_planted


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("views")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTLAB_HOME", str(folder / "home"))
        patch.chdir(folder)
        return play_planted(folder / "set", folder / "run")


@pytest.fixture
def shell() -> Iterator[Any]:
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    InteractiveShell.clear_instance()


def outputs(shell: Any, run: Run, cell: str) -> list[dict[str, str]]:
    """The bundles that a cell leaves in a notebook."""
    shell.push({"run": run})
    with capture_output() as captured:
        shell.run_cell(cell)
    return [output.data for output in captured.outputs]


def drawn(data: dict[str, str]) -> str:
    """The SVG of a picture."""
    match = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', data["text/html"])
    assert match is not None
    return base64.b64decode(match[1]).decode()


def test_run_in_a_cell_shows_recommendation_table_and_two_pictures(shell, run):
    text, pareto, forest = outputs(shell, run, "run")
    assert text["text/markdown"].startswith(f"**Ship none yet; {WHOLE} is the cheapest that is not shown worse")
    html = MarkdownIt("commonmark").enable("table").render(text["text/markdown"])
    cells = re.findall(r"<td.*?>(.*?)</td>", html)
    assert [cells[0], cells[1], cells[3], cells[8]] == [WHOLE, "48/48", "0 of 72", "cheapest"]
    assert "turns (failed)" in cells
    assert "refusal_accuracy (n=24)" in cells and "0.75 [0.53, 0.90]" in cells
    assert text["text/plain"] == text["text/markdown"] and "nan" not in text["text/plain"].lower()
    for picture in (pareto, forest):
        assert set(picture) == {"text/html", "text/plain"}
        assert "n=" in picture["text/plain"]
    assert "-0.25 worse" in drawn(forest) and "refusal_accuracy" in drawn(forest)


def test_outputs_are_shown_again_without_a_kernel(shell, run):
    import nbformat
    from nbconvert import HTMLExporter

    new = nbformat.v4
    rendered = [new.new_output("display_data", data=data) for data in outputs(shell, run, "run")]
    notebook = new.new_notebook(cells=[new.new_code_cell("run", outputs=rendered)])
    page, _ = HTMLExporter().from_notebook_node(notebook)
    outside = page[page.index("<body") :]
    assert (
        outside.count('src="data:image/svg+xml;base64') == 2
        and "Ship none yet; rag_only is the cheapest" in outside
        and "<table>" in outside
    )


def test_tables_have_whole_numbers_intervals_and_no_nan(run):
    table = run.table()
    assert table.loc["turns", WHOLE] == 72 and table.T["answer_f1"].dtype == float
    for rendered in (repr(table), table._repr_html_()):
        assert "72.0" not in rendered and "nan" not in rendered.lower()
        assert "refusal_accuracy (n=24)" in rendered and "0.75 [0.53, 0.90]" in rendered and "cost USD" in rendered
    assert repr(table.loc[["turns"]]).split() == [WHOLE, PLANTED, "turns", "72.0", "72.0"], "a part is pandas' own"


def test_the_matrix_has_the_turns_that_were_asked_for_worst_first(run):
    flipped = run.matrix("flipped", by="refusal_accuracy")
    assert len(flipped.keys) == 6 and {key[1] for key in flipped.keys} == {1}
    assert "That is 12 a year.\n    refusal_accuracy 0.000" in repr(flipped)
    assert run.matrix("failed").keys == [] and len(run.matrix().keys) == 72
    assert run.matrix(limit=2)._repr_html_().count("<tr") == 3


@pytest.mark.parametrize("ask", ["run.matrix('wrong')", "run.matrix(by='speed')", "run.pareto(x='speed')"])
def test_unknown_measure_is_an_error_that_names_the_known_ones(run, ask):
    with pytest.raises(ConfigError, match=r"speed|wrong"):
        eval(ask, {"run": run})


def test_a_comparison_shows_what_decides_with_n_and_intervals(shell, run):
    comparison = compare(run)
    markdown = comparison._repr_markdown_()
    assert "| refusal_accuracy | 24 | 1.000 | 0.750 | -0.25 | \\[-0.4" in markdown
    assert "secondary measures" in markdown


def test_a_difference_is_amber_across_zero_and_a_few_turns_are_called_too_few(tmp_path, own_home):
    from support.small_runs import Answering, play, write_set

    often = [("c00", n) for n in range(2)] + [(f"c{c:02}", 0) for c in range(1, 8)]
    colours = {}
    for conversations, wrong in ((60, often), (60, []), (4, often[:3])):
        flows = [Answering("one"), Answering("two", wrong=wrong)]
        name = f"{conversations}-{len(wrong)}"
        run = play(write_set(tmp_path / f"set{name}", conversations), tmp_path / name, *flows)
        verdict, drawing = compare(run).pairs[0]["answer_f1"], run.forest().svg
        _, high = verdict.ci95
        row = re.search(r'answer_f1</text><text[^>]*fill="var\(--(\w+), #\w+\)"[^>]*>([^<]*)', drawing)
        colours[name] = row.groups()
        assert ("var(--bad" in drawing) is (high < 0) and ("var(--mid" in drawing) is (verdict.is_shown and high >= 0)
    assert colours["60-0"] == ("soft", "+0 equal") and colours["4-3"] == ("soft", "8 turns: too few")
    assert colours["60-9"][0] in ("bad", "mid") and "worse" in colours["60-9"][1]


def test_one_flow_and_a_running_run_show_their_results(shell, tmp_path, own_home):
    from support.small_runs import Answering, first_turns, play, write_set

    alone = play(write_set(tmp_path / "set", 2), tmp_path / "run", Answering("one"))
    [text] = outputs(shell, alone, "run")
    assert "One flow, nothing to choose from: one" in text["text/markdown"]
    assert alone.forest() is None
    going_on = al.open_run(first_turns(alone.path, 2))
    with capture_output() as captured:
        shell.push({"run": going_on})
        shell.run_cell("run")
    assert captured.stdout.split(": ", 1)[1].startswith("<Run ")


def test_attacks_are_text_in_every_view(shell, tmp_path, own_home):
    write_hostile_set(tmp_path / "set")
    attack = " ".join(ATTACKS)

    async def fails(turn, session):
        raise RuntimeError(attack)

    fails.__name__ = ATTACKS[1]
    spec = {"embedder": "hashing/hashing-64", "flows": ["rag_only", fails], "datasets": [str(tmp_path / "set")]}
    with al.Lab(model=Scripted(list(ATTACKS), loop=True), **spec) as lab:
        run = lab.run_sync(out=tmp_path / "run")
    rendered = [
        data for cell in ("run", "run.matrix()", "run.forest()") for data in outputs(shell, run, f"display({cell})")
    ]
    texts = [
        MarkdownIt("commonmark").enable("table").render(data["text/markdown"])
        for data in rendered
        if "text/markdown" in data
    ]
    pages = [data["text/html"] for data in rendered if "text/html" in data]
    texts += [
        drawn(data) if "<img" in data["text/html"] else data["text/html"] for data in rendered if "text/html" in data
    ]
    assert max(page.count("<img") for page in pages) == 1, "one picture is one image"
    assert len(texts) == 5 and any("window.struck" in text for text in texts)
    for text in texts:
        assert not re.search(r"<(script|img|style|a|iframe)\b|<svg onload", text)
        for tag in re.findall(r"<[a-z][^>]*>", text):
            assert not re.search(r"\son\w+\s*=", tag)
