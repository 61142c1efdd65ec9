"""`agentlab report`: one file with every reply that executes no content and loads no other file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.models.scripted import Scripted
from support.attacks import ATTACKS, write_hostile_set


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the content of its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.results: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.results.append((tag, dict(attrs)))
        self._open = tag
        if tag in self.inside:
            self.inside[tag].append("")

    def handle_data(self, data: str) -> None:
        if self.inside.get(self._open):
            self.inside[self._open][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


def played(folder: Path, replies: list[Any], *flows: str, name: str = "run") -> Path:
    out = folder / name
    if not (folder / "set").exists():
        write_hostile_set(folder / "set")
    model = Scripted(replies, loop=True)
    spec = {"embedder": "hashing/hashing-64", "flows": list(flows or ("rag_only", "tools"))}
    with al.Lab(model=model, datasets=[str(folder / "set")], **spec) as lab:
        lab.run_sync(out=out)
    return out


def page_of(*runs: Path) -> str:
    out = runs[0].parent / "page.html"
    assert main(["report", *map(str, runs), "-o", str(out)]) == 0
    return out.read_text(encoding="utf-8")


def parse_page(page: str) -> tuple[dict[str, Any], str]:
    """The data of the page, and all that is deflated in it, as one text."""
    data = json.loads(Elements(page).inside["script"][0])
    packed = re.findall(r'"([A-Za-z0-9+/=]{24,})"', json.dumps(data))
    texts = []
    for piece in packed:
        try:
            texts.append(zlib.decompress(base64.b64decode(piece)).decode())
        except (ValueError, zlib.error):
            continue
    return data, "\n".join([json.dumps(data), *texts])


def test_the_page_holds_every_question_and_every_reply(tmp_path, own_home):
    run = played(tmp_path, [f"reply number {n}" for n in range(9)])
    _, text = parse_page(page_of(run))
    for row in al.open_run(run).folder.turns():
        assert json.dumps(row.user)[1:-1] in text and json.dumps(row.reply.text)[1:-1] in text


def test_a_page_is_the_same_whenever_it_is_written(tmp_path, own_home):
    run = played(tmp_path, ["a", "b", "c"])
    assert page_of(run) == page_of(run)


def test_untrusted_text_never_becomes_an_element(tmp_path, own_home):
    plain = Elements(page_of(played(tmp_path, ["a plain reply"], name="plain")))
    hostile = Elements(page_of(played(tmp_path, list(ATTACKS), name="hostile")))
    assert [tag for tag, _ in hostile.results] == [tag for tag, _ in plain.results]
    assert not [names for _, names in hostile.results if any(name.startswith("on") for name in names)]


def test_only_its_own_script_and_style_may_run_and_nothing_is_loaded(tmp_path, own_home):
    elements = Elements(page_of(played(tmp_path, ["a"])))
    [policy] = [names["content"] for tag, names in elements.results if names.get("http-equiv")]
    for kind, text in (("script", elements.inside["script"][1]), ("style", elements.inside["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    assert not [names for _, names in elements.results if {"src", "href"} & set(names)]


def test_page_shows_two_runs_side_by_side(tmp_path, own_home):
    one, two = (played(tmp_path, [name], "rag_only", name=name) for name in ("one", "two"))
    data, _ = parse_page(page_of(one, two))
    assert len(data["flows"]) == 2 and len(data["runs"]) == 2


def test_the_verdict_of_few_conversations_is_that_nothing_is_decided(tmp_path, own_home):
    data, _ = parse_page(page_of(played(tmp_path, ["a", "b"])))
    assert data["verdict"]["kind"] == "unusable" and data["verdict"]["flow"] is None


@pytest.mark.parametrize("missing", ["nowhere", "unfinished"])
def test_a_run_that_is_not_there_or_not_finished_is_one_line(tmp_path, own_home, capsys, missing):
    run = played(tmp_path, ["a"])
    (run / "summary.json").unlink()
    target = run if missing == "unfinished" else tmp_path / "nowhere"
    assert main(["report", str(target), "-o", str(tmp_path / "page.html")]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("agentlab: ") and printed.count("\n") == 1


def test_a_run_shows_its_page_in_a_notebook_in_a_frame_that_cannot_reach_out(tmp_path, own_home):
    page = al.open_run(played(tmp_path, list(ATTACKS))).report()
    [(tag, names)] = Elements(page._repr_html_()).results[:1]
    assert tag == "iframe" and names["sandbox"] == "allow-scripts"
