"""Makes the pictures of README and docs in a real browser, from a replay of today's code.

    make picture            # replays evals/recorded/laws.yaml, writes its page, and runs this file

`results/report.png` and `results/report_cause.png` show the page, `docs/pictures/*.png` the chat widget in JupyterLab.
Needs the extra `browser` and a Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from support.jupyter import ChatPage, JupyterServer

ROOT = Path(__file__).parents[1]
RESULTS, PICTURES = ROOT / "results", ROOT / "docs" / "pictures"
MARGIN = 14
"""Pixels of the page around a picture."""
QUESTION, EXPECTED = "How wide is a full-size goal?", "7.32 m"
"""A question that evals/recordings/flow_lab.jsonl answers for the flows of `CELLS`, as in notebook 02."""
CELLS = (
    """
    import agentlab as al
    from agentlab import notebook

    system = "Answer from the passages alone, in as few words as you can. No sentence, only the fact."
    brief = {"flow": "rag_only", "label": "brief", "prompts": {"system": system}}
    one_passage = {"flow": "rag_only", "label": "one_passage", "retrieval": {"top_k": 1}}
    recorded = {"name": "flow_lab", "also_recorded": ["laws", "orchestrators"], "mode": "replay"}
    lab = al.Lab("evals/recorded/laws.yaml", flows=[one_passage, brief], **recorded)
    """,
    "notebook.chat_widget(lab)",
)


def photograph_page(browser: Any, file: Path) -> None:
    """Take the first screen of the page down to its figures, and the trace of a turn that one flow loses."""
    page = browser.new_page(viewport={"width": 1160, "height": 900}, device_scale_factor=1.5)
    page.goto(file.resolve().as_uri())
    page.wait_for_selector("#matrix .reply:not(:text-is('…'))")
    figures = page.locator(".pair").first.bounding_box()
    height = figures["y"] + figures["height"] + MARGIN
    page.screenshot(path=RESULTS / "report.png", full_page=True, clip={"x": 0, "y": 0, "width": 1160, "height": height})
    page.locator("#forest .difference", has_text="refusal_accuracy").first.click()
    page.locator("#matrix .to-trace").nth(1).click()
    page.locator("dialog[open] .divergence").wait_for()
    page.evaluate("document.activeElement.blur()")
    page.locator("dialog").screenshot(path=RESULTS / "report_cause.png")
    page.close()


def photograph_chat(browser: Any, folder: Path) -> None:
    """Take the chat widget with the replies of two flows, and with a reply that is saved as a test case."""
    for part in ("evals/recorded", "evals/recordings", "datasets/laws"):
        shutil.copytree(ROOT / part, folder / "lab" / part, ignore=shutil.ignore_patterns("*.lock"))
    server = JupyterServer(folder / "lab", folder / "home")
    try:
        page = browser.new_page(viewport={"width": 1100, "height": 1000}, device_scale_factor=1.5)
        chat = ChatPage(page, server.write_notebook("chat", *CELLS), PICTURES)
        cell = page.locator(".jp-Cell", has=page.locator(".agentlab-window"))
        page.get_by_label("compare with").select_option("brief")
        chat.ask(QUESTION)
        for column in (0, 1):
            chat.wait_for_end(column)
        cell.screenshot(path=PICTURES / "two_flows.png")
        page.get_by_role("button", name="Save as test").last.click()
        page.locator(".agentlab-corrected textarea").fill(EXPECTED)
        page.get_by_role("button", name="Save case").click()
        page.locator(".agentlab-status").filter(has_text="saved as").wait_for()
        cell.screenshot(path=PICTURES / "case.png")
    finally:
        server.stop()


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="the page of evals/recorded/laws.yaml")
    file = parser.parse_args().page
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        photograph_page(browser, file)
        photograph_chat(browser, Path(scratch))
        browser.close()


if __name__ == "__main__":
    main()
