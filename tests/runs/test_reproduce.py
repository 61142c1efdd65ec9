"""`agentlab reproduce`: published figures compared with their answers, for public and made packs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agentlab.cli.parser import main
from agentlab.evals.published.reproduce import analyse_significance, reproduce
from support.predictions import PACKS, needs_packs, row, write_questions, write_rows

NAMES = [f"q{n}" for n in range(20)]


def figure(metric: str, value: float, grader: str, system: str = "good", **more) -> dict:
    fields = {"system": system, "metric": metric, "value": value, "decimals": 2, "grader": grader}
    return {"category": "all", "scale": 1, **fields, **more}


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    made = write_questions(tmp_path / "pack", {key: ["forty two"] for key in NAMES}, category="numbers")
    right = {"good": 15, "bad": 5}
    rows = [
        row(system, name, "forty two" if n < right[system] else "forty", published={"judge": int(n < right[system])})
        for system in right
        for n, name in enumerate(NAMES)
    ]
    write_rows(made / "predictions.jsonl", rows)
    return made


def publish(pack: Path, *figures: dict) -> Path:
    (pack / "published.json").write_text(json.dumps({"pack": "made", "figures": list(figures)}))
    return pack


def test_a_figure_is_reproduced_differs_or_cannot_be_had(pack, capsys):
    publish(
        pack,
        figure("em", 0.75, "squad"),
        figure("judge", 75.0, "stored", scale=100, decimals=1),
        figure("f1", 0.92, "squad", category="numbers"),
        figure("em", 0.31, "aliases", category="numbers"),
        figure("em", 0.5, "bleurt"),
        figure("bleu", 0.5, "stored"),
        figure("RougeL", 0.5, "squad"),
    )
    assert main(["reproduce", str(pack)]) == 0
    output = capsys.readouterr().out
    assert output.rstrip().splitlines()[-1] == "reproduced 3 of 7 figures"
    whys = {figure.why for figure in reproduce(pack).figures if figure.verdict == "not reproducible"}
    assert whys == {
        "no grader accepts aliases for em of numbers",
        "unknown grader 'bleurt'; there are squad, hotpotqa, drop, locomo, rouge, bleu1",
        "bleu is missing in some answers",
        "squad has no metric RougeL",
    }


def test_differing_figure_names_its_difference_and_grader(pack, capsys):
    publish(pack, figure("em", 0.8, "squad"), figure("f1", 0.92, "locomo"))
    assert main(["reproduce", str(pack)]) == 2
    output = capsys.readouterr().out
    assert "differs: -0.0500 by squad" in output
    assert output.rstrip().splitlines()[-1] == "reproduced 1 of 2 figures"
    other = reproduce(publish(pack, figure("f1", 0.5, "squad"))).figures[0]
    assert (other.verdict, other.why) == ("differs", "+0.4167 by squad")


def test_the_grader_that_would_give_a_differing_figure_is_named(pack):
    rows = [row("good", name, "dog dog") for name in NAMES]
    write_questions(pack, {key: ["dog"] for key in NAMES})
    write_rows(pack / "predictions.jsonl", rows)
    assert "drop and locomo would reproduce it" in reproduce(publish(pack, figure("f1", 1.0, "squad"))).figures[0].why


def test_aliases_are_counted_where_the_data_have_them(pack):
    answers = {key: ["forty two"] for key in NAMES}
    write_questions(pack, answers, category="musique", aliases=["forty"])
    publish(pack, figure("em", 1.0, "aliases", category="musique"), figure("em", 0.75, "squad", category="musique"))
    assert [figure.verdict for figure in reproduce(pack).figures] == ["reproduced", "reproduced"]
    write_questions(pack, answers, category="musique")
    first = reproduce(pack).figures[0]
    assert (first.verdict, "aliases" in first.why) == ("not reproducible", True)


def test_differences_come_with_intervals(pack, capsys, tmp_path):
    publish(pack, figure("em", 0.75, "squad"), figure("em", 0.25, "squad", system="bad"))
    assert main(["reproduce", str(pack), "--markdown", str(tmp_path / "page.md"), "-o", str(tmp_path / "run")]) == 0
    assert "| em, all: good | 0.75 | 0.7500 | reproduced | squad | 20 |" in (tmp_path / "page.md").read_text()
    assert main(["compare", str(tmp_path / "run")]) == 0
    (difference,) = analyse_significance(reproduce(pack).pack)
    assert difference.judgement.difference == -0.5
    assert difference.judgement.ci95[1] < 0


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "there is no published.json"),
        ("{", "published.json: cannot be read"),
        ("[]", "published.json: cannot be read: Expected object, got array"),
        ('{"figures": [{"system": "good"}]}', "Object missing required field metric - at $.figures[0]"),
        ('{"figures": [{"system": "good", "value": NaN}]}', "NaN is not JSON"),
        ({"decimals": -1}, "published.json: cannot be read: Expected int >= 0 - at $.figures[0].decimals"),
        ({"decimals": 400}, "published.json: cannot be read: Expected int <= 20 - at $.figures[0].decimals"),
    ],
)
def test_a_pack_that_cannot_be_read_is_one_line_and_leaves_nothing(pack, content, text, capsys, tmp_path):
    if isinstance(content, dict):
        publish(pack, figure("em", 0.75, "squad", **content))
    elif content is not None:
        (pack / "published.json").write_text(content)
    assert main(["reproduce", str(pack), "-o", str(tmp_path / "run")]) == 1
    printed = capsys.readouterr().err
    assert text in printed
    assert len(printed.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("what", "name"), [("system", "goood"), ("category", "number")])
def test_a_figure_of_what_is_not_in_the_pack_is_not_reproduced(pack, capsys, what, name):
    publish(pack, figure("em", 0.75, "squad", **{what: name}))
    assert main(["reproduce", str(pack)]) == 2, "answers are missing, all of them"
    output = " ".join(capsys.readouterr().out.split())
    assert "incomplete" in output and f"unknown {what} of this pack" in output
    assert output.endswith("reproduced 0 of 1 figures")


def test_differing_figures_are_listed_again_at_the_end(pack, capsys):
    publish(pack, figure("em", 0.75, "squad"), figure("em", 0.5, "squad", "bad"), figure("em", 0.7, "musique"))
    assert main(["reproduce", str(pack)]) == 2
    *_, differs, cannot, last = capsys.readouterr().out.rstrip().splitlines()[-3:]
    assert differs.startswith("em, all: bad: 0.50 published, 0.2500 ours, differs")
    assert cannot.startswith("not reproducible: 1 figure,")
    assert last == "reproduced 1 of 3 figures"


def test_a_figure_of_answers_that_are_missing_is_not_reproduced(pack, capsys):
    """A figure may name its number of answers."""
    rows = [json.loads(line) for line in (pack / "predictions.jsonl").read_text().splitlines()]
    write_rows(pack / "predictions.jsonl", [each for each in rows if each["conversation"] < "q15"])
    there = sum(name < "q15" for name in NAMES)
    right = sum(
        each["answer"] == "forty two" for each in rows if each["conversation"] < "q15" and each["system"] == "good"
    )
    value = {"value": right / there, "decimals": 4}
    publish(pack, figure("em", grader="squad", **value))
    assert main(["reproduce", str(pack)]) == 2
    captured = capsys.readouterr()
    assert f"note: good answered {there} of 20 turns" in captured.err
    assert f"{there} of 20" in captured.out
    assert captured.out.rstrip().splitlines()[-1] == "reproduced 0 of 1 figures"
    publish(pack, figure("em", grader="squad", n=there, **value))
    assert main(["reproduce", str(pack)]) == 0
    assert capsys.readouterr().out.rstrip().splitlines()[-1] == "reproduced 1 of 1 figures"
    assert main(["reproduce", str(publish(pack, figure("em", grader="squad", n=there - 1, **value)))]) == 2


def test_a_category_that_a_system_did_not_answer_is_missing(pack, capsys):
    conversations = [json.loads(line) for line in (pack / "conversations.jsonl").read_text().splitlines()]
    write_rows(
        pack / "conversations.jsonl",
        [*conversations, {**conversations[0], "id": "more", "metadata": {"category": "letters"}}],
    )
    publish(pack, figure("em", 0.75, "squad", category="letters"), figure("em", 0.75, "squad", category="numbers"))
    assert main(["reproduce", str(pack)]) == 2
    output = capsys.readouterr().out
    assert "0 of 1" in output
    assert output.rstrip().splitlines()[-1] == "reproduced 1 of 2 figures"


@needs_packs
@pytest.mark.parametrize(("name", "figures"), [("adarague", (60, 6)), ("locomo", (25, 0)), ("mtrag_human", (0, 0))])
def test_the_public_packs_come_out_again(name, figures):
    report = reproduce(PACKS / name)
    verdicts = [figure.verdict for figure in report.figures]
    assert (verdicts.count("reproduced"), verdicts.count("not reproducible")) == figures
    assert report.agrees


@needs_packs
def test_a_pack_that_was_tampered_with_is_found_out(tmp_path):
    shutil.copytree(PACKS / "locomo", tmp_path / "locomo")
    file = tmp_path / "locomo" / "published.json"
    file.chmod(0o644)
    file.write_text(file.read_text().replace("75.78", "75.87"))
    assert main(["reproduce", str(tmp_path / "locomo")]) == 2
