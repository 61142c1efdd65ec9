"""From a spreadsheet and a folder of documents to a verdict, and to a workflow that replays it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentlab.cli.parser import main
from agentlab.data.datasets import load_dataset
from support.office import paragraph, write_docx, write_pdf
from support.workflow_replays import check_that_the_workflow_replays

SCRIPT = "loop: true\nreplies: ['{}']\n"
TABLE = "Nr;Frage;Antwort;Dokument\n1;Wie viele Bücher?;Acht.;loans\n2;Wann öffnet ihr?;Um zehn.;hours.html\n3;;;\n"


@pytest.fixture
def folder(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "help" / "sub").mkdir(parents=True)
    (tmp_path / "help" / "loans.md").write_text("# Loans\nEight books.")
    (tmp_path / "help" / "hours.html").write_text("<title>Hours</title><p>We open at ten.")
    write_docx(tmp_path / "help" / "fees.docx", paragraph("Fees are twenty cents."))
    write_pdf(tmp_path / "help" / "sub" / "rooms.pdf", [["Rooms seat six."]])
    (tmp_path / "questions.csv").write_bytes(TABLE.encode("cp1252"))
    for name in ("eight", "ten"):
        (tmp_path / f"{name}.yaml").write_text(SCRIPT.format(name.title()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTLAB_EMBEDDER", "hashing/hashing-64")
    return tmp_path


def flows(path: str) -> list[str]:
    return list(json.loads(Path(path, "summary.json").read_text())["flows"])


def test_init_makes_a_data_set_and_its_next_command_runs(folder, monkeypatch, capsys):
    arguments = ["--questions", "questions.csv", "--documents", "help", "--model", f"scripted/{folder}/eight.yaml"]
    assert main(["init", "my-evals", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "questions.csv: 2 questions from 3 rows; encoding cp1252, if letters" in printed
    assert "separated by semicolons" in printed
    assert "user         <- Frage" in printed and "not taken, no question: 1 (row 4)" in printed
    assert "help: 4 documents (1 .docx, 1 .html, 1 .md, 1 .pdf)" in printed
    assert "next: cd my-evals && agentlab run\n" in printed
    monkeypatch.chdir(folder / "my-evals")
    (dataset,) = Path("datasets").iterdir()
    loaded = load_dataset(dataset)
    assert [each.turns[0].relevant_doc_ids for each in loaded.conversations] == [["loans.md"], ["hours.html"]]
    assert {document.doc_id for document in loaded.documents} == {
        "loans.md",
        "hours.html",
        "fees.docx",
        "sub/rooms.pdf",
    }
    assert main(["run", "--out", "results/a"]) == 0
    assert flows("results/a") == ["rag_only", "tools", "my_flow"]
    ignored = Path(".gitignore").read_text().split()
    assert {"/results/", "/llm_api_keys.json"} <= set(ignored)


def test_run_takes_questions_and_documents_without_a_project(folder, capsys):
    arguments = ["--questions", "questions.csv", "--documents", "help", "--flow", "rag_only"]
    for out in ("results/a", "results/b"):
        assert main(["run", *arguments, "--model", "scripted/eight.yaml", "--out", out]) == 0
    assert main(["compare", "results/a", "results/b"]) == 0
    assert main(["show", "results/a", "1"]) == 0
    assert "Acht." in capsys.readouterr().out
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["eight.yaml", "help", "home", "questions.csv", "results", "ten.yaml"]
    )


def test_questions_without_documents_run_on_flows_that_need_none(folder, monkeypatch, capsys):
    model = ["--model", f"scripted/{folder}/eight.yaml"]
    assert main(["init", "new", "--questions", "questions.csv", *model]) == 0
    assert main(["run", "--questions", "questions.csv", *model]) == 1
    assert "needs documents, but the data set 'questions' has none" in capsys.readouterr().err
    monkeypatch.chdir(folder / "new")
    assert main(["run", "--out", "results/a"]) == 0
    assert flows("results/a") == ["chatbox", "my_flow"]


@pytest.mark.parametrize(
    "arguments, problem",
    [
        (["--documents", "help"], "need --questions FILE"),
        (["--column", "user=Frage"], "need --questions FILE"),
        (["--questions", "gone.csv"], "gone.csv: cannot be read"),
        (["--questions", "questions.csv", "--column", "user=Farge"], "Did you mean 'Frage'?"),
        (["--questions", "questions.csv", "--sheet", "One"], "it has no sheets"),
        (["--questions", "questions.csv", "--documents", "gone"], "gone: cannot be read"),
    ],
)
@pytest.mark.parametrize("command", [["init", "new"], ["run"]])
def test_a_mistake_is_one_line_and_writes_nothing(folder, capsys, command, arguments, problem):
    assert main([*command, *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line and not Path("new").exists() and not Path("results").exists()


def test_the_workflow_of_init_replays_calls_of_a_compatible_server(folder, monkeypatch, capsys):
    arguments = ["--questions", "questions.csv", "--documents", "help", "--model", "openai/served"]
    assert main(["init", "new", *arguments]) == 0
    monkeypatch.chdir(folder / "new")
    check_that_the_workflow_replays(monkeypatch, capsys)
