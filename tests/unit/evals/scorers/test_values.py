"""Values are read however they are written, and what words do not decide is not graded, counted and shown."""

from __future__ import annotations

import json
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentlab as al
from agentlab.cli.parser import main
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import correctness
from agentlab.evals.scorers.dates import find_dates
from support.predictions import row, write_questions, write_rows
from support.scoring import outcome, values


def graded(reply: str, *references: str) -> float | None:
    turn = Turn(user="?", reference_answers=list(references))
    return values(correctness.score(turn, outcome(reply)))["answer_correctness"]


@pytest.mark.parametrize(
    ("reference", "right", "wrong"),
    [
        # Reports of the field: what vanishes, what runs together, powers, boxes, looks.
        ("A", "The answer is A.", "The"),
        ("1/2", "It is 0.5.", "It is 12."),
        ("1000000", "1e6", "1e5"),
        ("10^6", "1.5 million or 1,000,000", "1.5 million"),
        ("1500000", "1.5 million", "15 million"),
        ("42", r"So $\boxed{42}$.", r"42 is wrong: \boxed{24}"),
        ("1/2", r"$$\boxed{\frac{1}{2}}$$", r"$$\boxed{\frac{1}{3}}$$"),
        ("Paris", r"$$\boxed{\text{Paris}}$$", r"$$\boxed{\text{London}}$$, not Paris"),
        ("Paris", "<answer>Paris</answer> as I told you.", "<answer>London</answer>"),
        ("42", "I compare 41 and 42.\n<answer>42</answer>", "I compare 41 and 42.\n<answer>41</answer>"),
        ("42", "4\u200b2", "4 2"),
        ("42", "\uff14\uff12", "\uff12\uff14"),
        ("25", "\u0662\u0665", "\u0662\u0664"),
        ("office", "the o\ufb03ce", "the shop, on Monday, by the way"),
        ("\uffe55000", "5,000 yen", "5,000 euros"),
        ("\uffe55000", "5,000 yuan", "5,000 dollars"),
        ("The Who", "It was The Who.", "It was The Kinks."),
        ("I", "The answer is I.", "I think it is K."),
        ("+", "+", "-"),
        ("3:2", "They won 3:2.", "They won 32."),
        # Kinds of values.
        ("2.5 km", "about 2500 m", "roughly 25 km"),
        ("20 \xb0C", "about 68 degrees Fahrenheit", "20 \xb0F"),
        ("5 bar", "500 kPa", "5 psi"),
        ("4% a year", "4 percent per year", "4% a month"),
        ("at least 18", "18 or older", "under 18"),
        ("30 kg", "Thirty kilograms", "30 pounds is the limit."),
        ("3 to 5 days", "between three and five days", "three to five weeks"),
        ("18 months", "a year and a half", "a year"),
        ("15.90 EUR", "15 euros and 90 cents", "15.90 dollars"),
        ("\xa340", "forty quid", "You pay \xa314."),
        ("free of charge", "It doesn't cost anything.", "It costs 3 euros."),
        ("20%", "a fifth of the price", "20 euros"),
        ("a third", "33.3 percent of the crew", "the third one"),
        ("3/4 cup", "\xbe cup", "2/3 cup"),
        ("5 pm", "five in the afternoon", "5 am"),
        ("9:30", "half past nine", "10:30"),
        ("noon", "12 o'clock midday", "midnight"),
        ("March 3", "the 3rd of March", "13 March"),
        ("7 May 2023", "07.05.2023", "on 5 July 2023"),
        ("Monday", "They are closed on Mondays.", "They are closed on Sundays."),
        ("1998", "in 1998", "in 1989"),
        ("21st century", "the twenty-first century", "the 19th century"),
        ("second floor", "on the 2nd floor", "on the ground floor"),
        ("6.02 x 10^23", "6.02 \xd7 10\xb2\xb3", "6.02e22"),
        # Yes and no, negation, letters, lists, names, and what a reply takes back.
        ("No", "I'm afraid that's not possible.", "Of course!"),
        ("Yes", "It is permitted as long as you ask first.", "Not at all."),
        ("No, dogs are not allowed", "Dogs are prohibited inside.", "Dogs are welcome."),
        ("not refundable", "The ticket cannot be refunded.", "The ticket is refundable."),
        ("no parking", "Parking is not permitted.", "Parking is permitted."),
        ("Yes", "Sure, as long as you do not park there.", "Not at all, sure."),
        ("C", "Option (c)", "not c but b"),
        ("the blue valve", "the blue one", "the green valve"),
        ("Lorenzo Bassi", "It was Lorenzo Bassi.", "Antonio Bassi"),
        ("Bonn", "Bonn", "Anywhere but Bonn"),
        ("B", "I would pick B because A and C are both wrong.", "The correct option is C, although B looks tempting."),
        ("D", "(d)", "A good choice would be C."),
        ("red, green and blue", "blue, red, green", "yellow and black"),
        ("Captain James Cook", "James Cook", "That was Captain James Kirk."),
        ("United States", "the USA", "the UK"),
        ("Queen Elizabeth II", "Elizabeth the Second", "Queen Elizabeth I"),
        ("14 days", "Once 30 days, now it is 14 days.", "It used to be 14 days; since 2024 it is 30 days."),
        ("Canberra", "It is Canberra, not Sydney.", "Many believe it's Canberra, but it's Sydney."),
        ("12", "Step 1: 3 boxes of 4. So the answer is 12.", "12 apples minus 5 leaves 7. Answer: 7"),
        # Other languages.
        ("1.500 Meter", "anderthalb Kilometer sind 1500 Meter", "15 Meter"),
        ("Nein", "Das ist leider nicht erlaubt.", "Kein Problem, bringen Sie ihn einfach mit!"),
        ("once jugadores", "Un equipo tiene 11 jugadores.", "Un equipo tiene 12 jugadores."),
        ("15,90 euros", "Cela co\xfbte 15,90 \u20ac par mois.", "Cela co\xfbte 19,50 \u20ac par mois."),
        ("7 maggio 2023", "\xc8 stato il 07/05/2023.", "\xc8 stato il 05/07/2023."),
        ("duas horas", "2 horas", "tr\xeas horas"),
        ("\u0434\u0432\u0430\u0434\u0446\u0430\u0442\u044c \u043f\u044f\u0442\u044c", "25", "20"),
        (
            "50 \u062f\u0631\u0647\u0645\u0627",
            "\u0665\u0660 \u062f\u0631\u0647\u0645\u0627",
            "\u0661\u0660 \u062f\u0631\u0647\u0645\u0627",
        ),
        ("2023\u5e745\u67087\u65e5", "2023-05-07", "2023-05-08"),
        ("\u5348\u5f8c5\u6642", "17\u6642\u3067\u3059\u3002", "18\u6642\u3067\u3059\u3002"),
        (
            "\u4e0d\u53ef\u4ee5",
            "\u5f88\u62b1\u6b49\uff0c\u8fd9\u662f\u7981\u6b62\u7684\u3002",
            "\u5f53\u7136\u53ef\u4ee5",
        ),
    ],
)
def test_values_and_meanings_are_read_however_they_are_written(reference, right, wrong):
    for reply, is_right in ((right, True), (wrong, False)):
        value = graded(reply, reference)
        assert value is not None and (value >= 0.5) == is_right, reply


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("about 2500 metres", 0),
        ("1200 USD", 0),
        ("it costs $1999", 0),
        ("1500 km", 0),
        ("in 1999", 1),
        ("7 mayo 2023", 1),
        ("2023\u5e745\u67087\u65e5", 1),
    ],
)
def test_a_number_before_a_unit_is_no_year(text, spans):
    assert len(find_dates(text)[0]) == spans


