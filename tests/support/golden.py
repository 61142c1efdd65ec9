"""Compare the project's output with the golden files: keys, prompts, requests, rows of runs, printed pages.

    python tests/support/golden.py           # after `make gate`, whose run folders are read; exit code 1 and every line
                                             # that differs
    python tests/support/golden.py --exact   # to the last digit, on the processor that wrote it
    python tests/support/golden.py --write   # take what there is now; the commit says which lines move, and why

Seconds on the wall, ids of runs, versions and the machine are left out. Rows are held column by column, so that a
column that comes or goes moves no other line.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import hashlib
import io
import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agentlab.cli.parser import main as agentlab
from agentlab.core import plugins
from agentlab.core.messages import Message, Request, ToolSpec, from_json, to_json
from agentlab.models.local.model import LocalModel
from agentlab.wire.keys import duration_key, normalise_request, result_key, text_key

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
RECORDINGS = ROOT / "evals" / "recordings"
GATES = Path("results") / "gate"
IMPORTED = "imported"
KEYS_OF_A_KIND = 200
REPORTED = ("laws", "assistant", "memory", IMPORTED)
"""The runs with a golden report page; one page takes a second."""
ROUNDED = frozenset(f"{kind}{name}" for kind in ("", "score.") for name in ("semantic_similarity", "context_precision"))
"""Measures whose seventh digit depends on the processor's arithmetic."""
MASKED = frozenset(
    {"wall_seconds", "check", "seal", "run_id", "started", "versions", "machine", "agentlab", "flow_code"}
)


