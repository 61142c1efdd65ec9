"""Tables in encodings before Unicode: the reader decodes them and names its guess with a hint."""

# ruff: noqa: RUF001
from __future__ import annotations

from pathlib import Path

import pytest

from agentlab.data.questions import read_questions

GERMAN = "Wo ist die Küche?", "Im zweiten Geschoß"
QUOTED = "What’s “it”?", "It costs 5 £"
WRITTEN = [
    ("mac_roman", "mac_roman", *GERMAN),
    ("mac_roman", "mac_roman", *QUOTED),
    ("mac_roman", "mac_roman", "Où est la clé ?", "Derrière l’hôtel à côté"),
    ("mac_roman", "mac_roman", "¿Dónde está el niño?", "En el jardín"),
    ("mac_roman", "mac_roman", "How much?", "5 €"),
    ("cp1252", "cp1252", *GERMAN),
    ("cp1252", "cp1252", *QUOTED),
    ("cp1252", "cp1252", "À Paris ?", "L’été, § 4–5"),
    ("cp1252", "cp1252", "Onde está a mãe?", "Não está em São Paulo"),
    ("iso8859_15", "iso8859_15", "Combien ?", "5 € à côté"),
    ("cp850", "cp850", "Où est la clé ?", "Derrière l'hôtel à côté"),
    ("iso8859_2", "iso8859_2", "Gdzie jest łazienka?", "Kto śpi, na piętrze"),
    ("iso8859_2", "iso8859_2", "Kde je škola?", "Vedle nádraží, přijde zítra"),
    ("cp1250", "cp1250", "Gdzie jest łazienka?", "Kto śpi, na piętrze"),
    ("cp1250", "cp1250", "Kde je škola?", "Vedle nádraží, přijde zítra"),
    ("cp1255", "cp1255", "מה שמך?", "דוד"),
    ("iso8859_8", "cp1255", "מתי נפתחת החנות?", "בשעה שמונה בבוקר"),
    ("cp1251", "cp1251", "где вода", "там"),
    ("cp1256", "cp1256", "أين المدرسة؟", "بجانب المحطة"),
    ("cp932", "cp932", "学校はどこですか", "駅の隣です"),
]


@pytest.mark.parametrize(("encoding", "named", "question", "answer"), WRITTEN)
def test_a_short_table_is_read_and_its_encoding_named(tmp_path: Path, encoding, named, question, answer) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(f'question,answer\n"{question}","{answer}"\n'.encode(encoding))
    made = read_questions(file)
    ((turn,),) = (each.turns for each in made.conversations)
    assert (turn.user, turn.reference_answers) == (question, [answer])
    assert f"encoding {named}, if letters are wrong save it as UTF-8" in made.lines[0]


def test_a_table_in_utf_8_says_nothing_of_its_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("question,answer\nWo ist die Küche?,Im zweiten Geschoß\n", encoding="utf-8")
    assert "encoding" not in " ".join(read_questions(tmp_path / "a.csv").lines)
