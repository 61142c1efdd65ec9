"""Checks of model servers: llama.cpp's server over HTTP, and a LiteLLM proxy in front of it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from bench import Bench, contains, free_port
from catalogue import Lacking, tries

from agentlab.models import weights
from agentlab.models.local import server as llama

MODEL = "qwen2.5-coder-0.5b"
KEY = "sk-of-this-machine"
DATA = {
    "conversations.jsonl": [
        {"id": "one", "turns": [{"user": "What is the cat called?", "reference_answers": ["Fenchurch"]}]},
        {"id": "two", "turns": [{"user": "Where does the cat live?", "reference_answers": ["Ulm"]}]},
    ],
    "corpus.jsonl": [{"doc_id": "cat", "title": "The cat", "text": "The cat is called Fenchurch. It lives in Ulm."}],
}


@contextlib.contextmanager
def llama_cpp() -> Iterator[str]:
    """Run llama.cpp's server on the embedded model's weights and yield its address."""
    if not weights.is_present(MODEL):
        raise Lacking(f"the weights are missing: agentlab pull {MODEL}")
    (model,) = (str(path) for path in weights.fetch(MODEL).values() if path.suffix == ".gguf")
    settings = {"model": model, "context": 8192, "threads": 2, "prompt_cache": 0, "key": KEY}
    process = subprocess.Popen(
        [sys.executable, llama.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        port = process.stdout.readline().strip()
        assert port, "llama.cpp's server does not start"
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)


def answers(bench: Bench, model: str, **env: str) -> str:
    """Run a flow on a small data set and chat with a tool through the server; return what the run measured."""
    data = bench.folder / "data"
    data.mkdir(exist_ok=True)
    for name, rows in DATA.items():
        (data / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["--model", f"openai/{model}", "--set", "embedder=hashing/hashing-64", "--set", "generation.max_tokens=48"]
    bench.agentlab("run", "--dataset", "data", "--flow", "rag_only", *given, "--out", "run", **env)
    flow = json.loads((bench.folder / "run" / "summary.json").read_text())["flows"]["rag_only"]
    assert flow["errors"] == 0 and flow["llm_calls"] == 2, f"{flow['errors']} errors, {flow['llm_calls']} calls"
    assert flow["input_tokens"] and flow["output_tokens"], "no usage is reported"
    replies = (bench.folder / "run" / "turns.jsonl").read_text()
    contains(replies, "Fenchurch")
    typed = "What time is it? Use the tool.\n/trace\n"
    screen = bench.agentlab("chat", "coordinator", *given, "--memory", "kept", typed=typed, **env)
    contains(screen, "model call")
    return f"{flow['input_tokens']} + {flow['output_tokens']} tokens"


@tries("llama.cpp server", "answers `agentlab run` and a chat with tools, with usage")
def llama_answers(bench: Bench) -> str:
    with llama_cpp() as address:
        detail = answers(bench, MODEL, OPENAI_BASE_URL=address, OPENAI_API_KEY=KEY)
    return f"xllamacpp {version('xllamacpp')}, {detail}"


@tries("llama.cpp server", "refuses a wrong key, in one line")
def llama_refuses(bench: Bench) -> str:
    with llama_cpp() as address:
        wrong = {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "sk-wrong"}
        screen = bench.agentlab("chat", "coordinator", *plain(MODEL), typed="Hi\n", **wrong)
    contains(screen, "Invalid API Key")
    assert "Traceback" not in screen and "sk-wrong" not in screen, "a traceback, or the key"
    return "Invalid API Key"


def plain(model: str) -> list[str]:
    return ["--model", f"openai/{model}", "--set", "embedder=hashing/hashing-64", "--memory", "refused"]


@tries("LiteLLM proxy", "passes `agentlab run` and a chat with tools on to llama.cpp")
def litellm_answers(bench: Bench) -> str:
    with llama_cpp() as address, proxy(bench, address) as url:
        return answers(bench, "cat-model", OPENAI_BASE_URL=url, OPENAI_API_KEY=KEY)


@tries("LiteLLM proxy", "names a model that it does not have, and an unavailable server behind it")
def litellm_errors(bench: Bench) -> str:
    with proxy(bench, f"http://127.0.0.1:{free_port()}/v1") as url:
        env = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY}
        unknown = bench.agentlab("chat", "coordinator", *plain("no-such-model"), typed="Hi\n", **env)
        contains(unknown, "HTTP 400")
        screen = bench.agentlab("chat", "coordinator", *plain("cat-model"), typed="Hi\n", **env)
    assert "Traceback" not in unknown + screen, "a traceback is shown"
    return " ".join(line for line in screen.splitlines() if "rror" in line)[:90]


@contextlib.contextmanager
def proxy(bench: Bench, upstream: str) -> Iterator[str]:
    """Run the proxy in front of the address `upstream` and yield its own address."""
    port = free_port()
    row: dict[str, Any] = {"model": f"openai/{MODEL}", "api_base": upstream, "api_key": KEY}
    settings = {
        "model_list": [{"model_name": "cat-model", "litellm_params": row}],
        "general_settings": {"master_key": KEY},
        "litellm_settings": {"telemetry": False, "num_retries": 0, "request_timeout": 120},
    }
    file = bench.folder / "config.yaml"
    file.write_text(json.dumps(settings))
    command = [
        bench.program(),
        "--config",
        str(file),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--telemetry",
        "False",
    ]
    with bench.running(command, "proxy.log", LITELLM_LOCAL_MODEL_COST_MAP="True") as process:
        bench.wait_for(port, process, "proxy.log")
        yield f"http://127.0.0.1:{port}/v1"
