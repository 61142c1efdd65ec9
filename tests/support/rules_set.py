"""A small data set about the rules of a game, and a model that obliges."""

from __future__ import annotations

import json
from pathlib import Path

import agentlab as al
from agentlab.core.messages import Message
from agentlab.models.scripted import Scripted, call

DOCUMENTS = [
    {"doc_id": "ball", "title": "The ball", "text": "The ball is round and weighs between 410 and 450 grams."},
    {"doc_id": "pitch", "title": "The pitch", "text": "The pitch is a rectangle and at least 90 metres long."},
]
CONVERSATIONS = [
    {
        "id": f"c{i}",
        "turns": [
            {
                "user": f"How heavy is the ball? ({i})",
                "reference_answers": ["Between 410 and 450 grams."],
                "relevant_doc_ids": ["ball"],
                "needs_document_lookup": True,
            },
            {"user": "Who won?", "relevant_doc_ids": [], "unanswerable": True, "needs_document_lookup": True},
        ],
    }
    for i in range(3)
]


def write_set(folder: Path, conversations: list, documents: list | None = None) -> Path:
    folder.mkdir()
    (folder / "conversations.jsonl").write_text("".join(json.dumps(c) + "\n" for c in conversations))
    if documents:
        (folder / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    return folder


def cooperative_model(request) -> Message | str:
    """Calls the look-up tool once if it is offered, then answers from the passages."""
    if request.tools and request.messages[-1].role == "user":
        return call("lookup_documents", document_names=[], query=request.messages[-1].text)
    question = [message.text for message in request.messages if message.role == "user"][-1]
    return "Between 410 and 450 grams." if "ball?" in question else "The documents do not say."


def lab(dataset: Path, replies=(cooperative_model,), **spec) -> al.Lab:
    spec = {"datasets": [str(dataset)], "embedder": "hashing/hashing-64", **spec}
    return al.Lab(model=Scripted(replies, loop=True), **spec)
