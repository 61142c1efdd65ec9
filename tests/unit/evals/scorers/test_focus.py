"""A right word about something else leaves a reply open, and more ways to write a value, a name, a label and a no."""

# ruff: noqa: RUF001

from __future__ import annotations

import pytest

from agentlab.evals.scorers.correctness import correctness
from agentlab.knowledge.refusal import read_reply


@pytest.mark.parametrize(
    ("question", "reference", "right", "left_open"),
    [
        ("Which dog won the trial?", "Fly", "Fly won, Moss only came third.", "Moss won, Fly only came third."),
        (
            "Who inherits the cottage, Margaret or Alan?",
            "Margaret",
            "Margaret inherits the cottage.",
            "Alan. Margaret just gets the right to live in it.",
        ),
        (
            "quem é o salva vidas da tarde",
            "Edivaldo",
            "o salva vidas da tarde é o Edivaldo",
            "O Edivaldo saiu em maio, agora é a Jéssica.",
        ),
        (
            "quem consertou o ventilador da forja",
            "Zeca",
            "quem consertou foi o Zeca",
            "Foi o Nelsinho, o Zeca só olhou.",
        ),
        (
            "Dove l'hanno portato?",
            "al Niguarda",
            "L'hanno portato al Niguarda",
            "Volevano portarlo al Niguarda ma era pieno, così è finito al San Raffaele.",
        ),
        (
            "夜班护士几个人",
            "4个",
            "夜班有4个",
            "白班有4个，夜班只有两个",
        ),
        (
            "какое место заняла лодка",
            "третье",
            "третье место",
            "бронза у неё",
        ),
    ],
)
def test_the_right_word_about_something_else_leaves_a_reply_open(question, reference, right, left_open):
    assert correctness(right, reference, question) == 1
    assert correctness(left_open, reference, question) is None


@pytest.mark.parametrize(
    ("no", "refusal"),
    [
        ("nein", "Ich weiß es nicht."),
        ("no", "No lo sé."),
        ("non", "Je ne sais pas."),
        ("no", "Non lo so."),
        ("não", "Não sei."),
        ("нет", "Я не знаю."),
        ("لا", "لا أعرف"),
        ("不可以", "我不知道"),
        ("いいえ", "わかりません"),
    ],
)
def test_not_knowing_is_no_right_no(no, refusal):
    assert correctness(no, no, "") == 1
    assert correctness(refusal, no, "") is None
    assert correctness(refusal, "42 km", "") == 0, "a refusal gives no value"


def test_another_form_of_a_name_is_open_and_a_possessive_is_not():
    assert correctness("It was Victoria.", "Victor", "Who was it?") is None
    assert correctness("It was Victor's.", "Victor", "Whose was it?") == 1
    assert correctness("Tom did not win the race.", "Tom", "Who won the race?") is None


@pytest.mark.parametrize("text", ["?" * 20_000 + "x!", "\n" * 20_000 + "x", "一" * 5_000, "万" * 1_500, "二一" * 5_000])
def test_a_reply_that_loops_is_graded(text):
    assert correctness(text, "the red house", "Which one?") in (0, None)
    assert read_reply(text).verdict in ("answers", "not decided", "declines")


def test_other_words_are_wrong_if_they_repeat_the_question():
    assert correctness("You are allergic to pollen and to wasps.", "hazelnuts", "What am I allergic to?") == 0
    assert correctness("absolutely furious, poor man, all day long", "angry", "How was the customer?") is None


