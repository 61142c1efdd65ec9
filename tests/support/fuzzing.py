"""Garbage for every reader and parser: what is valid, changed in one to three places; only our own errors may come."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import agentlab as al
from agentlab.core.errors import AgentlabError
from agentlab.models.scripted import Scripted
from support.forks import in_child
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set

BATCH = 250
"""Inputs of one child."""
MOST_SECONDS = 2
MOST_MEGABYTES = 500
VALUES = [
    *(b"null", b"true", b"-1", b"0", b"1e999", b"NaN", b"-Infinity", b"1.5", b"9" * 400, b'""', b"[]", b"{}"),
    *(
        b'"\\ud800"',
        b'"\\u0000"',
        b'"\x1b[2J"',
        b'"\xff\xfe"',
        b'"2001-99-99"',
        b"[[[[[[]]]]]]",
        b'{"a":{"a":{"a":1}}}',
    ),
    *(b"[" * 5000, b'{"a":' * 5000, b"[" * 200 + b"]" * 200, b'"' + b"x" * 100_000 + b'"', b'{"a":1,"a":2}'),
    *(
        b"&a [*a]",
        b"!!python/object:os.system x",
        b"a: b: c",
        b"<<: 3",
        b"\t- x",
        b"(a+)+$",
        b"../../etc/passwd",
        b"/dev/zero",
    ),
]
Read = Callable[[Path], Any]
Reader = tuple[Path, Read]
"""The file that is changed, and what reads it."""


def mutated(content: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 3)):
        at, to = sorted((chance.randrange(len(content) + 1), chance.randrange(len(content) + 1)))
        way = chance.randrange(9)
        if way == 0:
            content = content[:at]
        elif way == 1:
            content = content[:at] + chance.randbytes(chance.randint(1, 8)) + content[at + 1 :]
        elif way == 2:
            content = content[:at] + content[min(to, at + 40) :]
        elif way == 3:
            content = content[:to] + content[at : min(to, at + 2000)] + content[to:]
        elif way == 4:
            content = content[:at] + chance.choice(VALUES) + content[at:]
        else:
            content = _value_replaced(content, chance)
    return content


def _value_replaced(content: bytes, chance: random.Random) -> bytes:
    """What stands behind a colon or a comma, replaced."""
    places = [place for place, byte in enumerate(content) if byte in b":,["]
    if not places:
        return chance.choice(VALUES)
    begin = chance.choice(places) + 1
    end = begin
    while end < len(content) and content[end] not in b",}]\n" and end - begin < 200:
        end += 1
    return content[:begin] + b" " + chance.choice(VALUES) + content[end:]


def readers(folder: Path) -> dict[str, Reader]:
    """Of every reader a valid file, made by playing a small run."""
    from agentlab.core.prices import load_prices
    from agentlab.core.secrets import scrub
    from agentlab.core.shown import as_markdown, in_json, printable
    from agentlab.data.documents import load_documents
    from agentlab.evals.compare.baselines import read_baseline, write_baseline
    from agentlab.flows.ego.planner import read_step
    from agentlab.flows.json_replies import read_object, read_unfinished_object
    from agentlab.models.keys import load_keys
    from agentlab.models.scripted import connect
    from agentlab.tools.mcp.config import servers_of_file
    from agentlab.tools.mcp.listing import accepted
    from agentlab.wire.recordings import Recordings
    from agentlab.workbench.spec import load_spec

    folder.mkdir(parents=True, exist_ok=True)
    rules = write_set(folder / "rules", CONVERSATIONS, DOCUMENTS)
    told = {"conversation_id": "a", "session_id": "s", "date": "2026-01-05 11:00", "speakers": ["Ann"]}
    (folder / "told").mkdir()
    (folder / "told" / "sessions.jsonl").write_text(
        json.dumps({**told, "turns": [{"id": "1", "speaker": "Ann", "text": "I play."}]}) + "\n"
    )
    question = {
        "id": "q",
        "conversation_id": "a",
        "question": "What?",
        "reference_answers": ["x"],
        "evidence_ids": ["1"],
    }
    (folder / "told" / "questions.jsonl").write_text(json.dumps(question) + "\n")
    spec = {
        "name": "f",
        "datasets": [str(rules)],
        "flows": ["rag_only", {"flow": "tools", "label": "t"}],
        "mode": "auto",
    }
    spec |= {"embedder": "hashing/hashing-64", "recordings": str(folder / "rec"), "retrieval": {"top_k": 2}, "limit": 3}
    os.environ["AGENTLAB_HOME"] = str(folder / "home")
    with al.Lab(model=Scripted(["It weighs 410 g."], loop=True), **spec) as lab:
        run = lab.run_sync(out=folder / "run")
    write_baseline(run, folder / "baseline.jsonl")
    (folder / "spec.yaml").write_text(
        json.dumps({**spec, "model": "openai/m", "generation": {"temperature": 0}}, indent=1)
    )
    (folder / "prices.yaml").write_text('dated: "2026"\nmodels:\n  openai/m: {input: 2, cached_input: 1, output: 10}\n')
    (folder / "keys.json").write_text(json.dumps({"openai": ["key-one", "key-two"], "gemini": []}))
    (folder / "replies.yaml").write_text("loop: true\nreplies:\n- hi\n- tool_calls: [{name: a, arguments: {b: 1}}]\n")
    (folder / "servers.json").write_text(
        json.dumps({"mcpServers": {"t": {"command": "x", "args": ["y"], "env": {"A": "b"}}}})
    )
    (folder / "pages").mkdir()
    (folder / "pages" / "page.html").write_text(
        "<html><title>t</title><p>one<ul><li>two</ul><table><tr><td>x</table></html>"
    )
    (folder / "pages" / "notes.md").write_text("# A\n\ntext [x](y)\n\n* one\n")
    plan = {"thought": "t", "tool": "a", "arguments": {"q": 1}, "steps": [{"tool": "a", "purpose": "p"}], "score": 0.5}
    (folder / "reply.txt").write_text(f"Well: ```json\n{json.dumps(plan)}\n``` and so on {{}}")
    (folder / "tool.json").write_text(
        json.dumps(
            [
                {
                    "name": "a",
                    "description": "d",
                    "inputSchema": {"type": "object", "properties": {"q": {"type": "string", "pattern": "^a"}}},
                }
            ]
        )
    )

    def reads_run(file: Path) -> None:
        found = al.open_run(file.parent)
        found.played()
        found.folder.scores()
        _ = found.traces, found.answered_nothing, repr(found.table())
        repr(found.show("c0"))

    def reads_reply(file: Path) -> None:
        text = file.read_text(errors="replace")
        for found in (read_object(text), read_object(text, "tool"), read_unfinished_object(text)):
            read_step(found or {})
        for encode in (printable, as_markdown, scrub):
            encode(text)
        json.loads(in_json(json.dumps(text)))

    def reads_tools(file: Path) -> None:
        rows = json.loads(file.read_text(errors="replace"))  # as the server's own library hands them on
        accepted("s", rows if isinstance(rows, list) else [rows])

    def reads_keys(file: Path) -> None:
        os.environ["AGENTLAB_KEYS"] = str(file)
        load_keys("openai", "NO_SUCH_KEY")

    def reads_recordings(file: Path) -> None:
        recordings = Recordings.open(file.parent, "f")
        for key in [*keys, "x"]:
            recordings.find(key)

    (recorded,) = (folder / "rec").glob("*.jsonl")
    rows = [json.loads(line) for line in recorded.read_text().splitlines()]
    keys = [row["key"] for row in rows if "key" in row]
    of_run = ("run.json", "turns.jsonl", "calls.jsonl", "summary.json")
    return {
        **{
            f"data set, {name}": (rules / name, lambda f: al.load_dataset(f.parent))
            for name in ("conversations.jsonl", "corpus.jsonl")
        },
        **{
            f"memory set, {name}": (folder / "told" / name, lambda f: al.load_dataset(f.parent))
            for name in ("sessions.jsonl", "questions.jsonl")
        },
        **{f"run folder, {name}": (folder / "run" / name, reads_run) for name in of_run},
        "recordings": (recorded, reads_recordings),
        "baseline": (folder / "baseline.jsonl", read_baseline),
        "spec": (folder / "spec.yaml", lambda f: load_spec(f, {})),
        "prices": (folder / "prices.yaml", load_prices),
        "key file": (folder / "keys.json", reads_keys),
        "scripted model": (folder / "replies.yaml", lambda f: connect(str(f))),
        "MCP servers": (folder / "servers.json", servers_of_file),
        "tools of a server": (folder / "tool.json", reads_tools),
        "web page": (folder / "pages" / "page.html", lambda f: load_documents(f.parent)),
        "Markdown": (folder / "pages" / "notes.md", lambda f: load_documents(f.parent)),
        "output of a model": (folder / "reply.txt", reads_reply),
    }


def play(cases: int, folder: Path, chance: random.Random) -> tuple[str, Iterator[str | None]]:
    made = in_child(lambda: _names(folder / "made"), most_seconds=60)
    assert made.code == 0, made.said
    names = json.loads(next(line for line in made.said.splitlines() if line.startswith("[")))
    return f"inputs to {len(names)} readers and parsers", _cases(names, cases, folder, chance)


def _names(folder: Path) -> int:
    known = readers(folder)
    for file, read in known.values():
        read(file)  # what is valid is read
    print(json.dumps(list(known)))
    return 0


def _cases(names: list[str], cases: int, folder: Path, chance: random.Random) -> Iterator[str | None]:
    done = batch = 0
    while done < cases:
        here = folder / f"batch-{batch}"
        count = min(BATCH, cases - done)
        chosen = [names[(done + n) % len(names)] for n in range(count)]
        seed = chance.random()
        ended = in_child(lambda h=here, c=chosen, s=seed: _feed(h, c, s), most_seconds=count * 3)  # type: ignore[misc]
        failures = [line.removeprefix("FAILED ") for line in ended.said.splitlines() if line.startswith("FAILED ")]
        if ended.code != 0 or ended.hung:
            failures.append(f"the process: {ended}")
        if ended.megabytes > MOST_MEGABYTES:
            failures.append(f"a process of {ended.megabytes:.0f} MB")
        yield from failures
        yield from [None] * (count - len(failures))
        done, batch = done + count, batch + 1


class _TooSlow(BaseException):
    pass


def _feed(folder: Path, names: list[str], seed: float) -> int:
    def alarm(number: int, frame: Any) -> None:
        raise _TooSlow

    import logging
    import warnings

    logging.disable()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, alarm)
    chance, known = random.Random(seed), readers(folder)
    valid = {name: file.read_bytes() for name, (file, _) in known.items()}
    for name in names:
        file, read = known[name]
        content = mutated(valid[name], chance)
        file.write_bytes(content)
        problem = _problem(read, file, alarm)
        if problem:
            print(f"FAILED {name}: {problem}", flush=True)
        file.write_bytes(valid[name])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return 0 if most < 2 * MOST_MEGABYTES else 1


def _problem(read: Read, file: Path, alarm: Any) -> str | None:
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    try:
        read(file)
    except AgentlabError as ours:
        return "an error of several lines" if "\n" in str(ours) else None
    except _TooSlow:
        return f"longer than {MOST_SECONDS} s"
    except json.JSONDecodeError as broken:
        return None if file.name == "tool.json" else f"JSONDecodeError: {broken}"[:60]
    except Exception as foreign:
        return f"{type(foreign).__name__}: {str(foreign).splitlines()[:1]}"[:90]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None
