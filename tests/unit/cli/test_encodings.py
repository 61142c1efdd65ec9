"""Output in an encoding that lacks characters: guides become plain, other characters become escapes."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from agentlab.cli.parser import main
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set

RUN = ("run", "--dataset", "rules", "--flow", "tools", "--limit", "1", "--set", "embedder=hashing/hashing-64")


@pytest.fixture
def printed_in(tmp_path, own_home, monkeypatch):
    """Return what a command prints in an encoding, as bytes of standard output and error."""
    monkeypatch.chdir(tmp_path)
    write_set(tmp_path / "rules", CONVERSATIONS, DOCUMENTS)
    (tmp_path / "replies.yaml").write_text('replies: ["Tor → 7,32 m 👍 “breit”"]\nloop: true\n', encoding="utf-8")
    assert main([*RUN, "--model", "scripted/replies.yaml", "--out", "run"]) == 0

    def run(encoding: str, *command: str) -> bytes:
        streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        main([*command])
        for stream in streams:
            stream.flush()
        return b"".join(stream.buffer.getvalue() for stream in streams)

    return run


COMMANDS = [
    ("show", "run"),
    ("show", "run", "c0", "--trace"),
    ("show", "run", "c0"),
    ("list",),
    ("chat", "nothing→here"),
    ("lint", "rules"),
]


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "latin-1", "cp437"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_prints_in_any_encoding(printed_in, encoding, command):
    printed = printed_in(encoding, *command)
    assert printed and b"Traceback" not in printed and printed.decode(encoding)


def test_a_trace_has_plain_guides_and_escapes(printed_in):
    printed = printed_in("ascii", "show", "run", "c0", "--trace").decode("ascii")
    assert "|- " in printed or "`- " in printed
    assert r"\u2192" in printed and r"\U0001f44d" in printed


def test_a_character_of_the_encoding_stays_as_it_is(printed_in):
    printed = printed_in("cp1252", "show", "run", "c0").decode("cp1252")
    assert "“breit”" in printed and "👍" not in printed


def test_utf_8_is_shown_as_it_is(printed_in):
    printed = printed_in("utf-8", "show", "run", "c0", "--trace").decode()
    assert "└─" in printed and "👍" in printed


def test_a_process_on_such_a_terminal_has_no_traceback(printed_in, tmp_path):
    command = [sys.executable, "-m", "agentlab", "show", "run", "c0", "--trace"]
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    ended = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"") and b"`-" in ended.stdout
