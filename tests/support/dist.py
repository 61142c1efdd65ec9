"""Installs wheel and source distribution into an empty environment, and uses agentlab there as a new user does.

    python tests/support/dist.py FOLDER_WITH_BOTH

No extra is installed: every command must work, a missing extra must be named, and a new project must replay its own
recordings within three minutes. The size of the environment has a bound.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_MB = 660
MAX_SECONDS = 180
WITHOUT_A_RUN = ["--help", "list flows", "list models", "list tools", "list memory", "list retrievers", "list scorers"]
WITHOUT_A_RUN += ["list prompts --flow tools", "list schema", "lint x/datasets/example", "run --help", "chat --help"]


def size_mb(folder: Path) -> float:
    """Return the size of the files in a folder, each hard link once, in megabytes."""
    files = {(stat.st_dev, stat.st_ino): stat.st_size for file in folder.rglob("*") if (stat := file.lstat())}
    return sum(files.values()) / 1e6


class Environment:
    """An empty environment, and commands in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=True)
        self.bin = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")

    def run(self, *command: str, cwd: Path | None = None, fails: bool = False) -> str:
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTLAB", "PYTHON"))}
        variables |= {"AGENTLAB_HOME": str(self.folder / "home"), "AGENTLAB_OFFLINE": "1"}
        program, *arguments = command
        done = subprocess.run(
            [str(self.bin / program), *arguments],
            cwd=cwd or self.folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        if (done.returncode != 0) != fails:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def install(self, *what: str) -> None:
        self.run("python", "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), *what)


def check(distributions: Path, scratch: Path) -> None:
    (wheel,), (source,) = distributions.glob("*.whl"), distributions.glob("*.tar.gz")
    environment = Environment(scratch)
    empty = size_mb(scratch)
    environment.install(str(wheel))
    weight = size_mb(scratch) - empty
    print(f"installed: {weight:.0f} MB beside Python and pip")
    started = time.monotonic()
    environment.run("agentlab", "init", "x")
    table = environment.run("agentlab", "run", "--mode", "replay", cwd=scratch / "x")
    seconds = time.monotonic() - started
    print(table)
    assert "my_flow" in table and " 0 new" in table, "a new project replays its recordings"
    assert seconds < MAX_SECONDS, f"{seconds:.0f} seconds"
    for command in WITHOUT_A_RUN:
        environment.run("agentlab", *command.split())
    chroma = ["run", "--flow", "rag_only", "--mode", "live", "--set"]
    for setting in ("retrieval.method=chroma", "embedder=sentence_transformers/any"):
        message = environment.run("agentlab", *chroma, setting, cwd=scratch / "x", fails=True)
        assert "pip install 'agentlab-harness[" in message and "Traceback" not in message, message
    environment.install("--no-deps", "--force-reinstall", str(source))
    assert environment.run("agentlab", "run", "--mode", "replay", cwd=scratch / "x").count("my_flow") >= 1
    assert weight <= MAX_MB, f"{weight:.0f} MB of {MAX_MB}"
    print(f"wheel and source distribution work; the replay took {seconds:.0f} s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        check(Path(sys.argv[1]).resolve(), Path(folder))