def rows_of(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def recorded_keys(file: Path) -> Iterator[str]:
    """Yield `kind key` of at most 200 entries of each kind, spread evenly over a recordings file."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for row in rows_of(file):
        if "key" in row:
            kinds[row["kind"]].append(f"{row['kind']} {row['key']}")
    for lines in kinds.values():
        yield from lines[:: -(-len(lines) // KEYS_OF_A_KIND)]


def stored_request(row: dict[str, Any], parts: Mapping[str, Any]) -> Request:
    stored = {name: value for name, value in row["request"].items() if name not in ("model", "endpoint", "epoch")}
    messages = [from_json(Message, parts[name]["message"]) for name in stored.pop("messages")]
    tools = [from_json(ToolSpec, parts[name]["tool"]) for name in stored.pop("tools")]
    request = from_json(Request, {"messages": [], "tools": [], **stored})
    return replace(request, messages=tuple(messages), tools=tuple(tools))


def local_bodies() -> Iterator[str]:
    """Yield for each recordings file the number of requests to embedded models and a checksum of their bodies."""
    for file in sorted(RECORDINGS.glob("*.jsonl")):
        rows = rows_of(file)
        parts = {row["id"]: row for row in rows if "id" in row}
        sent, count = hashlib.sha256(), 0
        for row in rows:
            provider, _, name = row.get("request", {}).get("model", "").partition("/")
            if provider == "local":
                body = LocalModel(name, Path, context=10**6).translate(stored_request(row, parts)).body
                sent.update(json.dumps(body).encode())
                count += 1
        yield f"{file.stem} {count} requests {sent.hexdigest()[:32]}"


def keys_worked_out(file: Path) -> dict[str, str]:
    """Return today's key of each entry of a recordings file, by `kind key`."""
    rows = rows_of(file)
    parts = {row["id"]: row for row in rows if "id" in row}

    def completion(row: dict[str, Any]) -> str:
        model, endpoint, epoch = (row["request"][name] for name in ("model", "endpoint", "epoch"))
        return normalise_request(model, endpoint, stored_request(row, parts), epoch).key(row["repeat"])

    def text(row: dict[str, Any]) -> str:
        return text_key(row["kind"], row["model"], row["text"], row.get("endpoint", ""))

    makers: dict[str, Callable[[dict[str, Any]], str]] = {
        "completion": completion,
        "vector": text,
        "embedding": text,
        "duration": lambda row: duration_key(row["work"]),
        "result": lambda row: result_key(row["of"], row["facts"]),
    }
    return {f"{row['kind']} {row['key']}": f"{row['kind']} {makers[row['kind']](row)}" for row in rows if "key" in row}


def prompts() -> Iterator[str]:
    """Yield each text that our flows and tools send to a model, one per line."""
    for flow in plugins.names("flows"):
        for name, text in sorted(plugins.resolve("flows", flow).PROMPTS.items()):
            yield f"{flow} {name} {json.dumps(text)}"
    for tool in plugins.names("tools"):
        module = plugins.resolve("tools", tool)
        yield f"tool {tool} {json.dumps(to_json(module.spec))} {json.dumps(module.instruction)}"


def steady(value: Any, name: str = "") -> Any:
    """Return JSON without masked values; numbers that depend on the processor's arithmetic get three digits."""
    if isinstance(value, Mapping):
        name = next((part for part in value.values() if isinstance(part, str) and part in ROUNDED), name)
        return {key: steady(part, key if key in ROUNDED else name) for key, part in value.items() if key not in MASKED}
    if isinstance(value, list):
        return [steady(part, name) for part in value]
    if name in ROUNDED and isinstance(value, str):
        return re.sub(r"[0-9]+[.][0-9]+", lambda number: f"{float(number[0]):.3f}", value)
    return round(value, 3 if name in ROUNDED else 9) if isinstance(value, float) else value


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def digest_of_column(values: list[Any], name: str) -> str:
    """Return a checksum of a column, or the mean of a rounded measure, where single values may round differently."""
    if name not in ROUNDED:
        return digest(values)
    numbers = [float(each["value"] if isinstance(each, Mapping) else each) for each in values if each]
    return f"{sum(numbers) / max(len(numbers), 1):.3f} of {len(numbers)}"


def columns(file: Path) -> Iterator[str]:
    """Yield a checksum of each column of a file of rows, whatever the order of the conversations."""
    plays = defaultdict(list)
    for row in rows_of(file):
        plays[tuple(str(row[name]) for name in ("flow", "conversation", "epoch", "take"))].append(row)
    rows = [row for play in sorted(plays) for row in plays[play]]
    yield f"{file.name} rows {len(rows)}"
    kinds = defaultdict(list)
    for row in rows:
        kinds[row.get("kind", "turn")].append(row)
    for kind in sorted(kinds):
        for name in sorted({name for row in kinds[kind] for name in row} - MASKED):
            values = [row.get(name) for row in kinds[kind]]
            if name == "scores":
                yield from (
                    f"{file.name} score {score} {digest_of_column([value.get(score) for value in values], score)}"
                    for score in sorted({score for value in values for score in value})
                )
            else:
                yield f"{file.name} {kind} {name} {digest(values)}"


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """Yield stable JSON as one line per value; long values become checksums."""
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from leaves(part, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and 0 < len(value) <= 12 and isinstance(value[0], Mapping):
        for number, part in enumerate(value):
            yield from leaves(part, f"{path}.{number}")
    elif isinstance(value, list) and 0 < len(value) <= 60 and isinstance(value[0], (Mapping, list)):
        for number, part in enumerate(value):
            yield f"{path}.{number} {json.dumps(part)}"
    else:
        line = f"{path} {json.dumps(value)}"
        yield line if len(line) < 300 else f"{path} {digest(value)}"


def printed(*arguments: str) -> Iterator[str]:
    """Return the output of a command on a screen of 100 columns, and its exit code if it is not 0."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = agentlab(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    yield f"$ agentlab {' '.join(arguments)}" + (f"   # exit code {code}" if code else "")
    yield from (line.rstrip() for line in out.getvalue().splitlines())


def run_of(folder: Path) -> Iterator[str]:
    """Yield the golden lines of one run folder."""
    for file in sorted(folder.glob("*.jsonl")):
        yield from columns(file)
    header = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    yield from (f"run.json {line}" for line in leaves(steady(header)))
    yield from (
        f"summary.json {line}" for line in leaves(steady(json.loads((folder / "summary.json").read_text("utf-8"))))
    )
    yield from printed("show", str(folder))
    yield from printed("show", str(folder), "--all")
    yield from printed("show", str(folder), conversation_of(folder))
    for flow in [header["spec"]["flows"][0], header["spec"]["flows"][-1]] if (folder / "calls.jsonl").is_file() else ():
        yield from printed(
            "show", str(folder), conversation_of(folder), "--trace", "--flow", flow["label"] or flow["flow"]
        )
    if folder.name == IMPORTED or len(header["spec"]["flows"]) > 1:
        yield from printed("compare", str(folder))
        compared = [*printed("compare", str(folder), "--all", "--json")]
        yield from (f"compare --json {line}" for line in leaves(steady(json.loads("\n".join(compared[1:])))))
    baseline = ROOT / "evals" / "baselines" / f"{folder.name}.jsonl"
    if baseline.is_file():
        yield from printed("gate", str(folder), "--baseline", str(baseline.relative_to(ROOT)))
        yield from (
            f"gate.json {line}" for line in leaves(steady(json.loads((folder / "gate.json").read_text("utf-8"))))
        )
        yield from (f"gate.md {line}" for line in (folder / "gate.md").read_text("utf-8").splitlines())
    yield from exported(folder)
    if folder.name in REPORTED:
        yield from reported(folder)


def conversation_of(folder: Path) -> str:
    return min(str(row["conversation"]) for row in rows_of(folder / "turns.jsonl"))


def exported(folder: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "turns.csv"
        agentlab(["export", str(folder), "--to", "csv", "-o", str(file)])
        with file.open(encoding="utf-8", newline="") as lines:
            rows = sorted(
                csv.DictReader(lines), key=lambda row: [row[name] for name in ("flow", "conversation", "turn")]
            )
    for name in rows[0]:
        if name not in MASKED:
            yield f"export {name} {digest_of_column([row[name] for row in rows], name)}"


def reported(folder: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "run.html"
        agentlab(["report", str(folder), "-o", str(file)])
        page = file.read_text(encoding="utf-8")
    data = re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert data, "the page holds its data"
    yield from (f"report {line}" for line in leaves(steady(json.loads(data[1]))))


def take_in(folder: Path) -> None:
    """Import the answers of two systems; some turns failed, some have no number of calls."""
    shutil.rmtree(folder, ignore_errors=True)
    arguments = ["import", "predictions", str((GOLDEN / "import").relative_to(ROOT)), "-o", str(folder)]
    assert agentlab([*arguments, "--dataset", "datasets/laws"]) == 0


def everything() -> dict[str, list[str]]:
    """Return golden file name -> its lines."""
    with contextlib.redirect_stdout(io.StringIO()):
        take_in(GATES / IMPORTED)
        files = {f"keys/{file.stem}": [*recorded_keys(file)] for file in sorted(RECORDINGS.glob("*.jsonl"))}
        files |= {"prompts": [*prompts()], "local": [*local_bodies()]}
        specs = [file.stem for file in sorted((ROOT / "evals" / "baselines").glob("*.jsonl"))]
        files |= {f"runs/{name}": [*run_of(GATES / name)] for name in [*specs, IMPORTED]}
    return files


NUMBER = re.compile(r"(?<![0-9a-zA-Z])[0-9]+[.][0-9]+(?:e-?[0-9]+)?")


def is_near(before: str, now: str) -> bool:
    """Return True if two lines differ only in numbers, by at most .002 or .2 %: quantiles depend on the last digit."""
    numbers = zip(NUMBER.findall(before), NUMBER.findall(now), strict=False)
    close = all(math.isclose(float(a), float(b), rel_tol=0.002, abs_tol=0.002) for a, b in numbers)
    return close and NUMBER.sub("#", before) == NUMBER.sub("#", now)


def differing(before: list[str], now: list[str], exact: bool) -> Iterator[str]:
    for tag, a, b, c, d in difflib.SequenceMatcher(None, before, now, autojunk=False).get_opcodes():
        changed = [*zip(before[a:b], now[c:d], strict=False)]
        if tag == "replace" and b - a == d - c and not exact and all(is_near(*pair) for pair in changed):
            continue
        if tag != "equal":
            yield from (f"- {a + n + 1}: {line}" for n, line in enumerate(before[a:b]))
            yield from (f"+ {c + n + 1}: {line}" for n, line in enumerate(now[c:d]))


def main() -> int:
    os.chdir(ROOT)
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    current, differs = everything(), 0
    for name, lines in current.items():
        file = GOLDEN / f"{name}.txt"
        if "--write" in sys.argv:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join([*lines, ""]), encoding="utf-8")
            continue
        before = file.read_text(encoding="utf-8").splitlines()
        lost = [*differing(before, lines, "--exact" in sys.argv)]
        differs += len(lost)
        print("\n".join([f"{name}:", *lost]) if lost else "", end="\n" if lost else "")
    print(f"golden: {len(current)} files, {sum(map(len, current.values()))} lines, {differs} of the difference")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
