"""Garbage for every reader and parser: valid input with one to three changes; only agentlab's errors may follow."""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentlab.core.errors import AgentlabError
from support.child_processes import in_child
from support.readers import Read, readers

BATCH = 4000
"""Number of inputs per child process."""
SLOW, LESS_OFTEN = "run folder", 5
"""Slow readers get one input for this many inputs of the others."""
MAX_SECONDS = 2
"""Maximum processor seconds; wall time would depend on other programs."""
MAX_MEGABYTES = 500
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
    """Replace the value after a colon or a comma."""
    places = [position for position, byte in enumerate(content) if byte in b":,["]
    if not places:
        return chance.choice(VALUES)
    begin = chance.choice(places) + 1
    end = begin
    while end < len(content) and content[end] not in b",}]\n" and end - begin < 200:
        end += 1
    return content[:begin] + b" " + chance.choice(VALUES) + content[end:]


def play(cases: int, folder: Path, chance: random.Random, part: str) -> tuple[str, Iterator[str | None]]:
    made = in_child(lambda: _names(folder / "made"), max_seconds=60)
    assert made.code == 0, made.printed
    names = json.loads(next(line for line in made.printed.splitlines() if line.startswith("[")))
    return f"inputs to {len(names)} readers and parsers", _cases(names, cases, folder, chance)


def _names(folder: Path) -> int:
    readable = readers(folder)
    for file, read in readable.values():
        read(file)  # what is valid is read
    print(json.dumps(list(readable)))
    return 0


def _cases(names: list[str], cases: int, folder: Path, chance: random.Random) -> Iterator[str | None]:
    names = [name for name in names for _ in range(1 if name.startswith(SLOW) else LESS_OFTEN)]
    done = batch = 0
    while done < cases:
        here = folder / f"batch-{batch}"
        count = min(BATCH, cases - done)
        chosen = [names[(done + n) % len(names)] for n in range(count)]
        seed = chance.random()
        ended = in_child(lambda h=here, c=chosen, s=seed: _feed(h, c, s), max_seconds=count * 3)  # type: ignore[misc]
        failures = [line.removeprefix("FAILED ") for line in ended.printed.splitlines() if line.startswith("FAILED ")]
        if ended.code != 0 or ended.hung:
            failures.append(f"the process: {ended}")
        if ended.megabytes > MAX_MEGABYTES:
            failures.append(f"a process of {ended.megabytes:.0f} MB")
        yield from failures
        yield from [None] * (count - len(failures))
        shutil.rmtree(here, ignore_errors=True)
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
    signal.signal(signal.SIGPROF, alarm)
    chance, readable = random.Random(seed), readers(folder)
    valid = {name: file.read_bytes() for name, (file, _) in readable.items()}
    for name in names:
        file, read = readable[name]
        content = mutated(valid[name], chance)
        file.write_bytes(content)
        problem = _problem(read, file, alarm)
        if problem:
            print(f"FAILED {name}: {problem}", flush=True)
        file.write_bytes(valid[name])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return 0 if most < 2 * MAX_MEGABYTES else 1


def _problem(read: Read, file: Path, alarm: Any) -> str | None:
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    try:
        read(file)
    except AgentlabError as ours:
        return "an error of several lines" if "\n" in str(ours) else None
    except _TooSlow:
        return f"longer than {MAX_SECONDS} s"
    except Exception as foreign:
        return f"{type(foreign).__name__}: {str(foreign).splitlines()[:1]}"[:90]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None
