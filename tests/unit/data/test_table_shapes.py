"""Tables of questions in the shapes of other programs, languages and layouts have the right columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentlab.data.questions import read_questions
from support.question_tables import columns, turns_of


def json_lines(*rows: Mapping[str, Any]) -> str:
    return "\n".join(json.dumps(row) for row in rows)


HOW, LONG = ("How many?", ["Eight"]), ("How long?", ["3 weeks"])
BOTH = [[HOW], [LONG]]
SQUAD = {"id": "a", "question": "How many?", "answers": [{"text": "Eight", "answer_start": 0}], "is_impossible": False}
ANSWERS = {"user": "question", "answers": "answer"}


def messages(
    *texts: str, keys: tuple[str, str, str, str] = ("role", "content", "user", "assistant")
) -> list[dict[str, str]]:
    speaker, text, first, second = keys
    return [{speaker: (first, second)[number % 2], text: each} for number, each in enumerate(texts)]


SHAPES: dict[str, tuple[str, str | bytes, dict[str, str], list[Any]]] = {
    "Excel, German": (
        "a.csv",
        (
            "Nr;Frage;Antwort;Thema\r\n007;Wie viele Bücher?;8 Bücher höchstens\r\n008;Was kostet es?;1,50 €;Geld\r\n"
        ).encode("cp1252"),
        {"user": "Frage", "answers": "Antwort", "id": "Nr", "category": "Thema"},
        [[("Wie viele Bücher?", ["8 Bücher höchstens"])], [("Was kostet es?", ["1,50 €"])]],
    ),
    "Excel, Unicode text": (
        "a.txt",
        "Question\tAnswer\r\nHow many?\tEight\r\nHow long?\t3 weeks\r\n".encode("utf-16"),
        {"user": "Question", "answers": "Answer"},
        BOTH,
    ),
    "Excel, sep line": ("a.csv", "sep=;\nquestion;answer\nHow many?;Eight\nHow long?;3 weeks\n", ANSWERS, BOTH),
    "Google Sheets": (
        "a.csv",
        "\ufeffTimestamp,User question,Expected answer\r\n1/3/2024,How many?,Eight\r\n1/3/2024,How long?,3 weeks\r\n",
        {"user": "User question", "answers": "Expected answer"},
        BOTH,
    ),
    "LibreOffice": (
        "a.tsv",
        'Question\tAnswer\tLanguage\n"What is a ""loan""?"\tA book\ten\n',
        {"user": "Question", "answers": "Answer", "language": "Language"},
        [[('What is a "loan"?', ["A book"])]],
    ),
    "Numbers": (
        "a.csv",
        "Table 1\n\nQuestion;Answer\nHow many?;Eight\nHow long?;3 weeks\n",
        {"user": "Question", "answers": "Answer"},
        BOTH,
    ),
    "Japanese": (
        "a.csv",
        "質問,回答\n本は何冊ですか?,8冊までです\n".encode("cp932"),
        {"user": "質問", "answers": "回答"},
        [[("本は何冊ですか?", ["8冊までです"])]],
    ),
    "French": (
        "a.csv",
        "Question;Réponse attendue;Catégorie\nCombien ?;Huit;Prêt\n".encode("cp1252"),
        {"user": "Question", "answers": "Réponse attendue", "category": "Catégorie"},
        [[("Combien ?", ["Huit"])]],
    ),
    "Zendesk": (
        "a.csv",
        "Ticket ID,Subject,Description,Status,Tags,Solution\n1,A,How many?,open,loan,Eight\n"
        "2,B,How long?,open,loan,3 weeks\n",
        {"conversation": "Ticket ID", "user": "Description", "answers": "Solution", "category": "Tags"},
        BOTH,
    ),
    "Intercom": (
        "a.csv",
        "conversation_id,author_type,body,created_at\n"
        "1,user,<p>Hi</p>,1\n1,user,<p>How many?</p>,2\n1,admin,<p>Eight</p>,3\n"
        "1,user,How long?,4\n1,bot,<b>3 weeks</b>,5\n2,user,Price?,6\n",
        {"conversation": "conversation_id", "speaker": "author_type", "user": "body"},
        [[("Hi\nHow many?", ["Eight"]), LONG], [("Price?", [])]],
    ),
    "RAGAS": (
        "a.jsonl",
        json_lines(
            {"user_input": "How many?", "retrieved_contexts": ["a"], "response": "Nine", "reference": "Eight"},
            {"user_input": "How long?", "retrieved_contexts": ["b"], "response": "Nine", "reference": "3 weeks"},
        ),
        {"user": "user_input", "answers": "reference"},
        BOTH,
    ),
    "RAGAS, older": (
        "a.csv",
        "question,answer,contexts,ground_truth\nHow many?,Nine,\"['a', 'b']\",Eight\nHow long?,Nine,['a'],3 weeks\n",
        {"user": "question", "answers": "ground_truth"},
        BOTH,
    ),
    "LangSmith": (
        "a.jsonl",
        json_lines(
            {"inputs": {"question": "How many?"}, "outputs": {"answer": "Eight"}},
            {"inputs": {"question": "How long?"}, "outputs": {"answer": "3 weeks"}},
        ),
        {"user": "inputs.question", "answers": "outputs.answer"},
        BOTH,
    ),
    "LangSmith, CSV": (
        "a.csv",
        'id,inputs,outputs\na,"{""question"": ""How many?""}","{""answer"": ""Eight""}"\n',
        {"id": "id", "user": "inputs.question", "answers": "outputs.answer"},
        [[HOW]],
    ),
    "promptfoo": (
        "a.json",
        json.dumps(
            [
                {
                    "vars": {"question": "How many?"},
                    "assert": [{"type": "contains", "value": "Eight"}, {"type": "llm-rubric", "value": "is polite"}],
                }
            ]
        ),
        {"user": "vars.question", "answers": "assert"},
        [[HOW]],
    ),
    "promptfoo, CSV": (
        "a.csv",
        "question,__expected\nHow many?,contains: Eight\nHow long?,3 weeks\n",
        {"user": "question", "answers": "__expected"},
        BOTH,
    ),
    "Hugging Face": (
        "a.jsonl",
        json_lines(
            {"id": "a", "context": "c", "question": "How many?", "answers": {"text": ["Eight", "8"], "more": []}},
            {"id": "b", "context": "c", "question": "Who?", "answers": {"text": [], "start": []}},
        ),
        {"id": "id", "user": "question", "answers": "answers"},
        [[("How many?", ["Eight", "8"])], [("Who?", [])]],
    ),
    "Hugging Face, rows": (
        "a.json",
        json.dumps(
            {"features": [{"name": "q"}], "rows": [{"row_idx": 0, "row": {"question": "How many?", "answer": "Eight"}}]}
        ),
        {"user": "row.question", "answers": "row.answer"},
        [[HOW]],
    ),
    "chat messages": (
        "a.jsonl",
        json_lines(
            {
                "messages": [
                    {"role": "system", "content": "Be kind"},
                    *messages("How many?", "Eight", "How long?", "3 weeks"),
                ]
            }
        ),
        {"user": "messages"},
        [[HOW, LONG]],
    ),
    "ShareGPT": (
        "a.json",
        json.dumps(
            [{"id": "c", "conversations": messages("How many?", "Eight", keys=("from", "value", "human", "gpt"))}]
        ),
        {"id": "id", "user": "conversations"},
        [[HOW]],
    ),
    "OpenAI evals": (
        "a.jsonl",
        json_lines(
            {"input": messages("How many?"), "ideal": ["Eight"]}, {"input": messages("How long?"), "ideal": "3 weeks"}
        ),
        {"user": "input", "answers": "ideal"},
        BOTH,
    ),
    "SQuAD": (
        "a.json",
        json.dumps({"data": [{"title": "t", "paragraphs": [{"context": "c", "qas": [SQUAD, SQUAD | {"id": "b"}]}]}]}),
        {"id": "id", "user": "question", "answers": "answers"},
        [[HOW], [HOW]],
    ),
    "MT-bench": (
        "a.jsonl",
        json_lines({"question_id": 1, "turns": ["How many?", "How long?"], "reference": ["Eight", "3 weeks"]}),
        {"id": "question_id", "user": "turns", "answers": "reference"},
        [[HOW, LONG]],
    ),
    "Langfuse": (
        "a.json",
        json.dumps([{"id": "a", "input": {"question": "How many?"}, "expectedOutput": {"answer": "Eight"}}]),
        {"id": "id", "user": "input.question", "answers": "expectedOutput.answer"},
        [[HOW]],
    ),
    "rows of a conversation": (
        "a.csv",
        "Conversation,Turn,Question,Answer\nA,2,How long?,3 weeks\n,1,How many?,Eight\nB,1,How many?,Eight\n",
        {"conversation": "Conversation", "turn": "Turn", "user": "Question", "answers": "Answer"},
        [[HOW, LONG], [HOW]],
    ),
    "turns alone": (
        "a.csv",
        "Turn,Question,Answer\n1,How many?,Eight\n2,How long?,3 weeks\n1,How many?,Eight\n",
        {"turn": "Turn", "user": "Question", "answers": "Answer"},
        [[HOW, LONG], [HOW]],
    ),
    "Google Forms": (
        "a.csv",
        "Timestamp,Email Address,What is your question?,What answer do you expect?\n"
        "1/3/2024,a@x.org,How many?,Eight\n1/3/2024,b@x.org,How long?,3 weeks\n",
        {"user": "What is your question?", "answers": "What answer do you expect?"},
        BOTH,
    ),
    "Anki": (
        "a.txt",
        "#separator:tab\n#html:true\nBasic\tHow <b>many</b>?\tEight<br>\t\nBasic\tHow long?\t3 weeks\t\n",
        {"user": "column 2", "answers": "column 3"},
        BOTH,
    ),
    "Label Studio": (
        "a.json",
        json.dumps(
            [
                {
                    "data": {"question": "How many?"},
                    "annotations": [{"result": [{"type": "textarea", "value": {"text": ["Eight"]}}]}],
                }
            ]
        ),
        {"user": "data.question", "answers": "annotations"},
        [[HOW]],
    ),
    "promptfoo, with a description and other checks": (
        "a.json",
        json.dumps([{"description": "a case", "vars": {"question": "How many?"}, "assert": ["contains: Eight"]}]),
        {"user": "vars.question", "answers": "assert"},
        [[HOW]],
    ),
    "promptfoo, CSV with other checks": (
        "a.csv",
        "question,__expected1,__expected2\nHow many?,contains: Eight,llm-rubric: is polite\n",
        {"user": "question", "answers": "__expected1, __expected2"},
        [[HOW]],
    ),
    "help pages": (
        "a.csv",
        "Article title,Article body,Status\nHow many?,<p>Eight</p>,open\nHow long?,<p>3 weeks</p>,open\n",
        {"user": "Article title", "answers": "Article body"},
        BOTH,
    ),
    "choices by number": (
        "a.csv",
        "Question - max 9 words,Answer 1 - short,Answer 2 - short,Correct answer(s)\n"
        "How many?,Six,Eight,2\nHow long?,3 weeks,4 weeks,1\n",
        {"user": "Question - max 9 words", "answers": "Correct answer(s)"},
        BOTH,
    ),
    "a column of alternatives": (
        "a.csv",
        "Nr.,Question,Expected answer,Alternative answers\n7,How many?,Eight,8\n",
        {"id": "Nr.", "user": "Question", "answers": "Expected answer, Alternative answers"},
        [[("How many?", ["Eight", "8"])]],
    ),
    "pandas, by column": (
        "a.json",
        json.dumps({"question": {"0": "How many?", "1": "How long?"}, "answer": {"0": "Eight", "1": "3 weeks"}}),
        ANSWERS,
        BOTH,
    ),
    "pandas, split": (
        "a.json",
        json.dumps({"columns": ["question", "answer"], "data": [["How many?", "Eight"], ["How long?", "3 weeks"]]}),
        ANSWERS,
        BOTH,
    ),
    "quoted texts": (
        "a.csv",
        'input,expected_output\n"{""query"": ""How many?""}","""Eight"""\n',
        {"user": "input.query", "answers": "expected_output"},
        [[HOW]],
    ),
    "no header": ("a.csv", "How many?,Eight\nHow long?,3 weeks\n", {"user": "column 1", "answers": "column 2"}, BOTH),
    "one column": ("a.txt", "How many?\nHow long?\n", {"user": "column 1"}, [[("How many?", [])], [("How long?", [])]]),
    "unknown names": (
        "a.csv",
        "foo,bar\nHow many?,Eight\nHow long?,3 weeks\n",
        {"user": "foo", "answers": "bar"},
        BOTH,
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_of_another_program_has_the_right_columns(tmp_path: Path, shape: str) -> None:
    name, content, roles, conversations = SHAPES[shape]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    made = read_questions(tmp_path / name)
    assert (columns(made), turns_of(made)) == (roles, conversations)
