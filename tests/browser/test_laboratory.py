"""The laboratory in a real browser: two flows, switch, fork, save a test case, dark, narrow, stop, label."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from agentlab.cli.parser import main

pytestmark = pytest.mark.browser

SETUP = dedent(
    """
    import json
    from pathlib import Path
    import agentlab as al
    from agentlab import notebook
    from support.streaming import Streaming, of_the_coordinator
    from support.rules_set import CONVERSATIONS, DOCUMENTS, lab as lab_over, write_set
    model = Streaming(of_the_coordinator("**Wide**, it is\\n\\n* 7.32 m", "Second, `shorter`."))
    pair = ["rag_only", {"flow": "rag_only", "label": "second", "retrieval": {"top_k": 1}}]
    lab = al.Lab(flows=pair, model=model, embedder="hashing/hashing-64")
    """
)
CHAT = "chat = notebook.chat_widget(lab, documents=())\nchat"
DARK = "window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
CONTRAST = """
area => {
  // The least contrast (WCAG 2) of any text in the area against what stands behind it.
  const parse = colour => (colour.match(/[0-9.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > .5) return colour;
    }
    return [255, 255, 255];
  };
  let least = 21;
  for (const node of area.querySelectorAll('*')) {
    const says = [...node.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!says || !node.offsetParent || node.tagName === 'STYLE') continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
    least = Math.min(least, (Math.max(a, b) + .05) / (Math.min(a, b) + .05));
  }
  return least;
}
"""


PLAIN = """
import agentlab as al

async def respond(turn, session):
    return al.Reply(text=(await session.complete(turn.text)).text)
