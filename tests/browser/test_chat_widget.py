"""The chat widget in a real browser: the reply area shows only the reply, during any other activity.

The models are scripted and say a word every 50 ms; what stood in a reply area in between is read, too.
"""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

import pytest

pytestmark = pytest.mark.browser

OBOE = "An oboe is a woodwind with a double reed."
CANVAS = "# Oboe\n\n* a **double** reed\n* [a link](http://evil.invalid/)\n\n| key | note |\n| --- | --- |\n| 1 | C |"
ANNA, BERN = "Nice to meet you, Anna, there in Bern.", "You told me that you live in Bern."
WITH_EGO, WITH_COORDINATOR = "ego", {"flow": "coordinator", "gate": "model", "tools": []}
SLOWLY = "model.seconds = 0.2"  # a busy browser, too, sees how a reply grows
SHOW = "chat = notebook.chat_widget(lab, documents=())\nchat"


def lab_of(flow: Any, model: str) -> str:
    return dedent(
        f"""
        import agentlab as al
        from agentlab import notebook
        from agentlab.core.errors import Refused
        from support.streaming import ATTACKS, Streaming, of_the_coordinator, of_the_layered_agent
        model = Streaming({model})
        lab = al.Lab(flows=[{flow!r}], model=model, embedder="hashing/hashing-64", memory="sqlite")
        """
    )


EGO = lab_of(WITH_EGO, f"of_the_layered_agent({OBOE!r}, {CANVAS!r})")
COORDINATOR = lab_of(WITH_COORDINATOR, f"of_the_coordinator({ANNA!r}, {BERN!r})")


def assert_grew_to(seen: list[str], reply: str, *, then: str = "") -> None:
    """Assert that the texts grow to the reply; `then` is the final text if it differs.

    Only letters are compared, because Markdown is rendered while the reply grows.
    """
    assert len(seen) > 3 and seen[-1] == (then or reply)
    assert all(letters(reply).startswith(letters(text)) for text in seen), seen


def letters(text: str) -> str:
    return "".join(re.findall(r"\w", text))


def test_ego_shows_chat_and_canvas_during_and_after_reflection(open_chat):
    chat = open_chat(EGO, SLOWLY, SHOW)
    chat.ask("What is an oboe?")
    chat.wait_for("reply", 0, "woodwind")
    chat.picture("ego-while-it-answers")
    chat.wait_for_end(0)
    chat.wait_for("steps", 0, "reflect")
    assert_grew_to(chat.seen(0), f"{OBOE}\n\n{CANVAS}", then=OBOE)
    canvas = chat.part("canvas", 0)
    assert canvas.locator("h1").inner_text() == "Oboe" and canvas.locator("strong").inner_text() == "double"
    assert canvas.locator("td").all_inner_texts() == ["1", "C"]
    assert "[a link](http://evil.invalid/)" in canvas.inner_text() and canvas.locator("a").count() == 0
    steps, reply, drawn = (chat.part(name, 0).bounding_box()["y"] for name in ("steps", "reply", "canvas"))
    assert steps < reply < drawn


def test_coordinator_shows_its_reply_and_no_judgement(open_chat):
    chat = open_chat(COORDINATOR, SLOWLY, SHOW)
    chat.ask("My name is Anna and I live in Bern.")
    chat.wait_for_end(0)
    chat.wait_for("steps", 0, '{"keep": true}')
    chat.wait_for("steps", 0, "remember: written")
    assert_grew_to(chat.seen(0), ANNA)


@pytest.mark.parametrize(
    ("cell", "replies", "background"),
    [(EGO, (OBOE, OBOE), "tool reflection"), (COORDINATOR, (ANNA, BERN), "remember:")],
    ids=["ego", "coordinator"],
)
def test_two_turns_in_quick_succession_stay_apart(open_chat, cell, replies, background):
    chat = open_chat(cell, SHOW)
    chat.ask("I live in Bern and play the oboe, by the way.")
    chat.wait_for_end(0)
    chat.ask("And where do I live, what did I tell you?")
    chat.wait_for_end(1)
    for turn, reply in enumerate(replies):
        chat.wait_for("steps", turn, background)
        assert chat.text("reply", turn) == reply and all(text.startswith(reply[:1]) for text in chat.seen(turn)[1:])
        assert chat.text("steps", turn).count(background) == 1
        assert chat.text("footer", turn).count("model call") == 1
    for turn, calls in enumerate((4, 5) if cell is EGO else (2, 2)):  # the second of ego has memories to choose from
        chat.wait_for("footer", turn, f"{calls} model calls")


