"""Right answers in any sentence, wrong answers of similar form, the matched text, and inflected forms."""

from __future__ import annotations

import pytest

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import correctness, groundedness, retrieval, rouge
from agentlab.evals.store.measures import primary_family
from support.scoring import outcome, search_event, values


def graded(text: str, *references: str) -> float:
    turn = Turn(user="?", reference_answers=list(references))
    return values(correctness.score(turn, outcome(text)))["answer_correctness"]


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("The choice of input encoding is typically left independent.", "encoding"),
        ("It was released on May 7th, 2023 [2].", "7 May 2023"),
        ("2023-05-07", "7 May 2023"),
        ("He went there on 3 June 2022.", "The week before 9 June 2022"),
        ("In total there were 1,500 of them", "1500"),
        ("Two road trips.", "two"),
        ("She has 2 dogs and one cat", "two dogs"),
        ("Yes, he does.", "Yes; it's classical music"),
        ("Anna's sister Maria", "Maria"),
        ("They were painting sunsets", "paint a sunset"),
        ("It is 2.0.", "2"),
        ("10", "10.0"),
        ("It costs $1,500.50", "1500.5"),
        ("twenty-one of them", "21"),
        ("21", "twenty one"),
        ("100", "one hundred"),
        ("minus five degrees", "-5"),
        ("It fell to \u22125.", "-5"),
        ("3\u20135 days", "3 to 5"),
        ("pages 3 -5", "5"),
        ("covid-19", "19"),
        ("ten minus five", "5"),
        ("in C++ and C#", "C#"),
    ],
)
def test_a_right_answer_survives_its_sentence(text, reference):
    assert graded(text, reference) == 1


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("It was 8 May 2023", "7 May 2023"),
        ("about 1,600", "1500"),
        ("three road trips", "two road trips"),
        ("No, he does not", "Yes"),
        ("The documents do not say.", "the say of the king"),
        ("It is not Paris", "Paris"),
        ("London", "Paris"),
        ("", "Paris"),
        ("2022", "7 May 2023"),
        ("20", "2.0"),
        ("2.4", "2.44"),
        ("-5", "5"),
        ("5", "-5"),
        ("-$5", "5"),
        ("3-5", "35"),
        ("twenty five-year-olds", "25"),
        ("C#", "C++"),
        ("C", "C++"),
    ],
)
def test_a_wrong_answer_scores_nothing_however_alike(text, reference):
    assert graded(text, reference) == 0


def test_infinite_number_is_an_ordinary_word():
    assert graded("9" * 5000, "9" * 5000 + " apples") == 0.5
    assert graded("9" * 5000, "apples") == 0


def test_a_part_scores_its_share_and_the_best_reference_counts():
    assert graded("Last year they baked a peach cobbler for the fair", "peach cobbler and cakes") == 2 / 3
    assert graded("peach cobbler", "peach cobbler and cakes") is None, "people differ about a part of a list"
    assert graded("cakes", "bread") is None
    assert correctness.correctness("They baked cakes for the fair", "bread", "What did they bake for the fair?") == 0
    assert graded("in May 2023", "7 May 2023") == 0.5, "vaguer than what was asked"
    assert graded("Paris", "London", "Paris") == 1
    assert correctness.metrics(Turn(user="?", reference_answers=["x"], unanswerable=True)) == ()


def test_a_part_counts_half_in_a_paragraph_and_all_of_it_counts_in_full():
    reference, more = "the red fox and the old badger", " and so it went on for the rest of that long evening" * 3
    sentence = "the red fox and nobody else is what I can see here"
    assert graded(sentence, reference) == 0.5 and graded(f"{sentence}{more}", reference) == 0.25
    assert graded(reference, reference) == graded(f"{reference}{more}", reference) == 1


def test_a_paragraph_is_not_answered_by_saying_more():
    paragraph = "Yes, since lists are mutable, " + " ".join(f"word{n}" for n in range(30))
    assert graded(paragraph, paragraph) == 1
    assert graded("Yes.", paragraph) < 0.1, "what follows is asked for, too"
    assert graded(paragraph + " and" * 100, paragraph) < graded(paragraph, paragraph)
    assert graded("The documents do not say.", paragraph) == 0


def test_correctness_decides_where_it_is_graded_and_f1_where_it_is_not():
    whole = {("c", 0, 0): {"llm_calls": 1.0, "answer_f1": 0.2, "answer_correctness": 1.0, "tool_f1": 0.5}}
    assert primary_family([whole]) == ("answer_correctness", "tool_f1", "llm_calls")
    without = {("c", 0, 0): {"llm_calls": 1.0, "answer_f1": 0.2, "tool_f1": 0.5}}
    assert primary_family([without]) == ("answer_f1", "tool_f1", "llm_calls")


def test_sentences_are_supported_by_passages_or_not():
    turn = Turn(user="How heavy is the ball?", relevant_doc_ids=["ball"])
    passages = (search_event("ball", text="The ball weighs between 410 and 450 g at kick-off."),)

    def grounded(text: str, **more):
        return groundedness.score(turn, outcome(text, **more))["groundedness"]

    assert grounded("It weighs 410 to 450 g [1].", events=passages).value == 1
    made_up = grounded("It weighs 410 to 450 g. Napoleon invented kites in Paris.", events=passages)
    assert made_up.value == 0.5 and "Napoleon" in made_up.reason
    assert grounded("It weighs 410 to 450 g.").value == 0, "nothing was found that it could stand on"
    assert grounded("The documents do not say.").value == 1, "claims nothing"
    assert groundedness.metrics(Turn(user="Thanks!")) == ()


def test_rouge_l_takes_the_nearest_reference():
    turn = Turn(user="?", reference_answers=["nothing", "the gunman was killed"])
    assert values(rouge.score(turn, outcome("the gunman, killed")))["rouge_l"] == pytest.approx(6 / 7)


def test_ranking_knows_order_and_what_was_not_found():
    turn = Turn(user="?", relevant_doc_ids=["a", "b"])
    first = values(retrieval.score(turn, outcome(events=(search_event("a", "x", "b"),))))
    later = values(retrieval.score(turn, outcome(events=(search_event("x", "a", "b"),))))
    assert first["retrieval_ndcg"] == pytest.approx(1.5 / (1 + 0.6309), abs=1e-4)
    assert first["context_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert later["retrieval_ndcg"] < first["retrieval_ndcg"]
    assert later["context_precision"] < first["context_precision"]
    assert values(retrieval.score(turn, outcome(events=(search_event("a", "b"),)))) == dict.fromkeys(first, 1)
    assert values(retrieval.score(turn, outcome())) == dict.fromkeys(first, 0)
    assert retrieval.metrics(Turn(user="?", relevant_doc_ids=[])) == ()
