"""`agentlab init`: a project of the user's own: a spec, a data set small enough to replace, a workflow for CI."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentlab.core.errors import ConfigError

SPEC = """\
# What to compare. Every key: agentlab schema; every name: agentlab list flows
name: first
datasets: [datasets/example]
flows: [rag_only, tools, tools_rag_fallback]
model: local/qwen2.5-coder-0.5b
retrieval: {top_k: 3}
generation: {temperature: 0, seed: 7, max_tokens: 128}
"""

KEYS = """\
{
  "openai": ["replace by your key; several are taken in turn"],
  "gemini": []
}
"""

WORKFLOW = """\
# Replays evals/flows.yaml from evals/recordings and holds it against a baseline. Once, on your machine:
#   agentlab run --mode record --out results/first
#   agentlab gate results/first --baseline evals/baselines/first.jsonl --update
# and commit evals/recordings and evals/baselines. A change that alters a request shows up as a call that is not
# recorded: `agentlab run --mode auto` asks for it, and the gate says whether the flow has become worse.
# AGENTLAB_MODE makes every command replay, so nothing here can ask a model by mistake.
name: evals
on: [pull_request]
permissions: {contents: read}
jobs:
  gate:
    runs-on: ubuntu-latest
    timeout-minutes: 20
    env: {AGENTLAB_MODE: replay}
    steps:
      - uses: actions/checkout@v5
      - uses: actions/setup-python@v6
        with: {python-version: "3.12"}
      - run: pip install agentlab-harness
      - run: agentlab run evals/flows.yaml --out results/gate
      - run: agentlab gate results/gate --baseline evals/baselines/first.jsonl --junit results/gate.xml
      - uses: actions/upload-artifact@v4
        if: always()
        with: {name: evals, path: results}
"""

DOCUMENTS = [
    {
        "doc_id": "opening-hours",
        "title": "Opening hours",
        "text": "The library is open from Tuesday to Saturday, ten in the morning until seven in the evening. On"
        " Sundays and Mondays it is closed. The last loan is handed out fifteen minutes before closing.",
    },
    {
        "doc_id": "loans",
        "title": "Loans",
        "text": "A member may take home eight books at a time. A loan runs for three weeks and can be extended twice"
        " unless somebody has asked for the book. Each day late costs twenty cents a book.",
    },
]

CONVERSATIONS = [
    {
        "id": "example-1",
        "turns": [
            {
                "user": "How many books can I borrow at once?",
                "reference_answers": ["Eight books at a time.", "eight"],
                "relevant_doc_ids": ["loans"],
                "needs_document_lookup": True,
            },
            {
                "user": "And for how long?",
                "reference_answers": ["For three weeks, and the loan can be extended twice.", "three weeks"],
                "relevant_doc_ids": ["loans"],
                "needs_document_lookup": True,
            },
        ],
        "source": "agentlab",
        "licence": "Apache-2.0",
    },
    {
        "id": "example-2",
        "turns": [
            {
                "user": "Are you open on Mondays?",
                "reference_answers": ["No, the library is closed on Mondays.", "No, it is closed."],
                "relevant_doc_ids": ["opening-hours"],
                "needs_document_lookup": True,
            },
            {
                "user": "How much does a membership cost?",
                "relevant_doc_ids": [],
                "unanswerable": True,
                "needs_document_lookup": True,
            },
        ],
        "source": "agentlab",
        "licence": "Apache-2.0",
    },
]


def create(folder: Path) -> list[Path]:
    """Write the files and return them; raises ConfigError, and writes nothing, where one of them is there already."""
    example = folder / "datasets" / "example"
    contents = {
        folder / "evals" / "flows.yaml": SPEC,
        folder / "llm_api_keys.json.template": KEYS,
        folder / ".github" / "workflows" / "evals.yml": WORKFLOW,
        example / "corpus.jsonl": _lines(DOCUMENTS),
        example / "conversations.jsonl": _lines(CONVERSATIONS),
    }
    for path in contents:
        if path.exists():
            raise ConfigError(f"{path} is there already; choose another folder: agentlab init FOLDER")
    try:
        for path, text in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise ConfigError(f"cannot write to {folder}: {problem.strerror}") from None
    return list(contents)


def _lines(records: Sequence[Mapping[str, object]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
