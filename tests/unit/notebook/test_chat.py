"""The chat widget, driven through its own parts."""

from __future__ import annotations

import asyncio
import json
import re
import sys

import pytest

import agentlab as al
from agentlab import notebook
from agentlab.core.errors import MissingExtra, Refused
from agentlab.evals.store.progress import RunProgress
from agentlab.lab.lab import Lab
from agentlab.models.scripted import Scripted, call
from agentlab.notebook.chat import ChatWidget
from support.layered_agent import USUAL, purpose
from support.widgets import ANSWER, EVIL, LOOKUP, Slow, everything, lines, until


async def test_click_sends_and_shows_reply_calls_and_citations(lab_over):
    chat = notebook.chat_widget(lab_over(Scripted([LOOKUP, ANSWER]), flows=["rag_only", "tools"]))
    chat.flow.value = "tools"
    chat.ask.value = "How wide is a goal?"
    chat.send_button.click()
    assert chat.ask.value == "" and chat.send_button.disabled and not chat.stop_button.disabled
    reply = await asyncio.wrap_future(chat.answering)
    assert reply.text == ANSWER
    turn = chat.turns[-1]
    assert ANSWER in turn.reply.value
    select, tool, search, answer = lines(chat)
    assert "select_tool" in select and "calls lookup_documents [" in select
    assert "retrieve" in search and "&quot;goal width&quot;: 2 passages: " in search
    assert "lookup_documents(document_names=[], query=&quot;goal width&quot;): Found" in tool and "<details" in tool
    assert "answer" in answer and "How wide is a goal?" in answer, "a model call unfolds to what was asked"
    assert "Source [1]: The field" in turn.reply.value
    assert not chat.send_button.disabled and chat.stop_button.disabled


async def test_enter_sends_the_final_text_and_no_blank_one(lab_over):
    model = Scripted([ANSWER])
    chat = ChatWidget(lab_over(model, flows=["rag_only"]))
    chat.ask._handle_custom_msg({"event": "submit"}, [])
    chat.ask.value = "   "
    await asyncio.sleep(0.5)
    assert chat.turns == []
    chat.ask.value = "How wi"
    chat.ask._handle_custom_msg({"event": "submit"}, [])
    chat.ask.value = "How wide?"
    await until(lambda: chat.answering is not None)
    assert (await asyncio.wrap_future(chat.answering)).text == ANSWER
    assert "Question: How wide?" in model.requests[0].messages[-1].text


async def test_the_reply_streams_in_with_few_updates(lab_over):
    model = Slow(" ".join(f"word{number}" for number in range(500)), pause="word400")
    chat = ChatWidget(lab_over(model, flows=["rag_only"]))
    drawn: list[str] = []
    saying = asyncio.ensure_future(chat.say("Talk"))
    await until(lambda: bool(chat.turns))
    chat.turns[-1].reply.observe(lambda change: drawn.append(change["new"]), "value")
    await until(lambda: "word399" in chat.turns[-1].reply.value)
    assert "word400" not in chat.turns[-1].reply.value and not saying.done()
    model.go.set()
    await saying
    assert "word499" in chat.turns[-1].reply.value
    assert len(drawn) < 20, "hundreds of tokens are a handful of updates"


async def test_stop_in_mid_reply_keeps_the_text_and_the_chat_continues(lab_over):
    model = Slow("one two three four", pause="three")
    chat = ChatWidget(lab_over(model, flows=["rag_only"]))
    chat.ask.value = "Count"
    chat.send_button.click()
    await until(lambda: chat.turns[-1].reply.value.count("two") == 1)
    chat.stop_button.click()
    assert await asyncio.wrap_future(chat.answering) is None
    turn = chat.turns[-1]
    await until(lambda: "interrupted" in "".join(lines(chat)))
    assert "one two" in turn.reply.value and "three" not in turn.reply.value
    assert "stopped" in turn.footer.value
    await until(lambda: f"{chat.chat.trace.latency(1):.2f} s" in turn.footer.value and chat.chat.trace.latency(1) > 0)
    assert "1 model call " in turn.footer.value and "tokens unknown" in turn.footer.value
    model.go.set()
    assert (await chat.say("Count again")).text == "one two three four"
    assert "one two" in turn.reply.value and "three" not in turn.reply.value, "the stopped reply stays as it was"


