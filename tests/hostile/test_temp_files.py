"""An ended run leaves no temporary file, and its servers have a limit of disk space."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from agentlab.core.errors import ToolError
from agentlab.core.scratch import PREFIX
from agentlab.tools.mcp import client, launch, transports
from agentlab.tools.mcp.config import server_config
from support.small_runs import opened, write_set

WAITS = '''"""Remembers a secret, starts, and waits."""
import asyncio, os, pathlib, sys
import agentlab as al

MEMORY = True


async def respond(turn, session):
    await session.remember("the secret of Ann")
    pathlib.Path("started").write_text(str(os.getpid()))
    await asyncio.sleep(60)
'''


def begin(folder: Path) -> subprocess.Popen[bytes]:
    """A run in a process of its own, whose flow has stored a fact."""
    write_set(folder / "colours", 1)
    (folder / "waits.py").write_text(WAITS)
    (folder / "replies.yaml").write_text("loop: true\nreplies: [hello]\n")
    spec = {"datasets": ["colours"], "flows": ["waits.py"], "model": "scripted/replies.yaml", "memory": "sqlite"}
    (folder / "spec.yaml").write_text(json.dumps({**spec, "embedder": "hashing/hashing-64"}))
    (folder / "tmp").mkdir(exist_ok=True)
    env = {**os.environ, "TMPDIR": str(folder / "tmp"), "AGENTLAB_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "agentlab", "run", "spec.yaml", "--out", "run"]
    running = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: (folder / "started").exists() or running.poll() is not None)
    assert running.poll() is None, running.communicate()
    return running


def wait_for(done, seconds: float = 30) -> None:
    ends = time.monotonic() + seconds
    while not done() and time.monotonic() < ends:
        time.sleep(0.02)
    assert done()


def left_in(folder: Path) -> list[str]:
    return [path.name for path in (folder / "tmp").iterdir() if "agentlab" in path.name]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_with_one_line_and_nothing_is_left(tmp_path, number):
    running = begin(tmp_path)
    running.send_signal(number)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 128 + number
    errors = [line for line in err.decode().splitlines() if line.startswith("agentlab:")]
    assert len(errors) == 1 and "ended by a signal" in errors[0] and "--resume" in errors[0] and b"Traceback" not in err
    assert left_in(tmp_path) == []


@pytest.mark.slow
def test_next_process_removes_files_of_a_killed_one_and_none_in_use(tmp_path):
    killed = begin(tmp_path)
    killed.kill()
    killed.communicate()
    (orphan,) = left_in(tmp_path)
    assert "the secret of Ann" in "".join(
        file.read_bytes().decode("latin-1") for file in (tmp_path / "tmp" / orphan).rglob("*.sqlite")
    )
    (tmp_path / "tmp" / f"{PREFIX}of-somebody-else").mkdir()
    (tmp_path / "started").unlink()
    ask = "from agentlab.core.scratch import process_temp_folder as folder; print(folder()); input()"
    env = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": env, "text": True}
    with subprocess.Popen([sys.executable, "-c", ask], **pipes) as one:
        first = Path(one.stdout.readline().strip())
        assert not (tmp_path / "tmp" / orphan).exists()
        with subprocess.Popen([sys.executable, "-c", ask], **pipes) as two:
            two.communicate("\n")
        assert first.exists(), "its process lives"
        one.communicate("\n")
    assert left_in(tmp_path) == [f"{PREFIX}of-somebody-else"]


def test_lab_removes_left_files_and_keeps_its_mark_until_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"{PREFIX}left"
    (left / "memory").mkdir(parents=True)
    (left / "memory" / "memory.txt").write_text("the secret of Ann")
    (left / ".alive").touch()
    with pytest.MonkeyPatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda folder, **options: sys.exit("killed"))
        with pytest.raises(SystemExit):
            opened(write_set(tmp_path / "colours", 1))
        assert (left / ".alive").exists(), "or nobody would know that it may go"
    opened(tmp_path / "colours").close()
    assert not left.exists()


def launched(tmp_path: Path, code: str, most: int = 2**28) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-S", launch.__file__, str(most), sys.executable, "-c", code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_server_takes_no_more_memory_than_it_may(tmp_path):
    with launched(tmp_path, "x = bytearray(2**30)") as server:
        assert b"MemoryError" in server.communicate(timeout=30)[1] and server.returncode == 1
    with launched(tmp_path, "print(len(bytearray(2**20)))") as server:
        assert server.communicate(timeout=30)[0] == b"1048576\n"


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells no other process")
def test_a_server_ends_with_a_process_that_is_killed(tmp_path):
    code = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-P', {launch.__file__!r}, '1000000000', sys.executable, '-c',"
        " 'import time; time.sleep(60)'])\n"
        "time.sleep(0.3)\nprint(p.pid, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()

    def is_removed() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
        except FileNotFoundError:
            return True

    wait_for(is_removed, 10)


async def test_a_server_that_floods_its_log_fills_no_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(transports, "_MAX_LOG_BYTES", 10_000)
    flood = "import sys\nfor _ in range(3000): sys.stderr.write('x' * 999 + chr(10))\n"
    row = {"command": sys.executable, "args": ["-c", flood]}
    config, _ = server_config("flood", row, tmp_path / "mcp.json")

    for _ in range(2):
        server = client.McpServer(config, seconds=20.0, logs=tmp_path / "logs")
        with pytest.raises(ToolError, match="cannot be reached"):
            await server.listing()
        await server.close()
        wait_for(lambda: (tmp_path / "logs" / "flood.log").stat().st_size >= 9_000)
        assert (tmp_path / "logs" / "flood.log").stat().st_size <= 10_001
