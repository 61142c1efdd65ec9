"""The chat widget as a bench: two flows, forks, cases for a data set, and the stored output of a notebook."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from msgspec.structs import replace

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import ServerFault
from agentlab.core.messages import Completion, Message, Usage
from agentlab.models.scripted import Scripted
from agentlab.notebook.chat import ALONE, ChatWidget
from support.widgets import ANSWER, EVIL, Slow, everything, until

PAIR = ["rag_only", {"flow": "rag_only", "label": "second", "retrieval": {"top_k": 1}}]


async def test_two_columns_show_two_flows_with_their_names(lab_over):
    chat = ChatWidget(lab_over(Scripted([ANSWER, "Seven metres."]), flows=PAIR))
    chat.second_flow.value = "second"
    first = (await chat.say("How wide?")).text
    other = {ANSWER: "Seven metres.", "Seven metres.": ANSWER}[first]  # whichever was asked first
    turn, beside = chat.questions[-1][1]
    assert (
        first in turn.reply.value
        and "rag_only on scripted" in turn.who.value
        and "second on scripted" in beside.who.value
    )
    assert other in beside.reply.value and "1 model call " in beside.footer.value
    chat.second_flow.value = ALONE
    assert "a new conversation" in everything(chat)


async def test_stop_ends_both_columns(lab_over):
    model = Slow("one two three", pause="three")
    chat = ChatWidget(lab_over(model, flows=PAIR))
    chat.second_flow.value = "second"
    saying = asyncio.ensure_future(chat.say("Count"))
    await until(lambda: bool(chat.turns) and "two" in chat.turns[-1].reply.value)
    chat.stop_button.click()
    assert await saying is None
    assert all("stopped" in turn.footer.value for turn in chat.questions[-1][1])


async def test_running_call_pulses_and_shows_seconds(lab_over, monkeypatch):
    model = Slow("one two", pause="two")
    chat = ChatWidget(lab_over(model, flows=["rag_only"]))
    saying = asyncio.ensure_future(chat.say("Count"))
    await until(lambda: bool(chat.turns) and "agentlab-running" in everything(chat.turns[-1].steps))
    await until(lambda: " · 1 s" in everything(chat.turns[-1].steps))
    model.go.set()
    await saying
    assert "agentlab-running" not in everything(chat.turns[-1].steps)


async def test_a_free_model_is_asked_and_one_that_is_not_there_is_a_line(lab_over, tmp_path):
    script = tmp_path / "other.yaml"
    script.write_text("loop: true\nreplies: [from the other model]\n", encoding="utf-8")
    chat = ChatWidget(lab_over(Scripted([ANSWER]), flows=["rag_only"]))
    chat.model.value = f"scripted/{script}"
    assert (await chat.say("Hello")).text == "from the other model"
    chat.model.value = "nobody/knows"
    assert await chat.say("Hello") is None
    assert "nobody" in chat.turns[-1].footer.value


async def test_fork_continues_from_its_turn_with_another_flow(lab_over):
    model = Scripted(["first", "second", "third"])
    chat = ChatWidget(lab_over(model, flows=PAIR))
    await chat.say("One?")
    await chat.say("Two?")
    chat.turns[0].fork_button.click()
    chat.flow.value = "second"
    await chat.say("Three?")
    texts = [message.text for message in model.requests[-1].messages]
    assert "One?" in texts and "first" in texts and "Two?" not in texts
    assert "a fork: continues after “One?”" in everything(chat) and "second on scripted" in chat.turns[-1].who.value
    chat.flow.value = "rag_only"
    assert len(chat.questions) == 3


class Counted:
    """Says `text` and that it was cut, or dies in the middle."""

    name, parallel = "scripted", None

    def __init__(self, text: str, fault: Exception | None = None) -> None:
        self.text, self.fault = text, fault

    async def complete(self, request, emit) -> Completion:
        emit(self.text)
        if self.fault is not None:
            raise self.fault
        usage = Usage(input_tokens=9, output_tokens=48, cached_tokens=0)
        done = Completion(message=Message(role="agent", text=self.text), usage=usage)
        return replace(done, finish_reason="length")

    async def close(self) -> None:
        pass


async def test_truncated_reply_is_marked_and_a_whole_one_is_not(lab_over):
    chat = ChatWidget(lab_over(Counted("**The** goal"), flows=["rag_only"]))
    await chat.say("How wide?")
    turn = chat.turns[-1]
    assert "cut at 48 tokens" in turn.footer.value and "<strong>The</strong> goal" in turn.reply.value
    whole = ChatWidget(lab_over(Scripted([ANSWER]), flows=["rag_only"]))
    await whole.say("How wide?")
    assert "cut at" not in everything(whole)


async def test_after_a_server_died_in_mid_answer_tokens_are_unknown(lab_over):
    chat = ChatWidget(lab_over(Counted("half an", ServerFault("the connection broke", "scripted")), flows=["rag_only"]))
    assert await chat.say("How wide?") is None
    footer = chat.turns[-1].footer.value
    assert "the connection broke" in footer and "tokens unknown" in footer and "0 + 0" not in footer


@pytest.fixture
def shell(monkeypatch):
    """Fake IPython that stores displays; an update replaces the display with the same id."""
    InteractiveShell.clear_instance()
    results: dict[str, dict] = {}

    def publish(data, metadata=None, *, transient=None, update=False, **others):
        name = (transient or {}).get("display_id", "first")
        assert not update or name in results
        results[name] = data

    monkeypatch.setattr(InteractiveShell.instance().display_pub, "publish", publish)
    yield results
    InteractiveShell.clear_instance()


async def test_the_notebook_file_keeps_the_conversation_as_html_and_text(lab_over, shell):
    chat = ChatWidget(lab_over(Scripted([f"**Wide** {EVIL}", "Seven."]), flows=PAIR))
    chat.second_flow.value = "second"
    chat._ipython_display_()
    await chat.say(f"How wide? {EVIL}")
    stored = next(bundle for name, bundle in shell.items() if name != "first")
    assert "application/vnd.jupyter.widget-view+json" in shell["first"]
    assert "<strong>Wide</strong>" in stored["text/html"] and ">second<" in stored["text/html"]
    assert "<script" not in stored["text/html"]
    assert all(part in stored["text/plain"] for part in ("How wide?", "Seven.", "second on scripted"))
    chat.clear()
    assert "Wide" not in next(bundle for name, bundle in shell.items() if name != "first")["text/html"]


async def test_bad_reply_becomes_a_failing_case_that_the_gate_sees(lab_over, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lab = lab_over(Scripted(["Fine.", "It is 3 m wide."]), flows=["rag_only"])
    chat = ChatWidget(lab)
    await chat.say("Hello, what do you know?")
    await chat.say("How wide is a goal?")
    turn = chat.turns[-1]
    turn.save_button.click()
    form = turn.form.children[0]
    assert form.corrected.value == "It is 3 m wide."
    form.corrected.value = "7.32 m"
    form.save_button.click()
    assert "saved as case-001 in datasets/from_chat" in form.status.value
    case = json.loads(Path("datasets/from_chat/conversations.jsonl").read_text())
    history, requests = case["turns"]
    assert (history["scored"], history["reference_answers"]) == (False, ["Fine."])
    assert requests["reference_answers"] == ["7.32 m"] and "scored" not in requests

    def play(reply: str, out: str) -> None:
        with al.Lab(
            datasets=["datasets/from_chat"],
            flows=["rag_only"],
            model=Scripted([reply], loop=True),
            embedder="hashing/hashing-256",
        ) as lab:
            lab.run_sync(out=out)

    play("7.32 m", "good")
    play("It is 3 m wide.", "bad")
    assert main(["gate", "good", "--baseline", "base.jsonl", "--update"]) == 0
    assert main(["gate", "good", "--baseline", "base.jsonl"]) == 0
    assert main(["gate", "bad", "--baseline", "base.jsonl", "--explain"]) in (2, 3)


async def test_form_reports_a_folder_that_is_no_data_set_and_stays(lab_over, tmp_path):
    (tmp_path / "file").write_text("x")
    chat = ChatWidget(lab_over(Scripted([ANSWER]), flows=["rag_only"]))
    await chat.say("How wide?")
    chat.turns[-1].save_button.click()
    form = chat.turns[-1].form.children[0]
    form.folder.value = str(tmp_path / "file")
    form.save_button.click()
    assert "this is a file" in form.status.value and form.save_button in form.children[1].children
    form.folder.value = str(tmp_path / "new")
    form.save_button.click()
    assert "saved as case-001" in form.status.value
    assert (tmp_path / "new" / "corpus.jsonl").exists(), "the documents that the flow answered from come along"