async def test_last_turn_shows_the_trace(lab_over):
    chat = ChatWidget(lab_over(Scripted(["first", "I think so.", ANSWER]), flows=["rag_only", "tools_rag_fallback"]))
    await chat.say("Warm up")
    chat.flow.value = "tools_rag_fallback"
    await chat.say("How wide is a goal?")
    totals = chat.chat.trace.totals(1)
    assert (totals.llm_calls, totals.embedding_calls) == (2, 1)
    footer = chat.turns[-1].footer.value
    sums = f"{totals.input_tokens} in, {totals.output_tokens} out"
    assert f"2 model calls · 1 embedding call · {sums}" in footer
    assert f"{chat.chat.trace.latency(1):.2f} s" in footer and "cost unknown" in footer
    assert ANSWER in chat.turns[-1].reply.value and "I think so." not in chat.turns[-1].reply.value
    assert any("I think so." in line for line in lines(chat)), "the first attempt is still to be read in its line"
    assert any("fallback needed? yes" in line for line in lines(chat))


async def test_an_error_is_one_line_and_the_next_message_goes_through(lab_over):
    chat = ChatWidget(lab_over(Scripted([Refused(f"the key is wrong {EVIL}"), ANSWER]), flows=["rag_only"]))
    assert await chat.say("How wide?") is None
    assert "the key is wrong &lt;script&gt;" in chat.turns[-1].footer.value
    assert "Traceback" not in everything(chat) and "<script" not in everything(chat)
    assert (await chat.say("And now?")).text == ANSWER


async def test_a_data_set_that_is_not_there_and_a_broken_flow_are_lines_too(lab_over, tmp_path):
    async def broken(turn, session):
        raise KeyError("oops")

    chat = ChatWidget(lab_over(Scripted([ANSWER]), flows=["rag_only", broken]))
    chat.flow.value = "broken"
    assert await chat.say("How wide?") is None
    assert "KeyError: &#x27;oops&#x27;" in chat.turns[-1].footer.value
    lab = Lab(datasets=[str(tmp_path / "nowhere")], model=Scripted([ANSWER]))
    chat = ChatWidget(lab)
    assert await chat.say("How wide?") is None
    assert "there is no such data set folder" in chat.turns[-1].footer.value
    lab.close()


async def test_untrusted_text_is_never_html(lab_over):
    evil_call = call("lookup_documents", document_names=[], query=EVIL)
    chat = ChatWidget(lab_over(Scripted([evil_call, f"{EVIL} 7.32 m wide [1]", EVIL]), flows=["tools"]))
    await chat.say(EVIL)
    rendered = everything(chat)
    assert rendered.count("&lt;script&gt;") > 5, "question, call, passage, title, reply"
    assert "<script" not in rendered
    assert "&lt;script&gt;" in chat.turns[-1].reply.value, "the cited title"


async def test_canvas_is_rendered_and_its_harmful_parts_are_text(lab_over):
    canvas = f"# Oboe\n\n* **double** {EVIL} [x](javascript:alert)\n\n![y](http://z) <http://w>\n\n| a |\n| - |\n| 1 |"
    replies = {**USUAL, "bubble": json.dumps({"chat": "Half \ud83d a # woodwind.", "canvas": canvas})}
    chat = ChatWidget(lab_over(Scripted([lambda request: replies[purpose(request)]], loop=True), flows=["ego"]))
    await chat.say("What is an oboe?")
    turn = chat.turns[-1]
    assert "Half \\ud83d a # woodwind." in turn.reply.value and "Oboe" not in turn.reply.value
    assert "<h1>Oboe</h1>" in turn.canvas.value and "<strong>double</strong>" in turn.canvas.value
    assert "<td>1</td>" in turn.canvas.value and "[x](javascript:alert)" in turn.canvas.value
    assert not re.search("<(script|a|img)", everything(chat)) and "![y](http://z) &lt;http://w&gt;" in turn.canvas.value
    everything(chat).encode()


async def test_speaker_documents_and_memory_reach_the_flow(lab_over, tmp_path):
    model = Scripted([lambda request: "none" if request.output_schema else "Hello."], loop=True)
    options = {"documents": (), "speaker": "Alex:1001", "memory": tmp_path / "kept"}
    chat = notebook.chat_widget(lab_over(model, flows=["discord"], memory="sqlite"), **options)
    await chat.say("Who am I?")
    assert "Alex" in str(model.requests[-1].messages) and chat.chat.documents == ()
    assert list((tmp_path / "kept").iterdir())


