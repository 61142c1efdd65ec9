"""`agentlab view` in a real browser: turns appear as they are written, and what was chosen stays."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.places import ROOT
from support.small_runs import Answering, cut, go_on, play, write_set

pytestmark = pytest.mark.browser


@pytest.mark.usefixtures("own_home")
def test_turns_appear_as_they_are_written_and_choices_stay(browser: Any, tmp_path: Path):
    flows = Answering("right"), Answering("wrong", wrong=[("c00", 0)], failing=[("c02", 1)])
    run = play(write_set(tmp_path / "set", 3), tmp_path / "run", *flows).path
    going_on = cut(run, 0)
    command = [sys.executable, "-m", "agentlab", "view", str(going_on)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout
        found = re.match(r"http://\S+", server.stdout.readline())
        assert found
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(found[0])
        page.wait_for_selector("#live:has-text('0 of 12 turns')")
        go_on(run, going_on, (0, 9))
        page.wait_for_selector("#live:has-text('9 of 12 turns')")
        page.locator("#filters button", has_text="disagree").click()
        page.get_by_label("worst first by").select_option(label="exact_match")
        page.locator(".to-trace").first.click()
        page.wait_for_selector("dialog[open] .step")
        go_on(run, going_on, (9, 12))
        for name in ("scores.jsonl", "summary.json"):
            shutil.copy(run / name, going_on / name)
        page.wait_for_timeout(1500)
        assert page.inner_text("#live").startswith("Not ended yet: 9"), "an open trace is left alone"
        page.keyboard.press("Escape")
        page.wait_for_selector("#verdict:has-text('Undecided between right, wrong')")
        assert page.inner_text("#live") == ""
        assert page.get_by_label("worst first by").evaluate("s => s.selectedOptions[0].text") == "exact_match"
        assert page.locator("#filters [aria-pressed=true]").inner_text() == "disagree"
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0
        page.wait_for_selector("#live:has-text('agentlab view has ended')")
        assert errors == []
        page.close()
