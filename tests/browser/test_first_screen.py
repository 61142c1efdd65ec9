"""The page as a first-time reader sees it: causes, worst groups, the worst reply and its earlier turns."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from support.paths import ROOT
from support.small_runs import Answering, play, write_set

pytestmark = pytest.mark.browser
Open = Callable[[str], Any]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write three pages: a replay of assistant, three flows of which one fails, one turn of history."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTLAB_HOME", str(folder / "home"))
        patch.chdir(ROOT)
        with al.Lab("evals/recorded/assistant.yaml", mode="replay") as lab:
            runs = {"assistant": lab.run_sync(out=folder / "assistant")}
        flows = [
            Answering("steady", wrong=[("c02", 1)]),
            Answering("flaky", wrong=[("c05", 1)], failing=[("c00", 0), ("c01", 0)]),
            Answering("broken", failing=[(f"c{c:02}", t) for c in range(9) for t in range(2)]),
        ]
        runs["fails"] = play(write_set(folder / "set", 9), folder / "fails", *flows)
        data = write_set(folder / "history", 6, turns=6)
        lines = (data / "conversations.jsonl").read_text()
        first = '{"user": "c00 0", "reference_answers": ["blue"]'
        assert first in lines
        (data / "conversations.jsonl").write_text(lines.replace(first, f'{first}, "scored": false'))
        runs["history"] = play(data, folder / "past", Answering("one", wrong=[("c00", 2)]))
        return {name: run.report().save(folder / f"{name}.html") for name, run in runs.items()}


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def test_a_cause_counts_bad_replies_and_what_it_opens_counts_alike(show):
    page = show("assistant")
    chips = page.locator("#trouble .cause:not(.noted)").all()
    counts = [numbers(chip.inner_text())[0] for chip in chips]
    assert counts == sorted(counts, reverse=True), "the commonest comes first"
    text = chips[0].inner_text()
    bad, right = numbers(chips[0].get_attribute("aria-label"))[:2]
    assert f"{bad} wrong tool" in text and f"and {right} right" in text
    assert sum(map(int, chips[0].locator(".flow").all_inner_texts())) == bad
    chips[0].click()
    note = page.inner_text("#matrix .note")
    assert f"Only wrong tool, in {bad} bad replies and {right} right:" in note
    plain = next(chip for chip in page.locator("#trouble .cause").all() if "unsupported claim" in chip.inner_text())
    count = numbers(plain.inner_text())[0]
    assert "right" not in plain.inner_text()
    plain.click()
    assert f"Only unsupported claim, in {count} bad replies:" in page.inner_text("#matrix .note")


def test_worst_groups_are_those_with_the_largest_gaps_over_all_measures(show):
    page = show("assistant")
    groups = page.locator("#trouble .weak")
    page.wait_for_function("!document.querySelector('#trouble .weak').textContent.includes('…;')")
    texts = groups.all_inner_texts()
    gaps = [float(re.search(r"([\d.]+) behind", text)[1]) for text in texts]
    assert gaps == sorted(gaps, reverse=True) and gaps[0] == 1.0 and "tool_f1 0.00" in texts[0]
    assert all(re.search(r'where .+: \w.* such as "[^"]+"; \d+ graded turns', text) for text in texts), (
        "a name is explained"
    )
    assert all(int(re.search(r"(\d+) graded", text)[1]) >= 5 for text in texts)
    assert "of 5 graded turns in 3 conversations or more" in page.inner_text("#trouble")
    assert show("history").locator("#trouble .weak").count() == 0


def test_the_worst_reply_of_a_failing_flow_is_a_reply_and_its_failures_are_linked_apart(show):
    page = show("fails")
    row = page.locator("#verdict tbody tr", has_text="flaky")
    row.locator("td:last-child button").click()
    drawer = page.locator("dialog[open]")
    assert "c05 · turn 2" in drawer.inner_text() and "FAILED" not in drawer.inner_text()
    page.keyboard.press("Escape")
    row.get_by_role("button", name="2 of 18 failed: trace of c00 turn 1").click()
    assert "FAILED: RuntimeError: by choice" in page.locator("dialog[open]").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#verdict tr", has_text="steady").locator("button").count() == 1, "no failure, no link"
    assert page.locator("#verdict tr", has_text="broken").locator("button").count() == 1, "no reply, no link"


def test_earlier_turns_are_above_the_question(show):
    page = show("history")
    for number, is_open in ((1, None), (2, True), (4, True), (5, False)):
        page.get_by_role("button", name=f"Trace of one, c01 turn {number}", exact=True).click()
        page.wait_for_selector("dialog[open] h2")
        earlier = page.locator("dialog .earlier")
        assert earlier.count() == (is_open is not None)
        if is_open is not None:
            assert earlier.locator("div > p:first-child").count() == number - 1
            assert (earlier.locator("details[open]").count() == 1) is is_open, "folded if they are many"
            assert earlier.bounding_box()["y"] < page.locator("dialog > .asked").bounding_box()["y"]
            assert earlier.locator("p").first.text_content().startswith("turn 1: c01 0")
        page.keyboard.press("Escape")


def test_history_of_the_data_set_is_an_earlier_turn(show):
    page = show("history")
    page.get_by_role("button", name="Trace of one, c00 turn 3", exact=True).click()
    page.wait_for_selector("dialog[open] h2")
    lines = page.locator("dialog .earlier p").all_inner_texts()
    assert lines == ["turn 1: c00 0", "blue", "turn 2: c00 1", "blue"]


def test_differences_of_scores_and_of_costs_are_counted_apart(show):
    title = show("assistant").inner_text("#forest-title")
    rows = show("assistant").locator("#forest .difference").all_text_contents()
    costs = len([row for row in rows if "calls" in row])
    assert re.fullmatch(rf"Differences shown by a test: \d of {len(rows) - costs} scores, \d of {costs} costs", title)
