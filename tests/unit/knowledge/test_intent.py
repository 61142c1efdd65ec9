"""Rules distinguish facts, questions and greetings in ten languages; an unclear message counts as a fact."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agentlab.data.datasets import load_dataset
from agentlab.knowledge.intent import ends_in_question, read_intent

TEXTS = yaml.safe_load((Path(__file__).parents[2] / "data" / "intents.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", TEXTS["tells"])
def test_a_message_with_a_fact_is_stored(text):
    assert read_intent(text) == "tells"


@pytest.mark.parametrize("text", TEXTS["asks"])
def test_a_message_that_only_asks_is_not_kept(text):
    assert read_intent(text) == "asks"


FACTS_BESIDE_QUESTIONS = (
    "Who would have guessed, after forty years they gave me a medal",
    "Bin Rentnerin und fahre nach Ulm, wann geht der Zug?",
    "Did you know I sold the boat?",
    "thanks to my sister, where is the key?",
)


@pytest.mark.parametrize("text", FACTS_BESIDE_QUESTIONS)
def test_a_fact_beside_a_question_is_stored(text):
    assert read_intent(text) == "tells"


@pytest.mark.parametrize("text", ["thanks a bunch, and what about the postage", "Cheers love. Where do I sign?"])
def test_thanks_with_more_words_do_not_make_a_question_a_fact(text):
    assert read_intent(text) == "asks"


@pytest.mark.parametrize("text", TEXTS["greets"])
def test_courtesy_is_neither_kept_nor_searched(text):
    assert read_intent(text) == "greets"


@pytest.mark.parametrize("text", TEXTS["in_doubt"])
def test_in_doubt_a_message_is_searched(text):
    assert read_intent(text) != "greets"


@pytest.mark.parametrize("text", ["Kiitos paljon!", "Děkuji mockrát", "감사합니다", "Onko uimahalli auki?", "ขอบคุณ"])
def test_other_languages_leave_nothing_out(text):
    assert read_intent(text) == "tells"


@pytest.mark.parametrize("reply", TEXTS["questions"])
def test_a_reply_that_ends_in_a_question_is_recognised(reply):
    assert ends_in_question(reply) and not ends_in_question(f"{reply} I wait.") and not ends_in_question("")


def test_no_fact_and_no_question_of_our_sets_is_left_out():
    memory = [t for c in load_dataset(Path("datasets/memory")).conversations for t in c.turns if t.expected_memory]
    facts = [turn.user for turn in memory if any(each.op != "none" for each in turn.expected_memory)]
    assert len(facts) == 229 and not [text for text in facts if read_intent(text) != "tells"]
    for name in ("laws", "research"):
        turns = [t for c in load_dataset(Path("datasets") / name).conversations for t in c.turns]
        assert not [t.user for t in turns if t.needs_document_lookup and read_intent(t.user) == "greets"]


@given(st.text(max_size=60), st.sampled_from(TEXTS["tells"]))
def test_any_text_has_an_intent_and_a_fact_beside_it_is_stored(text, fact):
    assert read_intent(text) in ("tells", "asks", "greets")
    assert read_intent(f"{text}\n{fact}") == "tells"


@pytest.mark.parametrize(
    "message",
    [
        "Can you note I hate olives?",
        "Can you call me Sam?",
        "Did I tell you my dog is called Rex?",
        "Kannst du dir merken, dass ich Nüsse hasse?",
        "Hast du gewusst, dass ich in Rom wohne?",
        "¿Puedes recordar que odio las aceitunas?",
        "Peux-tu retenir que j'habite à Lyon ?",
        "Puoi segnarti che parto alle 9?",
        "Você pode lembrar que odeio azeitonas?",
        "my weekend was great",
    ],
)
def test_a_request_to_remember_keeps_in_the_form_of_a_question_too(message):
    assert read_intent(message) == "tells"


@pytest.mark.parametrize(
    "message", ["ta muchly", "catch you later", "merci infiniment", "Coucou toi", "see ya tomorrow"]
)
def test_courtesy_in_passing_is_neither_searched_nor_stored(message):
    assert read_intent(message) == "greets"