def test_a_day_without_a_year_is_of_any_year():
    ((first, last),), rest = find_dates("due on 3 March, please")
    assert first == last and (first.month, first.day) == (3, 3) and "March" not in rest
    assert graded("up to 3 may enter", "3") == 1, "a verb is no month"
    assert graded("in 2023", "23 November") == 0
    assert find_dates("from 5-6 May 2022")[0] == [(date(2022, 5, 5), date(2022, 5, 6))]


def test_a_synonym_is_not_graded_and_a_name_is():
    assert graded("an attorney", "lawyer") is None
    assert graded("an attorney", "lawyer", "attorney") == 1
    assert graded("an attorney", "lawyer", "solicitor at law") is None, "one reference may be meant"
    assert graded("London", "Paris") == 0
    assert graded("in Leeds", "in York") == 0
    assert graded("", "lawyer") == 0, "an empty reply is wrong"
    assert graded("I don't know.", "lawyer") == 0
    assert graded("5 people", "lawyer") == 0, "a value is no synonym"
    reply = "She met him in the old harbour after the storm had passed."
    assert correctness.correctness(reply, "lawyer", "Where did she meet him?") == 0, "other words beside the question's"


def test_a_part_of_a_list_in_another_language_is_wrong():
    assert graded("Faro e Beja", "\xc9vora, Beja, Faro") == 0
    assert graded("Faro, Beja e \xc9vora", "\xc9vora, Beja, Faro") == 1
    assert graded("Lisboa", "\xc9vora, Beja, Faro") == 0