async def test_two_persons_of_one_chat_are_distinguished(lab_over, tmp_path):
    model = Scripted([lambda request: "none" if request.output_schema else "Hello."], loop=True)
    chat = ChatWidget(lab_over(model, flows=["discord"], memory="sqlite"), documents=(), memory=tmp_path / "kept")
    chat.speaker.value = "Ann:7"
    await chat.say("/remember I am allergic to nuts")
    await chat.say("Hi")
    chat.speaker.value = "Bo:8"
    await chat.say("Am I allergic to nuts?")
    texts = [message.text for message in model.requests[-1].messages]
    assert "Ann said: Hi" in texts and "Bo said: Am I allergic to nuts?" in texts
    [facts] = [text for text in texts if "I am allergic to nuts" in text and "ID: " in text]
    assert "Told by: Ann" in facts and "people named in each line" in facts
    assert "asked by Ann:7" in everything(chat) and "asked by Bo:8" in everything(chat)


async def test_early_cleared_display_loses_no_later_turn(lab_over, caplog):
    model = Slow("one two", pause="two")
    chat = ChatWidget(lab_over(model, flows=["rag_only"]))
    saying = asyncio.ensure_future(chat.say("Count"))
    await asyncio.sleep(0)
    chat.clear()
    model.go.set()
    await saying
    await chat.say("Again")
    assert len(chat.turns) == 1 and "two" in chat.turns[-1].reply.value and "a listener" not in caplog.text


async def test_another_flow_or_model_or_clear_begins_a_new_conversation(lab_over, tmp_path, monkeypatch):
    monkeypatch.setattr("agentlab.models.weights.is_present", lambda name: name == "qwen2.5-coder-1.5b")
    script = tmp_path / "other.yaml"
    script.write_text("loop: true\nreplies: [from the other model]\n", encoding="utf-8")
    model = Scripted([ANSWER], loop=True)
    flows = ["rag_only", {"flow": "rag_only", "label": "second", "model": f"scripted/{script}"}]
    chat = ChatWidget(lab_over(model, flows=flows))
    assert list(chat.model.options) == ["scripted", f"scripted/{script}", "local/qwen2.5-coder-1.5b"]
    await chat.say("How wide?")
    await chat.say("And how high?")
    assert any(message.text == "How wide?" for message in model.requests[1].messages)
    chat.flow.value = "second"
    assert chat.model.value == f"scripted/{script}", "the flow brings the model of its spec"
    assert "a new conversation" in everything(chat)
    assert (await chat.say("How long?")).text == "from the other model"
    chat.model.value = "scripted"
    await chat.say("How deep?")
    assert not any(message.text == "How wide?" for message in model.requests[2].messages)
    chat.clear_button.click()
    assert chat.turns == [] and "How deep?" not in everything(chat)
    await chat.say("Once more?")
    assert not any(message.text == "How deep?" for message in model.requests[3].messages)


async def test_a_model_that_no_flow_of_the_lab_uses_gets_a_lab_of_its_own(lab_over, tmp_path):
    async def parrot(turn, session):
        completion = await session.complete([al.Message(role="user", text=turn.text)])
        return al.Reply(text=f"parrot: {completion.message.text}")

    script = tmp_path / "other.yaml"
    script.write_text("loop: true\nreplies: [from the other model]\n", encoding="utf-8")
    chat = ChatWidget(lab_over(Scripted([ANSWER], loop=True), flows=[parrot]))
    chat.model.options = [*chat.model.options, f"scripted/{script}"]
    chat.model.value = f"scripted/{script}"
    assert (await chat.say("Hello")).text == "parrot: from the other model"
    assert "1 model call " in chat.turns[-1].footer.value
    chat.model.value = "scripted"
    assert (await chat.say("Hello")).text == f"parrot: {ANSWER}"
    chat.close()


async def test_closing_the_lab_finishes_work_of_the_widget(lab_over):
    done = []

    async def busy(turn, session):
        async def later():
            await asyncio.sleep(0.2)
            done.append(turn.text)

        session.background(later(), "later")
        return al.Reply(text="soon")

    lab = lab_over(Scripted([]), flows=[busy])
    await ChatWidget(lab).say("Remember me")
    assert done == []
    await asyncio.to_thread(lab.close)
    assert done == ["Remember me"]