"""


def gated(home: Path, flow: str, *replies: str) -> list[int]:
    """Exit codes of the gate: for the first reply, which makes the baseline, and for each reply compared with it."""
    (home / "plain.py").write_text(PLAIN)
    codes = []
    for number, reply in enumerate(replies):
        (home / "model.yaml").write_text(json.dumps({"replies": [reply], "loop": True}))
        model = ["--model", "scripted/model.yaml", "--set", "embedder=hashing/hashing-64", "--out", f"r{number}"]
        assert main(["run", "--dataset", "datasets/from_chat", "--flow", flow, *model]) == 0
        codes.append(main(["gate", f"r{number}", "--baseline", "base.jsonl", *([] if number else ["--update"])]))
    return codes


def window(chat: Any) -> Any:
    return chat.page.locator(".agentlab-window")


def test_chat_compares_switches_forks_and_saves_a_case_for_the_gate(open_chat, jupyter, monkeypatch, capsys):
    chat = open_chat(SETUP, "model.seconds = 0.3", CHAT)
    page = chat.page
    page.get_by_label("compare with").select_option("second")
    chat.ask("How wide is a goal?")
    page.locator(".agentlab-running").first.wait_for()
    chat.picture("two-flows")
    for column in (0, 1):
        chat.wait_for_end(column)
    assert [chat.text("who", n) for n in (0, 1)] == ["rag_only on scripted", "second on scripted"]
    assert chat.part("reply", 0).locator("strong").inner_text() == "Wide"
    left, right = (chat.part("reply", n).bounding_box() for n in (0, 1))
    assert left["x"] < right["x"]
    page.locator(".agentlab-running").first.wait_for(state="detached")

    page.get_by_label("compare with").select_option("none")
    window(chat).get_by_text("a new conversation").wait_for()
    chat.ask("And how high?")
    chat.wait_for("reply", 2, "Second")
    chat.wait_for_end(2)

    page.get_by_role("button", name="Save as test").last.click()
    page.locator(".agentlab-corrected textarea").fill("2.44 m")
    page.get_by_role("button", name="Save case").click()
    page.locator(".agentlab-status").filter(has_text="saved as case-001 in datasets/from_chat").wait_for()
    chat.picture("saved-as-a-case")
    saved = Path(jupyter.folder) / "datasets/from_chat/conversations.jsonl"
    assert json.loads(saved.read_text())["turns"][-1]["reference_answers"] == ["2.44 m"]

    page.get_by_role("button", name="Fork", exact=True).last.click()
    window(chat).get_by_text("a fork: continues after").wait_for()
    page.get_by_label("flow", exact=True).select_option("second")
    chat.ask("And how deep?")
    chat.wait_for_end(3)
    assert chat.text("who", 3) == "second on scripted"
    turns = chat.run_cell("len(chat.chat.turn_rows)")
    assert turns == "2", "the turn before the fork, and this one"

    monkeypatch.chdir(jupyter.folder)
    assert gated(Path(), "./plain.py", "2.44 m", "2.44 m", "Second, shorter.") == [0, 0, 3]
    assert "1 -> 0, turn 1 of case-001" in capsys.readouterr().out


def test_sending_scrolls_to_the_end_and_a_narrow_dark_page_can_be_read(open_chat):
    chat = open_chat(SETUP, "model.seconds = 0.01", CHAT)
    page = chat.page
    for turn in range(5):
        chat.ask(f"Question {turn}?")
        chat.wait_for_end(turn)
    window(chat).evaluate("w => { w.scrollTop = -300 }")
    chat.ask("And the last?")
    chat.wait_for_end(5)
    assert abs(window(chat).evaluate("w => w.scrollTop")) < 2
    assert page.evaluate("document.activeElement.placeholder") == "Type a message"
    assert window(chat).evaluate(CONTRAST) > 3
    page.evaluate(DARK)
    page.wait_for_function("document.body.dataset.jpThemeLight === 'false'")
    assert window(chat).evaluate(CONTRAST) > 3
    chat.picture("dark")
    page.set_viewport_size({"width": 480, "height": 900})
    page.wait_for_function("document.querySelector('.agentlab-window').clientWidth < 420")
    assert window(chat).evaluate("w => w.scrollWidth - w.clientWidth") <= 1, "nothing is to be scrolled sideways"
    chat.picture("narrow-and-dark")


def test_saved_notebook_shows_the_conversation_without_a_kernel(open_chat, jupyter):
    chat = open_chat(SETUP, CHAT)
    chat.ask("How wide is a goal?")
    chat.wait_for_end(0)
    page = chat.page
    assert not page.locator("[class^=agentlab-kept]").is_visible(), "where the widget lives it is not shown twice"
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    file = next(iter(Path(jupyter.folder).glob("saved_notebook*.ipynb")))
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    from nbconvert import HTMLExporter

    html, _ = HTMLExporter().from_filename(str(file))
    page.route("**/*", lambda route: route.abort())
    page.set_content(html, wait_until="domcontentloaded")
    stored = page.locator("[class^=agentlab-kept]")
    assert stored.is_visible() and all(part in stored.inner_text() for part in ("7.32 m", "rag_only", "scripted"))


def test_flows_side_by_side_fill_and_stop_in_a_cell(open_chat):
    chat = open_chat(SETUP, CHAT)
    page = chat.page
    cell = """
        model.seconds = 1
        lab = al.Lab(datasets=[write_set(Path("rules"), CONVERSATIONS, DOCUMENTS)], flows=pair, model=model,
                     embedder="hashing/hashing-64")
        await notebook.show_flows(lab, "How wide?")
    """
    page.evaluate(
        """source => {
          const notebook = window.jupyterapp.shell.currentWidget.content;
          const run = name => window.jupyterapp.commands.execute(name);
          notebook.activeCellIndex = notebook.widgets.length - 1;
          run('notebook:insert-cell-below').then(() => {
            notebook.activeCell.model.sharedModel.setSource(source);
            run('notebook:run-cell');
          });
        }""",
        dedent(cell),
    )
    page.get_by_text("waiting for the flow before it").first.wait_for()
    page.locator(".agentlab-running").filter(has_text=" s").first.wait_for()
    chat.picture("flows-fill")
    page.get_by_role("button", name="Stop", exact=True).last.click()
    page.locator("td").filter(has_text="stopped").nth(1).wait_for()
    assert chat.run_cell("6 * 7") == "42"


def test_replies_are_labelled(open_chat, jupyter):
    chat = open_chat(
        SETUP,
        "folder = write_set(Path('labelled'), CONVERSATIONS, DOCUMENTS)\n"
        "opened = lab_over(folder, replies=['8 m'], flows=['rag_only'])\n"
        "run = opened.run_sync(out='labelled-run')\nnotebook.label(run)",
        CHAT,
    )
    page = chat.page
    page.locator(".agentlab-labelled").filter(has_text="6 left").wait_for()
    for left in range(6, 3, -1):
        page.locator(".agentlab-labelled").filter(has_text=f"{left} left").wait_for()
        page.get_by_role("button", name="Wrong", exact=True).click()
    page.locator(".agentlab-labelled").filter(has_text="3 left").wait_for()
    assert len((Path(jupyter.folder) / "labels.csv").read_text().splitlines()) == 4
