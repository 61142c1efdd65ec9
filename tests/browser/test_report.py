"""The page of a run in a real browser: the way to a cause, filters, drawer, keyboard, themes, widths, attacks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.core.messages import Completion, Message, Usage
from agentlab.lab.run import Run
from agentlab.models.scripted import Scripted, call
from support.attacks import ATTACKS, write_hostile_set
from support.paths import ROOT
from support.planted_bug import LINE, PLANTED, WHOLE, play_planted

pytestmark = pytest.mark.browser
PICTURES = ROOT / "results" / "browser"
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 520, "height": 900}
ROWS = "#matrix .row:not(.top)"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write three pages: a run with a planted cause, a run with many failures, and a run whose texts are attacks."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTLAB_HOME", str(folder / "home"))
        patch.chdir(folder)
        runs = {
            "planted": play_planted(folder / "library", folder / "planted"),
            "troubled": troubled(folder),
            "hostile": hostile(folder),
        }
        return {name: run.report().save(folder / f"{name}.html") for name, run in runs.items()}


def troubled(folder: Path) -> Run:
    """Play sixty conversations of one turn in two epochs; one of two flows fails, is truncated and is wrong."""
    (folder / "set").mkdir()
    rows = [
        {
            "id": f"c{n:02}",
            "turns": [{"user": f"question {n}", "reference_answers": ["blue"]}],
            "metadata": {"kind": "even" if n % 2 == 0 else "odd"},
        }
        for n in range(60)
    ]
    (folder / "set" / "conversations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    cut = Completion(
        message=Message(role="agent", text="bl"), usage=Usage(input_tokens=9, output_tokens=2), finish_reason="length"
    )

    async def steady(turn: Any, session: Any) -> al.Reply:
        return al.Reply(text=(await session.complete(f"Answer: {turn.text}")).text)

    async def shaky(turn: Any, session: Any) -> al.Reply:
        completion = await session.complete(f"Reply: {turn.text}", max_tokens=2)
        if turn.text.endswith("7"):
            raise RuntimeError("that is one too many")
        return al.Reply(text=completion.text)

    def answers(request: Any) -> Any:
        text = request.messages[-1].text
        wrong = re.search(r"Reply: .*[2-5]$", text)
        return cut if text.endswith("Reply: question 9") else "7 green ones" if wrong else "blue"

    spec = {
        "datasets": [str(folder / "set")],
        "embedder": "hashing/hashing-64",
        "flows": [steady, shaky],
        "epochs": 2,
        "generation": {"temperature": 0.5, "seed": 1},
    }
    with al.Lab(model=Scripted([answers], loop=True), **spec) as lab:
        return lab.run_sync(out=folder / "troubled")


def hostile(folder: Path) -> Run:
    write_hostile_set(folder / "hostile-set")
    attack = " ".join(ATTACKS)

    async def fails(turn: Any, session: Any) -> al.Reply:
        session.notify(attack, attack)
        raise RuntimeError(attack)

    fails.__name__ = ATTACKS[1]
    spec = {"embedder": "hashing/hashing-64", "datasets": [str(folder / "hostile-set")]}
    replies = [
        *ATTACKS,
        call("lookup_documents", query=attack, document_names=[attack]),
        call(ATTACKS[0], **{attack: 1}),
    ]
    with al.Lab(model=Scripted(replies, loop=True), flows=["tools", "rag_only", fails], **spec) as lab:
        return lab.run_sync(out=folder / "hostile")


@pytest.fixture
def show(browser: Any, files: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens a page by its name, and saves a picture of its end in results/browser."""
    opened = []

    def start(name: str, size: dict[str, int] = WIDE, **options: Any) -> Any:
        page = browser.new_page(viewport=size, **options)
        page.errors = []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("request", lambda question: question.url.startswith("file:") or page.errors.append(question.url))
        page.goto(files[name].as_uri())
        page.wait_for_selector("#matrix .reply:not(:text-is('…'))")
        opened.append(page)
        return page

    yield start
    PICTURES.mkdir(parents=True, exist_ok=True)
    for page in opened:
        page.screenshot(path=PICTURES / f"{re.sub(r'[^a-z0-9]+', '-', request.node.name[5:])}.png")
        assert page.errors == []
        page.close()


