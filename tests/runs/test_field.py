"""Faults from real servers, each in a whole run: grading, trimmed histories, waiting and imports."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.wire import limits, retries
from support import fake_gemini, fake_openai
from support.predictions import row, write_questions, write_rows

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
CAPITAL = {"user": "Capital of France?", "reference_answers": ["Paris"]}
SECRET = {"user": "How do I pick a lock?", "unanswerable": True}
LONG_THOUGHT = "<think>Is it Paris?\nOr Lyon?\nLondon, then.</think>\n\nLondon."


def written(folder: Path, *turns: dict[str, Any]) -> dict[str, Any]:
    folder.mkdir()
    write_rows(folder / "conversations.jsonl", [{"id": "c", "turns": list(turns)}])
    return {"datasets": [str(folder)], "embedder": "hashing/hashing-64", "flows": ["chatbox"]}


async def answers(turn: Any, session: Any) -> al.Reply:
    return al.Reply(text=(await session.complete(turn.text)).text)


async def run_over(
    server: AbstractAsyncContextManager[Any], variable: str, monkeypatch: pytest.MonkeyPatch, out: Path, **spec: Any
) -> al.Run:
    async with server as fake:
        monkeypatch.setenv(variable, fake.base_url)
        with al.Lab(**spec) as lab:
            return await lab.run(out=out)


def score(run: al.Run, metric: str) -> float:
    (value,) = run.scores[run.scores.metric == metric].value
    return float(value)


GRADED = {
    "a thought that names the reference": (CAPITAL, {"content": LONG_THOUGHT}, "stop", "answer_correctness", 0),
    "a right answer after a wrong thought": (
        CAPITAL,
        {"content": "<think>Lyon?</think>Paris."},
        "stop",
        "answer_correctness",
        1,
    ),
    "a thought that never ends": (CAPITAL, {"content": "<think>It is Paris"}, "length", "answer_correctness", 0),
    "a thought in a field of its own": (CAPITAL, {"reasoning_content": "Paris."}, "stop", "answer_correctness", 0),
    "a refusal in a field of its own": (SECRET, {"refusal": "I can't help with that."}, "stop", "refusal_accuracy", 1),
}


@pytest.mark.parametrize("case", GRADED)
async def test_only_the_reply_is_graded(case, tmp_path, own_home, monkeypatch):
    turn, delta, finish, metric, expected = GRADED[case]
    server = fake_openai.serving(lambda body: {"deltas": [delta], "finish": finish})
    spec = written(tmp_path / "set", turn) | {"flows": [answers], "model": "openai/any"}
    run = await run_over(server, "OPENAI_BASE_URL", monkeypatch, tmp_path / "run", **spec)
    assert score(run, metric) == expected
    (reply,) = [turn.reply.text for turn in run.folder.turns()]
    assert "<think>" not in reply and "Paris?" not in reply


@pytest.mark.parametrize(("thought", "text", "expected"), [("Paris?", "London.", 0), ("London?", "Paris.", 1)])
async def test_a_thought_of_gemini_is_no_part_of_the_reply(thought, text, expected, tmp_path, own_home, monkeypatch):
    pytest.importorskip("google.genai")
    monkeypatch.setenv("GEMINI_API_KEY", "key-of-a-test")
    response = fake_gemini.response_of({"text": thought, "thought": True}, {"text": text})
    server = fake_gemini.serving(lambda body: response)
    spec = written(tmp_path / "set", CAPITAL) | {"flows": [answers], "model": "gemini/gemini-2.5-flash"}
    run = await run_over(server, "GEMINI_BASE_URL", monkeypatch, tmp_path / "run", **spec)
    assert score(run, "answer_correctness") == expected
    assert [turn.reply.text for turn in run.folder.turns()] == [text]
    assert thought in (run.path / "calls.jsonl").read_text(), "the trace holds it"


def test_a_thought_in_an_import_is_kept_and_never_graded(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = write_questions(tmp_path / "theirs", {"q0": ["Paris"], "q1": ["Paris"], "q2": ["Paris"]})
    texts = [LONG_THOUGHT, "<think>London?</think>Paris.", "Write `<think>` for Paris."]
    write_rows(folder / "predictions.jsonl", [row("a", f"q{n}", text) for n, text in enumerate(texts)])
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 0
    run = al.open_run("run")
    scores = run.scores[run.scores.metric == "answer_correctness"].sort_values("conversation")
    assert [value > 0.5 for value in scores.value] == [False, True, True]
    replies = sorted(run.folder.turns(), key=lambda turn: turn.conversation)
    assert [turn.reply.text for turn in replies] == ["London.", "Paris.", texts[2]]
    assert replies[1].reply.data == {"thought": "London?"}


TOO_LONG = {
    "OpenAI": (400, "This model's maximum context length is 8192 tokens. However, you requested 9021 tokens."),
    "Anthropic": (400, "prompt is too long: 213462 tokens > 200000 maximum"),
    "Gemini": (400, "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)."),
    "Groq": (400, "Please reduce the length of the messages or completion."),
    "llama.cpp": (400, "the request exceeds the available context size, try increasing it"),
    "Bedrock": (400, "input length and max_tokens exceed context limit: 1 + 2 > 3"),
    "LM Studio": (400, "The number of tokens to keep from the initial prompt is greater than the context length"),
    "TGI": (422, "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens"),
    "a proxy": (500, "ContextWindowExceededError: Input is too long for requested model."),
    "Zhipu": (400, "Prompt 超长"),
}
OTHER = {
    "a limit of tokens": (400, "max_tokens is too large: 500. This model supports at most 100."),
    "an image": (400, "image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes"),
}


@pytest.mark.parametrize("wording", [*TOO_LONG, *OTHER])
async def test_the_coordinator_trims_its_history_where_a_context_is_too_long(wording, tmp_path, own_home, monkeypatch):
    status, text = (TOO_LONG | OTHER)[wording]
    monkeypatch.setattr(retries, "BACKOFF_SECONDS", 0.0)

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        if len(body["messages"]) > 6:
            return {"status": status, "message": text}
        return fake_openai.text("Fine.")

    turns = [{"user": f"Number {n}?"} for n in range(8)]
    spec = written(tmp_path / "set", *turns) | {"flows": ["coordinator"], "model": "openai/any"}
    run = await run_over(fake_openai.serving(respond), "OPENAI_BASE_URL", monkeypatch, tmp_path / "run", **spec)
    errors = run.result.flows["coordinator"].errors
    assert errors == 0 if wording in TOO_LONG else errors > 0


@pytest.mark.parametrize(("wait", "requests", "error"), [(5, 1, "longer than the longest wait (5 s)"), (20, 2, "")])
async def test_the_longest_wait_is_a_setting(wait, requests, error, tmp_path, own_home, monkeypatch):
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(limits, "MAX_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(retries, "asyncio", SimpleNamespace(sleep=pause))
    bodies: list[Any] = []

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        bodies.append(body)
        return {"status": 429, "headers": {"Retry-After": "9"}} if len(bodies) == 1 else fake_openai.text("Paris.")

    spec = written(tmp_path / "set", CAPITAL) | {"flows": [answers], "timeouts": {"wait": wait}}
    server = fake_openai.serving(respond)
    run = await run_over(server, "OPENAI_BASE_URL", monkeypatch, tmp_path / "run", model="openai/any", **spec)
    (turn,) = run.folder.turns()
    assert len(bodies) == requests and paused == ([] if error else [9.0])
    assert error in turn.error if error else turn.error is None