async def test_clear_in_mid_reply_leaves_nothing_behind(lab_over):
    model = Slow("one two three", pause="two")
    chat = ChatWidget(lab_over(model, flows=["rag_only"]))
    saying = asyncio.ensure_future(chat.say("Count"))
    await until(lambda: bool(chat.turns) and "one" in chat.turns[-1].reply.value)
    with pytest.raises(al.AgentlabError, match="still answering"):
        await chat.say("Hurry up")
    chat.clear_button.click()
    await saying
    model.go.set()
    await chat.say("Again")
    assert len(chat.turns) == 1 and "stopped" not in everything(chat)


def test_missing_ipywidgets_is_one_line_with_the_remedy(lab_over, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    for module in ("agentlab.notebook.chat", "agentlab.notebook.chat_form", "agentlab.notebook.progress_bar"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(
        MissingExtra, match=r"the chat widget needs an extra: pip install 'agentlab-harness\[notebook\]'"
    ):
        notebook.chat_widget(lab_over(Scripted([])))
    notebook.progress()(RunProgress(done=1, total=2, failed=0))


async def test_work_in_the_background_belongs_to_its_turn_and_never_to_the_reply(lab_over):
    model = Scripted([lambda request: USUAL[purpose(request)]], loop=True)
    chat = ChatWidget(lab_over(model, flows=["ego"]))
    for text in ("What is an oboe?", "And once more?"):
        await chat.say(text)
    await asyncio.to_thread(chat.chat.facts_sync)
    first, second = chat.turns
    for turn, number in ((first, 0), (second, 1)):
        assert "It is a woodwind." in turn.reply.value and "insights" not in turn.reply.value
        await until(lambda turn=turn: any("reflect" in step.value for step in turn.steps.children))
        totals = chat.chat.trace.totals(number + 1)
        assert turn.footer.value.count(f"{totals.llm_calls} model calls") == 1


def receipts_of(chat: ChatWidget) -> str:
    return chat.turns[-1].receipts.value


async def test_a_turn_shows_what_memory_stored_and_what_not(lab_over, tmp_path):
    lab = lab_over(Scripted(["Noted."], loop=True), flows=["coordinator"], memory="sqlite")
    chat = ChatWidget(lab, documents=(), memory=tmp_path / "kept")
    for text, line in ((f"I live in Ulm. {EVIL}", "kept: "), ("What is offside?", "not kept: it only asks")):
        await chat.say(text)
        await until(lambda line=line: line in receipts_of(chat))
    assert "I live in Ulm." in chat.turns[0].receipts.value and "<script" not in everything(chat)


async def test_a_flow_without_a_memory_shows_no_receipt(lab_over):
    chat = ChatWidget(lab_over(Scripted([ANSWER], loop=True), flows=["rag_only"]))
    await chat.say("I live in Ulm.")
    await asyncio.to_thread(chat.chat.facts_sync)
    assert receipts_of(chat) == ""


async def test_facts_are_stored_listed_and_deleted_by_typed_commands(lab_over, tmp_path):
    model = Scripted(["Noted."], loop=True)
    lab = lab_over(model, flows=["chatbox"], memory="sqlite")
    chat = ChatWidget(lab, documents=(), memory=tmp_path / "kept", speaker="Ann:7")
    for typed, rendered in (
        ("/remember I am allergic to nuts", "kept: I am allergic to nuts"),
        ("/memory", "told by Ann  I am allergic to nuts"),
        ("/forget 2", "name one of 1 facts"),
        ("/forget 1", "deleted: I am allergic to nuts"),
        ("/memory", "no stored facts"),
    ):
        chat.ask.value = typed
        chat.send_button.click()
        await asyncio.wrap_future(chat.answering)
        assert rendered in everything(chat) and not chat.send_button.disabled
    assert chat.turns == [] and model.requests == [], "no command is a message"
    await chat.say("/remembering is hard")
    assert len(chat.turns) == 1


async def test_a_command_for_a_flow_without_a_memory_is_one_line(lab_over):
    chat = ChatWidget(lab_over(Scripted([ANSWER]), flows=["rag_only"]))
    assert await chat.say("/remember I am allergic to nuts") is None
    assert "rag_only has no memory" in everything(chat) and chat.turns == []
