"""Passages in a prompt, and the citations of a reply."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.core.messages import Citation, Passage
from agentlab.data.context import format_context
from agentlab.knowledge.citations import cite, strip_markers, with_sources, with_titles


def passage(number: int, text: str, title: str = "") -> Passage:
    return Passage(id=f"d{number}#0", doc_id=f"d{number}", title=title, text=text, start=0, end=len(text))


PASSAGES = (
    passage(1, "A team has at most eleven players, one of them the goalkeeper.", "Players"),
    passage(2, "The ball is round. Its circumference is 68 to 70 centimetres.", "The ball"),
    passage(3, "The goalkeeper wears colours unlike the other players.", "Equipment"),
    passage(4, "A match lasts two halves of 45 minutes.", "Duration"),
)


def cited(reply: str, limit: int = 3) -> list[str]:
    return [citation.doc_id for citation in cite(reply, PASSAGES, limit)]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("It is round [2].", ["d2"]),
        ("It is round[2]. See also [4]", ["d2", "d4"]),
        ("Eleven [3, 1] and round. [2][2]", ["d3", "d1", "d2"]),
        ("Too many [1] [2] [3] [4]", ["d1", "d2", "d3"]),
        ("Eleven players [9].", ["d1", "d3"]),
        ("\u7403\u662f\u5706\u7684[2]\u3002\u5171[1]\u4eba", ["d2", "d1"]),
        ("\u0643\u0631\u0629[2]\u060c \u0648\u0644\u0627\u0639\u0628\u3010 1\u3011\u061b", ["d2", "d1"]),
        ("\u00abRound[2]\u00bb, and \uff3b4\uff3d minutes \u30103\u2020Law 3\u3011", ["d2", "d4", "d3"]),
        ("I don't know the size, but the ball is round [2].", ["d2"]),
        ("I am not sure who. [1] The match lasts 45 minutes.", ["d4"]),
    ],
)
def test_markers_are_the_models_own_word(reply: str, expected: list[str]) -> None:
    assert cited(reply) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Eleven players, one of them the goalkeeper.", ["d1", "d3"]),
        ("68 to 70 centimetres", ["d2"]),
        ("Minutes: 45", ["d4"]),
        ("The offside rule is about the second-last opponent.", []),
    ],
)
def test_without_markers_the_words_decide(reply: str, expected: list[str]) -> None:
    assert cited(reply) == expected


OTHER_SCRIPTS = {
    "Chinese": ("比赛用球重量在四百一十克到四百五十克之间。", "每队最多有十一名球员。", "球重四百一十克到四百五十克"),
    "Japanese": (
        "ボールの重さは試合開始時に四百十グラム以上です。",
        "各チームの選手は最大十一人です。",
        "重さは四百十グラム以上",
    ),
    "Thai": (
        "ลูกบอลมีน้ำหนักไม่น้อยกว่าสี่ร้อยสิบกรัม",
        "แต่ละทีมมีผู้เล่นไม่เกินสิบเอ็ดคน",
        "น้ำหนักไม่น้อยกว่าสี่ร้อยสิบกรัม",
    ),
    "Arabic": ("تزن الكُرة ما لا يقل عن أربعمائة غرام.", "يضم كل فريق أحد عشر لاعبا.", "الكرة تزن اربعمائة غرام"),
}


@pytest.mark.parametrize("language", OTHER_SCRIPTS)
def test_words_of_other_scripts_name_their_passage(language: str) -> None:
    weight, players, reply = OTHER_SCRIPTS[language]
    passages = (passage(1, players), passage(2, weight))
    assert [citation.doc_id for citation in cite(reply, passages)] == ["d2"]
    others = [each[1] for name, each in OTHER_SCRIPTS.items() if name != language]
    assert cite(reply, [passage(number, text) for number, text in enumerate(others)]) == ()


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "Hello! How can I help you today?",
        "You're welcome!",
        "Yes.",
        "I don't know.",
        "I\u2019m sorry, but I cannot find how many players a team has. [1]",
        "The documents do not say how long a match lasts [4].",
        "The number of players is not mentioned in the provided context.",
        "There is no information about the goalkeeper in the passages [1].",
        "Unanswerable",
    ],
)
def test_refusals_and_small_talk_have_no_source(reply: str) -> None:
    assert cited(reply) == []


def test_phrase_not_specified_is_no_refusal() -> None:
    assert cited("If the colours are not specified, the goalkeeper chooses [3].") == ["d3"]


def test_code_is_not_taken_for_markers() -> None:
    reply = "Use `argv[1]` or:\n```\nx = y[2]\n```\nargv[1] holds it, values = [1, 2] too; see [4]."
    assert cited(reply) == ["d4"]
    assert strip_markers(reply) == reply.replace(" [4]", "")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Eleven [1], one goalkeeper [2][3].", "Eleven, one goalkeeper."),
        ("Paris[1].", "Paris."),
        ("[1] Eleven\n[2]  round", "Eleven\nround"),
        ("The [update] of 2014 [0] stays", "The [update] of 2014 [0] stays"),
        ("See [12, 3] .", "See ."),
        ("\u5341\u4e00\u4eba[1]\uff0c\u7403\u3010 2\u3011\u3002", "\u5341\u4e00\u4eba\uff0c\u7403\u3002"),
        ("\u7403\u3010 2\u3011\u3002", "\u7403\u3002"),
        ("Round\uff3b2\uff3d.", "Round."),
        ("argv[1] holds \u3010x\u3011", "argv[1] holds \u3010x\u3011"),
    ],
)
def test_markers_are_stripped(text: str, plain: str) -> None:
    assert strip_markers(text) == plain


@given(st.text(alphabet="ab [1]2,.`\n=", max_size=60))
def test_stripping_twice_changes_nothing_in_plain_text(text: str) -> None:
    assert len(strip_markers(text)) <= len(text)
    assert all(citation.doc_id in {"d1", "d2", "d3", "d4"} for citation in cite(text, PASSAGES))


def test_each_source_points_at_document_and_passage() -> None:
    rendered = with_sources(
        "Round.",
        [
            Citation(doc_id="d1", passage_id="d1#0", title="The\nball"),
            Citation(doc_id="d2", passage_id="d2#4", title="", marker=4),
        ],
    )
    assert rendered == (
        "Round.\n\nSource: The ball (document d1, passage d1#0)\nSource [4]: d2 (document d2, passage d2#4)"
    )
    assert with_sources("Round.", []) == "Round."
    assert with_sources("[2] Round [7].", cite("[2]", PASSAGES)).startswith("[2] Round.\n")


@given(st.lists(st.integers(1, 9), max_size=6))
def test_shown_markers_and_sources_match(numbers: list[int]) -> None:
    text = "".join(f"It is so [{number}]. " for number in numbers).strip()
    citations = cite(text, PASSAGES)
    message, _, sources = with_sources(text, citations).partition("\n\n")
    named = [int(number) for number in re.findall(r"\[(\d)\]", sources)]
    assert set(map(int, re.findall(r"\[(\d)\]", message))) == set(named)
    for number in named:
        assert f"Source [{number}]: {PASSAGES[number - 1].title} " in sources


def test_code_keeps_what_looks_like_a_marker() -> None:
    assert with_sources("Write `a[9]` [9].", ()) == "Write `a[9]`."


def test_context_is_numbered_and_fenced() -> None:
    rendered = format_context([passage(1, " Eleven players.\n", "Players"), passage(2, "Round.")])
    assert rendered == ("[1] Players\n<passage>\nEleven players.\n</passage>\n\n[2] d2\n<passage>\nRound.\n</passage>")
    assert format_context([]) == ""


HOSTILE = st.lists(
    st.sampled_from(["<passage>", "</passage>", "< / PASSAGE >", "[1] Fake", "[2]", "\n", "\u2028", "\r", " ", "word"]),
    max_size=12,
).map("".join)


@given(st.lists(st.tuples(HOSTILE, HOSTILE), max_size=4))
def test_no_passage_breaks_out_of_its_fence(pairs: list[tuple[str, str]]) -> None:
    rendered = format_context([passage(n, text, title) for n, (title, text) in enumerate(pairs)])
    fences = re.findall(r"<\s*/?\s*passage", rendered, re.IGNORECASE)
    assert fences == ["<passage", "</passage"] * len(pairs)
    headings = re.findall(r"^\s*\[(\d+)\][^\S\n]+\S", rendered, re.MULTILINE)
    assert headings == [str(n) for n in range(1, len(pairs) + 1)]


def test_ordinary_text_is_shown_as_it_is() -> None:
    text = "see [2] and x[1]\n[1]\n[1, 2]\nif a < passages: pass"
    assert text.replace("< p", "( p") in format_context([passage(1, text)])


def test_a_reply_full_of_blanks_is_stripped_in_no_time():
    assert strip_markers("a" + " " * 50_000 + "b").startswith("a")


def test_titles_replace_the_markers_of_an_earlier_reply() -> None:
    reply = "Round[2], they say [9]; `a[1]`. Eleven [1][2]."
    titled = with_titles(reply, cite(reply, PASSAGES))
    assert titled == "Round (The ball), they say; `a[1]`. Eleven (Players) (The ball)."
