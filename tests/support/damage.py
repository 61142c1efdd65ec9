"""Stores that are damaged between two chats or within one: no crash, no hang, one line or a turn that failed."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import agentlab as al
from agentlab.core.errors import AgentlabError
from agentlab.models.scripted import Scripted
from support.child_processes import ChildResult, in_child
from support.rules_set import DOCUMENTS, write_set

MEMORIES = ("sqlite", "textfile", "chroma")


def _truncate(file: Path, chance: random.Random) -> None:
    os.truncate(file, int(chance.random() * file.stat().st_size))


def _empty(file: Path, chance: random.Random) -> None:
    os.truncate(file, 0)


def _flip(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes() or b"x")
    for _ in range(1 + len(content) // 50):
        content[chance.randrange(len(content))] = chance.randrange(256)
    file.write_bytes(content)


def _garbage(file: Path, chance: random.Random) -> None:
    file.write_bytes(chance.randbytes(max(16, file.stat().st_size)))


def _zeros(file: Path, chance: random.Random) -> None:
    file.write_bytes(bytes(file.stat().st_size + 4096))


def _delete(file: Path, chance: random.Random) -> None:
    file.unlink()


def _folder(file: Path, chance: random.Random) -> None:
    file.unlink()
    file.mkdir()


def _dangling(file: Path, chance: random.Random) -> None:
    file.unlink()
    file.symlink_to(file.parent / "nowhere")


def _pipe(file: Path, chance: random.Random) -> None:
    file.unlink()
    os.mkfifo(file)


WAYS: dict[str, Callable[[Path, random.Random], None]] = {
    "truncated": _truncate,
    "empty": _empty,
    "bytes flipped": _flip,
    "garbage": _garbage,
    "zeros": _zeros,
    "deleted": _delete,
    "a folder": _folder,
    "a dangling link": _dangling,
    "a pipe": _pipe,
}


async def remembers(turn: Any, session: Any) -> al.Reply:
    facts = await session.recall(turn.text)
    await session.remember(f"fact of {turn.text}")
    return al.Reply(text=f"{(await session.complete(turn.text)).text} {len(facts)}")


def chat(folder: Path, memory: str, *questions: str, between: Callable[[], None] = lambda: None) -> int:
    """In a child: an error of ours is one line, any other is a traceback that the parent counts."""
    os.environ["AGENTLAB_HOME"] = str(folder / "home")
    given = {"datasets": [str(folder / "set")], "embedder": "hashing/hashing-64", "memory": memory}
    remembers.MEMORY = True  # type: ignore[attr-defined]
    try:
        with al.Lab(model=Scripted(["Hi."], loop=True), flows=[remembers], **given) as lab:
            talk = lab.chat(memory=folder / "kept", database=folder / "kept.sqlite")
            for number, question in enumerate(questions):
                if number:
                    between()
                try:
                    talk.say_sync(question)
                    talk.facts_sync()
                except AgentlabError as problem:
                    assert "\n" not in str(problem), problem
    except AgentlabError as problem:
        print(f"agentlab: {problem}")
        return 1
    return 0


def play(cases: int, folder: Path, chance: random.Random, part: str) -> tuple[str, Iterator[str | None]]:
    unit = (
        f"{len(WAYS)} ways of damaging a file of {', '.join(MEMORIES)} or a chat's history, before a chat or within it"
    )
    return unit, _cases(cases, folder, chance)


def _cases(cases: int, folder: Path, chance: random.Random) -> Iterator[str | None]:
    import_module("chromadb")  # once, not in every child
    whole = {}
    for memory in MEMORIES:
        whole[memory] = folder / memory
        whole[memory].mkdir()
        write_set(whole[memory] / "set", [{"id": "c", "turns": [{"user": "x"}]}], DOCUMENTS)
        ended = in_child(lambda m=memory: chat(whole[m], m, *(f"What is {n}?" for n in "abcdefgh")))  # type: ignore[misc]
        assert ended.code == 0, ended.printed
    for number in range(cases):
        memory = MEMORIES[number % len(MEMORIES)]
        way = list(WAYS)[number // len(MEMORIES) % len(WAYS)]
        within = number // (len(MEMORIES) * len(WAYS)) % 2 == 1
        work = folder / f"case-{number}"
        shutil.copytree(whole[memory], work)
        files = sorted(
            f for f in work.rglob("*") if f.is_file() and "kept" in str(f.relative_to(work)) and f.suffix != ".lock"
        )
        file = chance.choice(files)
        damage = lambda f=file, w=way: WAYS[w](f, chance) if f.is_file() else None  # noqa: E731
        if not within:
            damage()
        ended = in_child(
            lambda w=work, m=memory, d=damage, inside=within: chat(
                w, m, "a?", "b?", "c?", between=d if inside else _nothing
            ),  # type: ignore[misc]
            max_seconds=120,
        )
        when = "within a chat" if within else "before a chat"
        yield None if _is_fine(ended) else f"{memory}, {file.name} {way} {when}: {ended}"
        shutil.rmtree(work, ignore_errors=True)


def _nothing() -> None:
    pass


def _is_fine(ended: ChildResult) -> bool:
    return ended.is_clean and ended.megabytes < 600
