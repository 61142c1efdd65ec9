"""Measures the size of a report page, the time Chromium needs to open it, and the time of a filter.

    python evals/bench/report.py [--turns 10000] [--keep FOLDER]

The pages of all recorded specs, as `make gate` leaves their runs, and a large one: the turns of
evals/recorded/assistant.yaml, replayed by its five flows and multiplied, each copy with words of its own in questions,
replies and prompts, so that no two are deflated as one. Opening is timed from the navigation to the first replies on
the screen, filters from the press to the next frame that is painted, each by the clock and by what the page's main
thread computed. Needs the extra `browser` and a Chromium.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import agentlab as al
from agentlab.data.datasets import load_dataset
from agentlab.evals.store.fold import Fold
from agentlab.evals.store.summary import summarise
from agentlab.lab.run import Run

WORDS = ("amber", "brook", "cedar", "delta", "ember", "fjord", "grove", "heath", "islet", "joint", "knoll", "ledge")
FILTERS = ("right in one", "flows disagree", "failed turns", "turns with cut replies", "all turns")
FRAME = "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now()), 0)))"


def salted(row: Any, salt: str, conversation: str) -> Any:
    """Return a row with another conversation name and unique words in each longer text."""
    if isinstance(row, str):
        return f"{row} {salt}" if len(row) > 60 else row
    if isinstance(row, list):
        return [salted(part, salt, conversation) for part in row]
    if isinstance(row, dict):
        return {
            key: f"{value}-{conversation}" if key == "conversation" else salted(value, salt, conversation)
            for key, value in row.items()
        }
    return row


def multiplied(run: Run, turns: int, out: Path) -> Run:
    """Return a run of at least so many turns a flow, made of copies of `run`, with its data set."""
    per_copy = len({(row.conversation, row.turn) for row in run.turn_rows()})
    copies = -(-turns // per_copy)
    dice = random.Random(7)
    salts = [" ".join(dice.choices(WORDS, k=8)) + f" {number}" for number in range(copies)]
    out.mkdir(parents=True)
    [path] = run.folder.header["spec"]["datasets"]
    data = out.with_name("copies")
    data.mkdir()
    played = {row.conversation for row in run.turn_rows()}
    with (data / "conversations.jsonl").open("w") as file:
        for line in (Path(path) / "conversations.jsonl").read_text().splitlines():
            for number in range(copies) if json.loads(line)["id"] in played else ():
                row = json.loads(line)
                file.write(json.dumps(row | {"id": f"{row['id']}-{number}"}) + "\n")
    for name in ("turns", "calls"):
        rows = [json.loads(line) for line in (run.path / f"{name}.jsonl").read_text().splitlines()]
        with (out / f"{name}.jsonl").open("w") as file:
            for number, salt in enumerate(salts):
                file.writelines(json.dumps(salted(row, salt, str(number))) + "\n" for row in rows)
    header = run.folder.header
    dataset = load_dataset(str(data))
    header["spec"] |= {"datasets": [str(data)], "limit": None, "sample": None}
    header["datasets"] = {
        dataset.name: {
            "sha256": dataset.digest, "conversations": len(dataset.conversations), "turns": dataset.turns
        }
    }  # fmt: skip
    (out / "run.json").write_text(json.dumps(header))
    large = al.open_run(out)
    fold = Fold(large.conversations)
    for play, played in groupby(large.folder.turns(), key=lambda row: row.trial):
        fold.add(large.traces[play], list(played))
    large.folder.write_json("summary.json", summarise(header, fold.flows, complete=True))
    return al.open_run(out)


def timed(page: Any, action: str) -> float:
    """Return the milliseconds from `action` to the next frame."""
    spent: float = page.evaluate(
        f"(async () => {{ const started = performance.now(); {action}; return (await {FRAME}) - started; }})()"
    )
    return spent


def processor_seconds(page: Any) -> Callable[[], float]:
    """Return the CPU seconds of the page's main thread, which do not grow on a busy machine."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    return lambda: next(
        each["value"] for each in session.send("Performance.getMetrics")["metrics"] if each["name"] == "TaskDuration"
    )


def look(browser: Any, file: Path) -> Iterator[tuple[str, float, float]]:
    """Yield each step with its seconds on the clock and on the processor."""
    opened = []
    for _ in range(3):
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        spent = processor_seconds(page)
        started = time.perf_counter()
        page.goto(file.resolve().as_uri())
        page.wait_for_selector("#matrix .reply:not(:has-text('…'))")
        opened.append((time.perf_counter() - started, spent()))
        if len(opened) < 3:
            page.close()
    yield "opens in, s", median(wall for wall, _ in opened), median(own for _, own in opened)

    def repeated(what: str, action: str) -> tuple[str, float, float]:
        walls, own = [], []
        for _ in range(3):
            page.wait_for_timeout(300)
            before = spent()
            walls.append(timed(page, action))
            own.append(1000 * (spent() - before))
        return what, median(walls), median(own)

    for name in FILTERS:
        button = (
            f"[...document.querySelectorAll('#filters button')].find((b) => b.textContent.startsWith('{name}')).click()"
        )
        yield repeated(f"filter {name}, ms", button)
    flow = "document.querySelectorAll('#plot .point')[1].dispatchEvent(new MouseEvent('click'))"
    yield repeated("one flow, ms", flow)
    before, started = spent(), time.perf_counter()
    page.evaluate("document.querySelector('.to-trace').click()")
    page.wait_for_selector("dialog[open] .step")
    yield "a trace, ms", (time.perf_counter() - started) * 1000, 1000 * (spent() - before)
    page.close()


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=10_000, help="a flow")
    parser.add_argument("--keep", type=Path, help="folder for the pages")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        folder = arguments.keep or Path(scratch)
        pages = []
        for spec in sorted(Path("evals/recorded").glob("*.yaml")):
            with al.Lab(spec, mode="replay") as lab:
                run = lab.run_sync(out=folder / spec.stem)
            pages.append((spec.stem, run))
        pages.append(("large", multiplied(pages[0][1], arguments.turns, folder / "large")))
        for name, run in pages:
            start = time.perf_counter()
            page = run.report()
            written = time.perf_counter() - start
            saved = page.save(folder / f"{name}.html")
            print(f"{name}: {run.result.turns} turns in {len(run.result.flows)} flows")
            print(f"  {'written in, s':24} {written:8.1f}\n  {'size, MB':24} {saved.stat().st_size / 1e6:8.2f}")
            for what, wall, processor in look(browser, saved):
                print(f"  {what:24} {wall:8.2f}   of the processor {processor:8.2f}")
        browser.close()


if __name__ == "__main__":
    main()
