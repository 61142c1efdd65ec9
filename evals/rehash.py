"""Rewrites the graders' fingerprints of baseline files after a change of the graders that moves no score.

python evals/rehash.py evals/baselines/*.jsonl        # then `make gate`, which compares every score with the new files

The script changes two values of the first line: `graders` and the checksum `check`. It exits with 1 and writes nothing
if a file was edited by hand, names an unknown grader, or would differ anywhere else. It cannot tell if a score moved;
`make gate` does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from agentlab.core import plugins
from agentlab.core.errors import AgentlabError, RunError
from agentlab.core.files import write_atomically
from agentlab.evals.compare.baselines import read_baseline
from agentlab.evals.grade.fingerprints import fingerprints
from agentlab.workbench.spec import Spec

MAY_DIFFER = ("graders", "check")


def rehashed(path: Path, embedder: str) -> str:
    """Return the text of a baseline with today's fingerprints; raises AgentlabError if the file cannot be trusted."""
    before, _ = read_baseline(path)
    first, rest = path.read_text(encoding="utf-8").split("\n", 1)
    header: dict[str, Any] = json.loads(first)
    scorers = [plugins.resolve("evals.scorers", name) for name in before.graders]
    header["graders"] = fingerprints(scorers, embedder)
    content = [{name: value for name, value in header.items() if name != "check"}, *map(json.loads, rest.splitlines())]
    header["check"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    text = f"{json.dumps(header)}\n{rest}"
    check_only_hashes_differ(path, text)
    return text


def check_only_hashes_differ(path: Path, text: str) -> None:
    """Raise RunError unless `text` differs from the file in the hashes alone."""
    (old, *old_rows), (new, *new_rows) = path.read_text(encoding="utf-8").splitlines(), text.splitlines()
    old_header, new_header = json.loads(old), json.loads(new)
    same_names = [*old_header["graders"]] == [*new_header["graders"]]
    for header in (old_header, new_header):
        for name in MAY_DIFFER:
            header[name] = None
    if old_rows != new_rows or json.dumps(old_header) != json.dumps(new_header) or not same_names:
        raise RunError(f"{path}: more than the hashes would differ; make a new baseline with `agentlab gate --update`")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("baselines", nargs="+", type=Path)
    parser.add_argument("--embedder", default=Spec().embedder, help="embedder of the runs")
    given = parser.parse_args()
    try:
        texts = {path: rehashed(path, given.embedder) for path in given.baselines}
    except AgentlabError as problem:
        sys.exit(f"error: {problem}")
    for path, text in texts.items():
        write_atomically(path, text)
        read_baseline(path)
        print(path)


if __name__ == "__main__":
    main()
