"""The page of many flows and of failures: columns, header, widths, order of Tabs, print, axe-core, copied figures."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT
from support.small_runs import Answering, play, write_set

pytestmark = pytest.mark.browser
EIGHT = ("rag_only", "tools", "tools_rag_fallback", "chatbox", "chatbox_native_tools", "discord", "coordinator", "ego")
ROWS = "#matrix .row:not(.top)"
NAMES = "#plot :not(.finding) > text[font-weight]"
Open = Callable[..., Any]


def some(count: int, first: int = 0) -> list[tuple[str, int]]:
    return [(f"c{c:02}", t) for c in range(41) for t in range(2)][first : first + count]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write four pages: two equal flows, eight flows, three flows of which one fails in 30 turns, two useless flows."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTLAB_HOME", str(folder / "home"))
        data = write_set(folder / "set", 41)
        flows = {
            "two": [Answering("steady", calls=lambda turn: 2), Answering("cheap", calls=lambda turn: 2)],
            "eight": [
                Answering(name, wrong=some(10 + 3 * n, n), calls=lambda turn, n=n: 1 + n % 4)
                for n, name in enumerate(EIGHT)
            ],
            "fails": [
                Answering("steady", wrong=some(9), calls=lambda turn: 2),
                Answering("flaky", failing=some(30)),
                Answering("ego", wrong=some(20)),
            ],
            "useless": [Answering("one", wrong=some(82)), Answering("two", wrong=some(82))],
        }
        runs = {name: play(data, folder / name, *each) for name, each in flows.items()}
        return {name: run.report().save(folder / f"{name}.html") for name, run in runs.items()}


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("two", "undecided", "No difference between steady and cheap: equal on every turn"),
        ("fails", "failing", "flaky fails 30 of 82 turns: fix it first"),
        ("useless", "unusable", "None is usable: 0 of 82 right"),
    ],
)
def test_first_screen_has_headline_and_three_numbers_a_flow(show, name, kind, sentence):
    page = show(name)
    assert page.inner_text("#verdict .says") == sentence
    assert page.locator(f"#verdict.{kind}").count() == 1
    heads = page.locator("#verdict thead th").all_inner_texts()
    assert heads[1] == "right" and heads[3:5] == ["failed", "cost a turn"]
    assert page.inner_text("#verdict .scroll + .note").startswith("right: answer_f1 of .5 or more; mean: 0 to 1")
    counts = {"two": ["82/82", "82/82"], "fails": ["73/82", "62/82", "52/82"], "useless": ["0/82", "0/82"]}
    assert page.locator("#verdict tbody td.right").all_inner_texts() == counts[name]
    rows = page.locator("#verdict tbody tr").all()
    assert len(rows) == (3 if name == "fails" else 2)
    assert page.locator("#verdict tbody").bounding_box()["y"] < 900
    assert "↑ answer_f1" in page.locator("#plot svg text").all_text_contents()
    assert "0" in page.locator("#plot svg text").all_text_contents(), "the scatter begins at zero"


def test_all_eight_columns_are_reached_and_the_header_sticks(show):
    page = show("eight")
    page.locator("#matrix .row >> nth=3").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('#matrix .scroll').scrollLeft = 1e6")
    page.mouse.wheel(0, 800)
    page.wait_for_timeout(200)
    head = page.locator("#matrix [role=columnheader]", has_text="ego").bounding_box()
    assert head and 0 <= head["y"] < 40 and head["x"] + head["width"] <= 1280
    row = page.locator(ROWS).nth(6)
    cell = row.locator("[role=cell]").nth(7)
    cell.scroll_into_view_if_needed()
    box = cell.bounding_box()
    assert box and abs(box["x"] - head["x"]) < 3, "the head stands over its column"
    assert cell.locator(".to-trace").is_visible()
    question = row.locator(".q").bounding_box()
    assert question and 0 <= question["x"] < 100, "the question stays in view"


def test_affected_flows_come_first_when_a_chip_is_pressed(show):
    page = show("fails")
    page.locator("#trouble .cause", has_text="failed").click()
    assert page.locator("#matrix [role=columnheader]").all_text_contents() == ["asked", "flaky", "steady", "ego"]
    assert page.inner_text("#matrix .note").startswith("30 of 82 turns")


def test_the_drawer_says_the_cause_first_and_an_error_once(show):
    page = show("fails")
    page.locator("#verdict tr", has_text="flaky").get_by_role("button", name="30 of 82 failed").click()
    drawer = page.locator("dialog[open]")
    drawer.wait_for()
    for summary in drawer.locator("summary:visible").all():
        summary.click()
    text = drawer.inner_text()
    assert text.count("RuntimeError: by choice") == 1
    first = drawer.locator(".beside > .flow p").first
    assert first.inner_text() == "cause: failed: the flow itself raised this error, after the steps below"


def test_the_first_trace_takes_at_most_twelve_tabs(show):
    page = show("eight")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#matrix .to-trace')"):
            break
    assert page.evaluate("document.activeElement.matches('#matrix .to-trace')"), "twelve Tabs were not enough"


def test_few_words_of_the_glossary_are_on_the_screen_and_the_page_explains_its_own(show):
    page = show("fails")
    text = page.inner_text("body").lower()
    glossary = (
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("| word | meaning | not |")[1].split("\n## ")[0]
    )
    words = {word.strip().lower() for row in re.findall(r"(?m)^\| ([^|]+) \|", glossary) for word in row.split(",")}
    assert len(words) > 60, "the glossary is read"
    assert len([word for word in words if re.search(rf"\b{re.escape(word)}s?\b", text)]) <= 40
    assert page.locator("#words dd").first.is_hidden()
    page.locator("#words summary").click()
    explained = page.locator("#words dt").all_inner_texts()
    assert {"flow", "right", "mean score", "failed", "verdict", "trace"} <= {*explained} and page.locator(
        "#words dd"
    ).first.is_visible()


@pytest.mark.parametrize("width", [1280, 768, 390])
@pytest.mark.parametrize("name", ["two", "eight", "fails"])
def test_nothing_is_cut_at_any_width(show, name, width):
    page = show(name, width)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    cut = """() => [...document.querySelectorAll('#verdict *, #trouble *, .pair svg text')].filter((e) => {
      const box = e.getBoundingClientRect();
      return box.width && !e.closest('.scroll') && (box.left < -1 || box.right > innerWidth + 1);
    }).map((e) => e.textContent)"""
    assert page.evaluate(cut) == []
    assert page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('#verdict .scroll'))")


@pytest.mark.parametrize("width", [1280, 768, 390])
def test_bars_of_slices_have_one_scale_and_no_column_is_cut(show, width):
    page = show("eight", width)
    bars = page.evaluate("""() => [...document.querySelectorAll('#slices tbody td svg')].map((bar) => [
      +bar.parentElement.textContent, bar.querySelector('rect').getBoundingClientRect().width])""")
    assert len(bars) == 16 and all(abs(bar - 56 * value) < 1 for value, bar in bars)
    assert page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('#slices .scroll'))")


OVERLAPS = """(labels) => {
  const box = (e) => e.getBoundingClientRect(), names = [...document.querySelectorAll(labels)].map(box);
  const dots = [...document.querySelectorAll('#plot circle')].map(box);
  const meet = (a, b) => a.left < b.right - 1 && a.right > b.left + 1 && a.top < b.bottom - 3 && a.bottom > b.top + 3;
  const others = (i) => [...names.slice(i + 1), ...dots];
  return names.flatMap((a, i) => others(i).filter((b) => meet(a, b))).length;
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_labels_of_the_scatter_lie_on_no_label_and_no_dot(show, width):
    page = show("eight", width)
    assert page.evaluate(OVERLAPS, NAMES) == 0
    assert show("two", width).locator(NAMES).all_text_contents() == ["steady = cheap"], "one position, one label"


def test_print_keeps_dots_and_columns(show):
    page = show("eight")
    page.emulate_media(media="print")
    adjust = page.locator("#verdict .dot").first.evaluate("e => getComputedStyle(e).printColorAdjust")
    assert adjust == "exact"
    assert page.locator("#verdict button").first.is_hidden()


@pytest.mark.parametrize(("name", "beside"), [("fails", True), ("eight", False)])
def test_paper_shows_few_flows_side_by_side_and_many_below_each_other(show, name, beside):
    page = show(name, 718)
    page.emulate_media(media="print")
    first, second = (page.locator(f"{ROWS} >> nth=0").locator(".cell").nth(n).bounding_box() for n in (0, 1))
    assert (first["y"] == second["y"]) is beside
    assert page.locator("#matrix .heads").is_visible() is beside
    assert page.evaluate("document.documentElement.scrollWidth") <= 718


@pytest.mark.parametrize("type_", ["SVG", "PNG"])
@pytest.mark.parametrize("figure", ["plot", "forest", "phases"])
def test_a_figure_is_copied_or_saved_with_its_finding(show, figure, type_):
    page = show("fails")
    page.evaluate("() => { navigator.clipboard.writeText = navigator.clipboard.write = () => Promise.reject(); }")
    with page.expect_download() as saving:
        page.locator(f"#{figure} button", has_text=f"copy as {type_}").click()
    content = Path(saving.value.path()).read_bytes()
    assert saving.value.suggested_filename == f"{figure}.{type_.lower()}"
    if type_ == "PNG":
        assert content.startswith(b"\x89PNG")
        return
    title, drawing = page.inner_text(f"#{figure}-title"), content.decode()
    assert title in drawing or figure == "phases"
    assert "n = 82 turns, 41 conversations; 20" in drawing and "var(" not in drawing, "other programs draw it too"


@pytest.mark.parametrize("width", [1280, 768, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["eight", "fails"])
def test_axe_finds_no_violation_on_page_and_trace(show, name, scheme, width):
    from axe_playwright_python.sync_playwright import Axe  # only the extra `browser` has it

    page = show(name, width, color_scheme=scheme)
    for part in ("page", "trace"):
        violations = Axe().run(page).response["violations"]
        assert [(each["id"], [node["html"][:120] for node in each["nodes"][:2]]) for each in violations] == []
        if part == "page":
            page.locator(f"{ROWS} .to-trace").first.click()
            page.locator("dialog[open]").wait_for()