def first_row(page: Any, text: str) -> None:
    """Wait for the texts of a row, which are inflated when it comes into view."""
    page.locator(ROWS).first.filter(has_text=text).wait_for()


def counted(page: Any) -> int:
    return int(page.inner_text("#matrix .note").split()[0])


def test_planted_line_is_at_most_four_clicks_from_the_first_screen(show):
    page, clicks = show("planted"), []

    def press(selector: str) -> None:
        box = page.locator(selector).first.bounding_box()
        assert box and 0 <= box["y"] <= WIDE["height"], f"{selector} is on the screen"
        page.locator(selector).first.click()
        clicks.append(selector)

    assert f"Ship none yet; {WHOLE} is the cheapest" in page.inner_text("#verdict")
    assert "fees" in page.inner_text(".weak") and PLANTED in page.inner_text(".weak")
    press(".weak")
    assert counted(page) == 18
    press(f"{ROWS} .flow.f1 .to-trace")
    page.wait_for_selector(".divergence")
    changed = page.locator(".divergence .removed, .divergence .added").all_inner_texts()
    assert [line.strip() for line in changed] == [f"- {LINE}"] and len(clicks) <= 4


def test_equal_flows_have_no_cause(show):
    page = show("planted")
    page.locator("#forest .difference", has_text="answer_correctness").click()
    assert page.inner_text("#matrix .note").startswith("72 of 72"), "equal on every turn: nothing flipped"
    assert page.locator(".weak").count() == 1, "only what is behind is pointed at"


def test_filters_show_what_they_say(show):
    page = show("troubled")
    assert counted(page) == 60
    for name, rows in (
        ("failed turns", 6),
        ("right in one, wrong in another", 30),
        ("flows disagree", 30),
        ("turns with cut replies", 1),
        ("all turns", 60),
    ):
        page.locator("#filters button", has_text=name).click()
        assert counted(page) == rows, name
    choose = page.locator("#filters")
    choose.get_by_label("slice").select_option(label="conversation kind: odd")
    assert counted(page) == 30
    first_row(page, "question")
    assert "even" not in page.inner_text("#matrix .rows")
    page.locator("#filters button", has_text="failed").click()
    assert counted(page) == 6
    page.locator("#filters button", has_text="all turns").click()
    assert counted(page) == 60
    failed = choose.locator("option", has_text="failed: RuntimeError").get_attribute("value")
    choose.get_by_label("cause").select_option(failed)
    assert counted(page) == 6
    first_row(page, "FAILED: RuntimeError")
    page.locator("#trouble .cause", has_text="reply cut at 2 tokens").click()
    assert counted(page) == 1
    first_row(page, "question 9")


def test_the_matrix_is_worst_first_whole_and_repeats_are_stacked(show):
    page = show("troubled")
    first, *_ = page.locator(ROWS).all()
    assert first.locator(".repeat.failed").count() == 2, "two epochs of the flow that failed"
    assert "epoch 1" in first.text_content() and "reference: blue" in first.text_content()
    for _ in range(20):
        page.mouse.wheel(0, 4000)
        page.wait_for_timeout(50)
        if page.locator(ROWS).count() == 60:
            break
    assert page.locator(ROWS).count() == 60
    page.locator("#plot .point", has_text="shaky:").locator("circle").click()
    assert page.locator("#matrix [role=columnheader]").all_text_contents() == ["asked", "shaky"]


def test_the_drawer_shows_the_turn_to_scale_with_passages_and_prompts(show):
    page = show("planted")
    page.get_by_label("worst first by").select_option(label="answer_f1")
    page.get_by_role("button", name=f"Trace of {WHOLE}, c04 turn 3", exact=True).click()
    drawer = page.locator("dialog[open]")
    drawer.wait_for()
    page.get_by_label("compare with").select_option(label="none")
    bars = drawer.locator(".step .track i")
    assert bars.count() == 3
    colours = [bar.evaluate("i => getComputedStyle(i).backgroundColor") for bar in bars.all()]
    assert colours[0] == colours[1] != colours[2], "retrieval and the answer"
    search = drawer.locator("details.search")
    search.locator("summary").first.click()
    assert search.locator(".relevant").count() == 1 and "★ relevant: Fees" in search.inner_text()
    answer = drawer.locator("details.model_call")
    answer.locator("summary").first.click()
    answer.locator("summary", has_text="difference to the previous call").click()
    assert "+ [user]" in answer.locator(".diff").inner_text()
    answer.locator("summary", has_text="prompt,").click()
    rendered = answer.locator("pre").first.inner_text()
    assert "You answer questions" in rendered and rendered.startswith(answer.locator(".prefix").inner_text())
    page.locator("dialog button", has_text="next in the list →").click()
    page.wait_for_selector("dialog h2:has-text('c05')")


