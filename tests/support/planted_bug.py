"""A run with a planted cause: one line of one flow's prompt breaks its refusals, in one category of questions alone."""

from __future__ import annotations

import json
from pathlib import Path

import agentlab as al
from agentlab.core.messages import Request
from agentlab.flows.documents import PROMPTS
from agentlab.lab.run import Run
from agentlab.models.scripted import Scripted

LINE = "About fees always name a sum."
CATEGORIES = ("fees", "hours", "loans", "rooms")
WHOLE, PLANTED = "rag_only", "rag_sums"


def write_library(folder: Path, conversations: int = 24) -> Path:
    """Conversations of three turns; the second has no answer in the documents."""
    folder.mkdir(parents=True)
    rows, documents = [], []
    for category in CATEGORIES:
        text = f"The {category} of the library are set out here: a card is blue."
        documents.append({"doc_id": category, "title": category.title(), "text": text})
    for number in range(conversations):
        category = CATEGORIES[number % len(CATEGORIES)]
        expectations = {"reference_answers": ["The card is blue."], "relevant_doc_ids": [category]}
        turns = [
            {"user": f"Which colour has the card for {category}? ({number})", **expectations},
            {"user": f"And what do the {category} of the other town cost? ({number})", "unanswerable": True},
            {"user": f"The card for {category} again, please? ({number})", **expectations},
        ]
        rows.append({"id": f"c{number:02}", "turns": turns, "metadata": {"category": category}})
    for name, result in (("conversations", rows), ("corpus", documents)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in result))
    return folder


def answer(request: Request) -> str:
    system = request.messages[0].text
    question = [message.text for message in request.messages if message.role == "user"][-1]
    if "other town" not in question:
        return "The card is blue."
    return "That is 12 a year." if LINE in system and "the fees" in question else "The documents do not say that."


def play_planted(folder: Path, out: Path, conversations: int = 24) -> Run:
    prompts = {"system": f"{PROMPTS['system'].rstrip()}\n{LINE}"}
    flows = [WHOLE, {"flow": "rag_only", "label": PLANTED, "prompts": prompts}]
    data = write_library(folder, conversations)
    spec = {"datasets": [str(data)], "embedder": "hashing/hashing-64", "flows": flows}
    with al.Lab(model=Scripted([answer], loop=True), **spec) as lab:
        return lab.run_sync(out=out)
