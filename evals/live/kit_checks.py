"""The official conformance kit of MCP, for what agentlab offers as a client."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from bench import NODE, Bench
from catalogue import Lacking, tries
from kit_client import CALLS

NODE_VERSION = 22
"""The oldest version of node that runs the kit."""


def scenario(bench: Bench, name: str) -> str:
    program = bench.program()
    command = [node(bench), program, "client", "--scenario", name, "--verbose"]
    client = f"{sys.executable} {Path(__file__).with_name('kit_client.py')}"
    ended = subprocess.run(
        [*command, "--command", client],
        cwd=bench.folder,
        env={**os.environ, "NODE_OPTIONS": bench.node_options()},
        capture_output=True,
        text=True,
        timeout=bench.seconds_left,
        check=False,
    )
    passed = re.search(r"Passed: (\d+)/(\d+), 0 failed, (\d+) warnings", ended.stdout + ended.stderr)
    assert passed and ended.returncode == 0 and passed[1] == passed[2], (
        failures(ended.stdout + ended.stderr) or ended.stderr[-300:]
    )
    return f"{passed[1]} checks, {passed[3]} warnings"


def failures(output: str) -> str:
    """Return the messages of the failed checks in the kit's output."""
    messages = re.findall(r'"errorMessage": ("(?:[^"\\]|\\.)*")', output)
    return "; ".join(json.loads(message) for message in messages)[:300]


def node(bench: Bench) -> str:
    """Return a program node that runs the kit: this machine's, or one from npm."""
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) >= NODE_VERSION:
        return "node"
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Lacking(f"the kit needs node {NODE_VERSION}, and here is {version.strip()}")
    package, newer = NODE
    return str(bench.npm_folder(package, newer) / "node_modules" / package / "bin" / "node")


for each in CALLS:
    tries("conformance kit", f"scenario {each}")(partial(scenario, name=each))