def test_everything_is_reached_by_the_keyboard_alone(show):
    page = show("troubled")
    focused = "(e => e === document.body ? '' : e.getAttribute('aria-label') || e.textContent)(document.activeElement)"

    def tab_to(text: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            for _ in range(12):
                if text in page.evaluate(focused):
                    return
                if not page.evaluate("!!document.activeElement.closest('[data-roving]')"):
                    break
                page.keyboard.press("ArrowRight")  # a group of buttons is one stop
        raise AssertionError(f"{text} is not reached")

    tab_to("reply cut at 2 tokens")
    page.keyboard.press("Enter")
    assert counted(page) == 1
    tab_to("all turns")
    page.keyboard.press("Space")
    assert counted(page) == 60 and page.evaluate("document.activeElement.textContent") == "all turns"
    tab_to("Trace of steady")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused).startswith("Trace of steady"), "its second epoch"
    page.keyboard.press("ArrowDown")
    here = page.evaluate(focused)
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    assert page.evaluate(focused) == here, "the focus is back where it was"


# Text whose contrast to what is behind it is below 4 to 1, after the formula of WCAG 2.
CONTRAST = """() => {
  const channel = (c) => ((c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(channel);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!/, 0(\\.\\d+)?\\)/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const texts = "h1, h2, .says, .note, .asked, .reply, .expected p, .chip, .spent, button, select, svg text, td, small";
  const seen = [...document.querySelectorAll(texts)].filter((e) => e.textContent.trim() && e.getClientRects().length);
  return seen.map((e) => {
    const style = getComputedStyle(e), [a, b] = [light(e.closest("svg") ? style.fill : style.color), light(behind(e))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.textContent.slice(0, 20)];
  }).filter(([ratio]) => ratio < 4);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_themes(show, scheme):
    page = show("troubled", color_scheme=scheme)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 150) is (scheme == "dark")
    assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("name", ["planted", "troubled", "hostile"])
def test_a_narrow_page_does_not_scroll_sideways(show, name):
    page = show(name, NARROW)
    fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert page.evaluate(fits)
    page.locator(f"{ROWS} .to-trace").first.click()
    page.wait_for_selector("dialog[open]")
    assert page.evaluate(fits)
    assert page.evaluate("(d => d.scrollWidth <= d.clientWidth)(document.querySelector('dialog'))")


def test_paper_gets_every_turn_and_no_button(show):
    page = show("troubled")
    page.wait_for_selector(f"{ROWS} >> nth=59", state="attached")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("#filters").is_hidden() and page.locator(f"{ROWS} .to-trace").first.is_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(251, 250, 247)"
    pages = page.pdf().count(b"/Type /Page\n") or 9
    assert pages >= 3


def test_attacks_in_every_field_are_text(show):
    page = show("hostile")
    page.wait_for_selector("#matrix >> text=window.struck")
    seen = ""
    for number in range(page.locator(f"{ROWS} .to-trace").count()):
        page.locator(f"{ROWS} .to-trace").nth(number).click()
        page.wait_for_selector("dialog[open] h2")
        for summary in page.locator("dialog summary:visible").all():
            summary.click()
        seen += page.inner_text("dialog")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog:not([open])", state="attached")
    # Questions, references, replies, errors, notices, arguments, tool output, passages and prompts are in there.
    assert all(seen.count(attack) > 20 for attack in ATTACKS)
    assert page.evaluate("window.struck") is None
    foreign = (
        "main img, main a, main svg[onload], main style, main script, dialog img, dialog a, dialog style, dialog svg"
    )
    assert page.locator(foreign).count() == 0
    assert (
        page.evaluate(
            "[...document.querySelectorAll('*')].some(e => [...e.attributes].some(a => a.name.startsWith('on')))"
        )
        is False
    )