@pytest.mark.parametrize(
    ("question", "reference", "right", "wrong"),
    [
        ("What platform for the Hull train?", "4B", "It is platform 4B.", "It's 4A."),
        (
            "Which seats have a restricted view?",
            "row K, seats 1 to 4",
            "Seats 1 to 4 in row K.",
            "Seats 1 to 4 in row J.",
        ),
        ("Box number of the guild minutes?", "B-117", "its in B117", "its in B118"),
        ("Quelle est la cote du terrier ?", "3 E 52", "3E52", "3E53"),
        ("What's the boiling point of ethanol?", "78 °C", "About 351 K.", "About 361 K."),
        (
            "cuánto dura el líquido una vez abierto",
            "tres meses",
            "90 días, luego a la basura",
            "60 días, luego a la basura",
        ),
        ("what torque do the wheel nuts need", "600 Nm", "600 newton metres, and go round twice", "600 newtons"),
        ("how much fluoride is in it?", "1000 ppm", "The one with 0.1% fluoride", "The one with 1% fluoride"),
        ("when did the practice open", "1987", "Opened its doors in '87.", "Opened its doors in '78."),
        ("mr lefebvre est né quand", "le 1er août 1929", "01/08/29", "01/08/28"),
        ("what time does the minibus leave", "quarter to seven", "6.45, don't be late", "6.15, don't be late"),
        ("When does the show start", "6 a.m.", "0600 sharp", "0700 sharp"),
        ("what year was the club founded", "1894", "Eighteen ninety-four.", "Eighteen ninety-five."),
        ("When did Maria get Coco?", "Two weeks before 11 August 2023", "Around 28 July 2023.", "10 August 2023."),
        ("When did he buy it?", "first week of October 2023", "on 3 October 2023", "on 13 October 2023"),
        ("La pub dure combien ?", "1 min 20", "80 secondes pile", "120 secondes pile"),
        ("De que década é a fotografia?", "anos 1930", "década de trinta", "década de quarenta"),
        ("In che secolo fu costruita la torre?", "nel XVI secolo", "nel Cinquecento", "nel Seicento"),
        ("quantas parcelas são?", "24", "vinte e quatro vezes", "vinte e cinco vezes"),
        ("Quando começa?", "2 de outubro", "começa no dia 2/10", "começa no dia 10/2"),
        (
            "В каком году построили?",
            "1872",
            "построен в 1872-м",
            "построен в 1873-м",
        ),
        (
            "сколько стоит",
            "4500 руб.",
            "четыре с половиной тысячи рублей",
            "пять с половиной тысяч рублей",
        ),
        (
            "Какой диаметр?",
            "1/2 дюйма",
            "полдюйма",
            "четверть дюйма",
        ),
        (
            "年利率是多少？",
            "2.6%",
            "百分之二点六",
            "百分之三点六",
        ),
        ("多长", "68公里", "六十八千米", "六十七千米"),
        ("多久？", "90秒", "一分半钟", "两分半钟"),
        (
            "納期いつまで",
            "3月1日",
            "三月ついたち",
            "三月ふつか",
        ),
        (
            "متى يبدأ الجدول الجديد؟",
            "1 يونيو",
            "أول حزيران",
            "أول تموز",
        ),
        (
            "¿Puedo pagar en el banco?",
            "Sí",
            "No hay ningún problema, en cualquier sucursal.",
            "No, en el banco no.",
        ),
        ("Si può spostare da soli?", "No", "No, serve il tecnico.", "Non c'è problema, lo sposti pure."),
        (
            "Faut-il une ordonnance ?",
            "oui",
            "Non seulement il en faut une, mais elle doit être récente.",
            "Non, aucune.",
        ),
        (
            "迟到了还能进场吗",
            "可以",
            "能，不过得等第一幕演完",
            "不行，关门了",
        ),
        ("Onde fica a sala?", "no terceiro andar", "Fica no terceiro andar", "Fica no segundo andar"),
        (
            "Crianças pagam?",
            "não, até aos 6 anos é grátis",
            "Até seis anos a entrada é gratuita",
            "Até dez anos a entrada é gratuita",
        ),
        ("Chi deve venire?", "Bruno, Carla e Rita", "Rita, Carla e Bruno", "Bruno e Rita, Carla no"),
        ("Wer leitet die Abteilung?", "Sabine Köhler", "Das ist Sabine Koehler.", "Das ist Renate Koehler."),
        ("Who owns it?", "Sean Gallagher", "Captain Gallagher", "that's Sean's brother, Michael Gallagher"),
        (
            "Which vitamin do they inject?",
            "vitamin K",
            "They inject vitamin K.",
            "It's not vitamin K they inject, it's vitamin D.",
        ),
        ("opción correcta: a) en mayo b) en enero", "a", "la a, en enero se mueren de frío", "la b, claro"),
        (
            "封面用哪种纸：A铜版 B牛皮 C宣纸？",
            "B",
            "牛皮纸那个",
            "宣纸那个",
        ),
        (
            "Какой масштаб?",
            "1:84 000",
            "масштаб 1:84000",
            "1:42 000",
        ),
        ("What is it?", "l'or", "c'est l'or", "l'argent"),
        ("Wo liegt das?", "Berlin", "In Berlin, nicht in Bonn.", "In Bonn, nicht in Berlin."),
        ("Où est-ce ?", "à Lyon", "à Lyon, pas à Paris", "à Paris, pas à Lyon"),
        ("Quem foi?", "Rui", "o Rui, não o Zé", "o Zé, não o Rui"),
        ("哪天？", "周三", "周三，不是周四", "周四，不是周三"),
        ("من؟", "سامي", "سامي، وليس كريم", "كريم، وليس سامي"),
        ("È aperto?", "sì", "Certo, sempre.", "Certo che no!"),
        ("Открыто?", "да", "Конечно, да", "Конечно, нет"),
        ("When?", "before 5 pm", "before 5 pm", "after 5 pm"),
        ("By how much?", "Prices fell by 5 %.", "Prices fell by 5 %.", "Prices rose by 5 %."),
        ("Wie viele?", "höchstens 5 Bücher", "höchstens 5 Bücher", "mindestens 5 Bücher"),
        ("多少？", "最多五本", "最多五本", "至少五本"),
        ("Who pays?", "the employer", "the employer does", "the employee does"),
        ("How deep?", "7 m", "I could not find the exact figure, but it is about 7 m.", "It is about 9 m."),
        ("首都は？", "東京", "東京です", "わかりません"),
        ("Was kostet es?", "5 Euro", "fünf Euro", "Das kann ich leider nicht sagen."),
        ("Do I need a visa?", "No, EU citizens do not", "EU citizens need no visa.", "Yes, everybody does."),
    ],
)
def test_values_names_and_labels_are_read_as_people_write_them(question, reference, right, wrong):
    for reply, is_right in ((right, True), (wrong, False)):
        score = correctness(reply, reference, question)
        assert score is not None and (score >= 0.5) == is_right, reply