@pytest.mark.parametrize("cell", [EGO, COORDINATOR], ids=["ego", "coordinator"])
def test_stop_keeps_the_text_so_far_and_the_chat_continues(open_chat, cell):
    chat = open_chat(cell, "model.seconds = 0.8", SHOW)
    chat.ask("I live in Bern and play the oboe, by the way.")
    chat.wait_for("reply", 0, "oboe" if cell is EGO else "to meet")
    chat.click("Stop")
    chat.wait_for("footer", 0, "stopped")
    text = chat.text("reply", 0)
    assert text and (OBOE.startswith(text) or ANNA.startswith(text)) and text not in (OBOE, ANNA)
    chat.ask("And once more?")
    chat.wait_for("reply", 1, "woodwind" if cell is EGO else "You told")
    chat.click("Stop")
    chat.wait_for("footer", 1, "stopped")
    assert chat.text("reply", 0) == text, "the stopped reply stays as it was"


def test_an_error_of_the_model_is_a_message_and_chat_and_notebook_continue(open_chat):
    model = f"of_the_coordinator(Refused('the key is wrong <b>now</b>'), {BERN!r})"
    chat = open_chat(lab_of(WITH_COORDINATOR, model), SHOW)
    chat.ask("Where do I live?")
    chat.wait_for("footer", 0, "the key is wrong <b>now</b>")
    assert chat.text("reply", 0) == ""
    chat.picture("an-error")
    chat.ask("And now?")
    chat.wait_for("reply", 1, BERN)
    assert chat.run_cell("6 * 7") == "42"


@pytest.mark.parametrize(
    ("flow", "model"),
    [(WITH_EGO, "of_the_layered_agent(ATTACKS, ATTACKS)"), (WITH_COORDINATOR, "of_the_coordinator(ATTACKS)")],
    ids=["ego", "coordinator"],
)
def test_attacks_in_replies_are_text(open_chat, flow, model):
    chat = open_chat(lab_of(flow, model), "model.seconds = 0.01", SHOW)
    fetched: list[str] = []
    chat.page.on("request", lambda request: fetched.append(request.url))
    chat.ask("<img src=x onerror=\"alert('asked')\"> I live in Bern and play the oboe, by the way.")
    chat.wait_for_end(0)
    chat.wait_for("steps", 0, "tool reflection" if flow == WITH_EGO else "remember:")
    for summary in chat.part("steps", 0).locator("summary").all():
        summary.click()
    parts = [chat.part(name, 0) for name in ("reply", "canvas", "steps", "footer")]
    for part in parts:
        assert part.locator("script, img, svg, style, iframe, a, [onerror], [onload], [onmouseover]").count() == 0
    for rendered in parts[: 2 if flow == WITH_EGO else 1]:
        text = rendered.inner_text()
        for attack in ("<script>alert('script')</script>", "[a link](javascript:alert('markdown'))", "<svg onload="):
            assert attack in text
        assert "](http://evil.invalid/p.png)" in text and r", a zero \x00, an escape \x1b[31m" in text
        assert "half a pair \ufffd" in text or r"half a pair \ud83d" in text
        assert rendered.is_visible()
    assert chat.attacks() == [] and not [url for url in fetched if "evil" in url or url.endswith("/x")]
    chat.ask("And the notebook?")
    chat.wait_for_end(1)


def test_flow_receives_speaker_and_memory_folder(open_chat):
    reply = "lambda request: str([m.text for m in request.messages if m.role == 'user'])"
    chat = open_chat(
        lab_of("discord", reply), "notebook.chat_widget(lab, documents=(), speaker='Alex:1001', memory='kept')"
    )
    chat.ask("Who am I?")
    chat.wait_for("reply", 0, "Alex")
    assert chat.run_cell("import pathlib; pathlib.Path('kept').is_dir()") == "True"


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_axe_finds_no_violation_in_the_widget(open_chat, theme):
    from axe_playwright_python.sync_playwright import Axe  # only the extra `browser` has it

    chat = open_chat(COORDINATOR, SHOW)
    chat.page.evaluate(f"window.jupyterapp.commands.execute('apputils:change-theme', {{theme: '{theme}'}})")
    chat.ask("My name is Anna and I live in Bern.")
    chat.wait_for_end(0)
    for summary in chat.part("steps", 0).locator("summary").all():
        summary.click()
    output = ".jp-OutputArea-output:has(.agentlab-reply)"
    assert chat.page.locator(output).count() == 1
    violations = Axe().run(chat.page, context=output).response["violations"]
    assert [(each["id"], [node["html"][:160] for node in each["nodes"][:3]]) for each in violations] == []
