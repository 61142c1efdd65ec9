"""Messages that need no plan get their reply at once; a canvas that contradicts the chat is dropped."""

from __future__ import annotations

import json

import pytest
import yaml

from agentlab.core.events import Decision
from agentlab.flows.ego.plain import needs_plan
from support.layered_agent import agent, prompts, prompts_of, say
from support.paths import ROOT

MESSAGES = yaml.safe_load((ROOT / "tests/data/plain_statements.yaml").read_text(encoding="utf-8"))
FENCHURCH = "My cat is called Fenchurch and I live in Ulm."


def test_most_plain_statements_need_no_plan_and_no_request_loses_its_plan():
    plain, planned = MESSAGES["plain"], MESSAGES["planned"]
    assert len(plain) == len(planned) == 40
    assert sum(not needs_plan(message) for message in plain) >= 38
    assert [message for message in [*planned, "Show me", "yes, please do"] if not needs_plan(message)] == []


@pytest.mark.parametrize(("dataset", "calls"), [("research", 41), ("assistant", 97)])
def test_no_message_that_needs_a_tool_loses_its_plan(dataset, calls):
    lines = (ROOT / "datasets" / dataset / "conversations.jsonl").read_text(encoding="utf-8").splitlines()
    turns = [turn for line in lines for turn in json.loads(line)["turns"]]
    need = [turn for turn in turns if turn.get("expected_calls") or turn.get("needs_document_lookup")]
    assert len(need) == calls and all(needs_plan(turn["user"]) for turn in need)


@pytest.mark.parametrize(("reply", "plan"), [("Which file do you mean?", True), ("I see.", False)])
def test_an_answer_to_a_question_of_the_agent_needs_a_plan(reply, plan):
    assert needs_plan("My third one.", reply) == needs_plan("yes", reply) == plan


@pytest.mark.parametrize(
    ("message", "plan"),
    [
        ("Thanks!", False),
        ("thank you very much for your help, bye 👋", False),
        ("No, thanks.", False),
        ("Vielen Dank für die Antwort!", False),
        ("Muchas gracias. ¡Hasta luego!", False),
        ("谢谢你!", False),
        ("どうもありがとうございます。", False),
        ("ok thanks", True),
        ("Yes, please. Thank you!", True),
        ("Sounds good, thanks", True),
        ("Thanks, the second one.", True),
        ("Ja, danke", True),
        ("好的,谢谢", True),
        ("hi, what about the second one", True),
        ("👍", True),
    ],
)
def test_thanks_after_a_question_of_the_agent_need_no_plan_and_assent_does(message, plan):
    assert needs_plan(message, "Shall I book it?") == plan and not needs_plan(message.partition(",")[0], "Booked.")


@pytest.mark.parametrize(
    ("text", "setting", "calls"),
    [
        (FENCHURCH, "wording", ["bubble"]),
        ("Thanks!", "wording", ["bubble"]),
        ("What is an oboe?", "wording", ["plan", "evaluate", "bubble"]),
        (FENCHURCH, "never", ["plan", "evaluate", "bubble"]),
    ],
)
async def test_plain_statement_costs_one_call_before_its_reply(text, setting, calls):
    session, model = agent(plain_replies=setting, reflection=False)
    [reply] = await say(session, text)
    assert prompts_of(session) == calls and reply.text.startswith("It is a woodwind.")
    plans = [e.choice for e in session.trace.events if isinstance(e, Decision) and e.name == "needs a plan"]
    assert plans == ([] if setting == "never" else ["plan" in calls])
    assert (text in prompts(model, "bubble")[0]) and ("Result" in prompts(model, "bubble")[0]) == ("plan" in calls)


@pytest.mark.parametrize(
    ("chat", "canvas", "is_shown"),
    [
        ("It is 7.32 m wide.", "# Goal: 8 m", False),
        ("It is 7.32 m wide.", "1. width: 7.32 m\n2. height: 2.44 m", True),
        ("There are 3 of them.", "* 200 g of flour\n* 2 eggs", True),
        ("It is 2.44 m high and 7.32 m wide.", "| width | 7.32 m |", True),
        ("I could not find it.", "# Goal\nIt is wide.", False),
        ("It is wide.", "# Goal\nSee the list.", True),
    ],
)
@pytest.mark.parametrize("checks", [True, False])
async def test_canvas_that_contradicts_the_chat_is_dropped(chat, canvas, is_shown, checks):
    bubble = json.dumps({"chat": chat, "canvas": canvas})
    session, _ = agent(replies={"bubble": bubble}, consistent_canvas=checks)
    [reply] = await say(session, "How wide is a goal?")
    assert reply.data == {"chat": chat, "canvas": canvas if is_shown or not checks else ""}
    dropped = [e.why for e in session.trace.events if isinstance(e, Decision) and e.name == "canvas"]
    assert bool(dropped) == (checks and not is_shown)