def test_the_question_names_the_options_and_the_unit():
    assert correctness.correctness("billing", "technical", "Is it technical, billing or other?") == 0
    assert correctness.correctness("billing", "technical", "Which kind is it?") is None
    assert correctness.correctness("technical", "technical", "Is it technical, billing or other?") == 1
    assert correctness.correctness("due ore", "120", "Quanti minuti di ritardo aveva?") == 1
    assert correctness.correctness("120 ore", "120", "Quanti minuti di ritardo aveva?") == 0


def test_a_reply_that_denies_the_reference_is_wrong():
    assert graded("Keine Esche, sondern Buche.", "Esche") == 0 and graded("Das ist Esche.", "Esche") == 1
    assert graded("Em Olinda, n\xe3o em Recife.", "em Recife") == 0


@pytest.mark.parametrize(
    ("reply", "reference", "value"),
    [
        ("24 A", "24 V", 0),
        ("200 euros", "200 pesetas", 0),
        ("meno diciotto gradi", "-18 \xb0C", 1),
        ("a las seis y veinte de la tarde", "18:20", 1),
        ("\xe0 20 h 15", "8 h 15", 0),
        ("08:00 sharp", "8 pm", 0),
        ("8 o'clock sharp", "8 pm", 1),
        ("il 2/6/46", "2 giugno 1946", 1),
    ],
)
def test_units_and_hours_of_other_languages(reply, reference, value):
    assert graded(reply, reference) == value


def test_another_measure_of_how_often_is_not_graded():
    assert graded("every six months", "twice a year") is None and graded("twice a year", "2 times a year") == 1
    assert graded("Das ist nicht erstattungsf\xe4hig.", "Das ist erstattungsf\xe4hig.") == 0, "only the denial differs"


def test_undecided_turns_are_left_out_counted_and_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {f"q{n}": ["lawyer"] for n in range(4)}
    folder = write_questions(tmp_path / "theirs", names)
    texts = {"a": ["a lawyer", "an attorney", "lawyer", "She left."], "b": ["a lawyer", "lawyer", "a doctor", "lawyer"]}
    rows = [row(flow, f"q{n}", text) for flow, each in texts.items() for n, text in enumerate(each)]
    write_rows(folder / "predictions.jsonl", rows)
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 0
    run = al.open_run("run")
    summary = json.loads((run.path / "summary.json").read_text())["flows"]
    undecided = [summary[flow]["scores"]["answer_correctness"] for flow in texts]
    assert [(score["n"], score["undecided"], score["mean"]) for score in undecided] == [(2, 2, 1), (3, 1, 1)]
    assert "not decided and not counted: 2 of a, 1 of b" in capsys.readouterr().out
    reasons = run.scores[(run.scores.metric == "answer_correctness") & run.scores.value.isna()].reason
    assert len(reasons) == 3 and all(reason.startswith("not decided") for reason in reasons)
    assert main(["report", "run", "-o", "page.html"]) == 0
    assert "not decided" in (tmp_path / "page.html").read_text(encoding="utf-8")
    poor = run.causes()
    assert "q1" not in {*poor[poor.flow == "a"].conversation}, "what is not decided is not poor"
    assert main(["gate", "run", "--baseline", "base.jsonl", "--update"]) == 0
    write_rows(folder / "predictions.jsonl", [row(flow, f"q{n}", "an attorney") for flow in texts for n in range(4)])
    assert main(["import", "predictions", "theirs", "-o", "later"]) == 0
    capsys.readouterr()
    assert main(["gate", "later", "--baseline", "base.jsonl"]) != 0
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "turns that one side leaves undecided, each counted as the largest loss: 2 of answer_correctness of a"
        in printed
    )


@given(st.text(), st.text())
def test_any_text_has_a_score(reply, reference):
    value = correctness.correctness(reply, reference)
    assert value is None or 0 <= value <= 1


@pytest.mark.parametrize("text", ["1e999", "9^999 and 0^-1", "half a \ud800", "1/0", "99:99", "31 February 2023"])
def test_values_that_cannot_be_are_words_or_infinite(text):
    assert graded(text, "12 of them") == 0
