"""Measures precision and recall of deletion replay for stale facts that the script plants.

    python evals/bench/fact_worth.py [--reader first|words|last | --model MODEL] [--limit N] [--keep DIR]

Each conversation of `datasets/memory` states, corrects and asks for facts. Its memory here holds every stated fact, as
if corrections were added and nothing was removed: each corrected fact is planted. The bench asks every question that a
fact valid at the end answers. Scripted readers replace the model, so that the result does not depend on one model:

    first    of the facts on the same matter as the nearest fact (half of the words), the one stated first: it always
             believes the old fact
    last     of the same facts, the one stated last: a stale fact never does harm
    words    the fact that shares most words with the question; with a tie, the one stated first: it sometimes believes
             the old fact, and other facts mislead it, too

An answer is right if it contains all words of a reference. The bench deletes each fact that was read in turn. Three
methods are compared with the planted facts, also with those that were never read:

    misled       worth below 0: an answer was better without the fact
    alike        a newer fact is similar, and the same question read it, without replay and questions
    delete       the proposal of `evals/bench/worth.py`: misled, or superseded by a newer fact

The threshold of cosine similarity is chosen on one half of the conversations (highest F1; with a tie, the strictest)
and measured on the other half, and the reverse; "held out" combines both measurements. Two variants follow: without
the names in questions ("whatever is asked"), and without the content of the newer fact ("is held").
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pandas as pd
import worth
from worth import fact_worth

import agentlab as al
from agentlab.core.messages import Completion, Message, Request, Usage
from agentlab.data.conversations import Conversation

FOLDER = Path(__file__).parents[2] / "datasets" / "memory"
PLANTED = "planted"
GRID = (0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)
_FACT_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d), user: (.*?)(?=; \d{4}-\d\d-\d\d \d\d:\d\d, user: |$)", re.DOTALL)

SCORER = '''"""All words of a reference are in the reply."""

import re

from agentlab.evals.scorers import Score


def metrics(turn):
    return ("stated",) if turn.reference_answers else ()


def score(turn, outcome):
    def words(text):
        return set(re.findall(r"[a-z0-9]+", text.lower()))

    stated = words(outcome.reply.text)
    return {"stated": Score(value=float(any(words(answer) <= stated for answer in turn.reference_answers)), reason="")}
'''


class Reader:
    """See above; `name` is what the recordings call it. The spec names it `__main__:READERS/<name>`."""

    parallel = 8

    def __init__(self, name: str) -> None:
        self.name = name

    async def complete(self, request: Request, emit: object) -> Completion:
        prompt = request.messages[-1].text
        context, _, question = prompt.partition("]\n")
        facts = [(match[1], match[2]) for match in _FACT_LINE.finditer(context)]
        if self.name == "words":
            shared = words(question)
            most = max((len(words(text) & shared) for _, text in facts), default=0)
            facts = [fact for fact in facts if len(words(fact[1]) & shared) == most]
        elif facts:
            facts = [fact for fact in facts if same_matter(fact[1], facts[0][1])]
        believed = max if self.name == "last" else min
        text = believed(facts, default=("", "-"))[1]
        usage = Usage(input_tokens=len(prompt.split()), output_tokens=len(text.split()), cached_tokens=0)
        return Completion(message=Message(role="agent", text=text), usage=usage)

    async def close(self) -> None:
        pass


READERS = SimpleNamespace(connect=Reader)


def same_matter(one: str, other: str) -> bool:
    min_words = min(len(words(one)), len(words(other)))
    return len(words(one) & words(other)) * 2 >= max(1, min_words)


def words(text: str) -> set[str]:
    """Return the words that carry content, by their length, and numbers."""
    return set(re.findall(r"[0-9]+|[a-z]{4,}", text.lower()))


def memories(limit: int | None) -> Iterator[tuple[str, list[tuple[str, str, str]], list[dict[str, Any]]]]:
    """By conversation: its id, every fact it ever told as (id, date, text), those corrected since called planted, and
    the questions that what is in force in the end answers."""
    for line in (FOLDER / "conversations.jsonl").read_text(encoding="utf-8").splitlines()[:limit]:
        talk = Conversation.model_validate(json.loads(line))
        dates: dict[str, str] = {}
        replaced: set[str | None] = set()
        for number, turn in enumerate(talk.turns):
            for write in turn.expected_memory or ():
                if write.op != "none" and write.content is not None:
                    dates[write.content] = f"{turn.session} {number // 60 + 8:02}:{number % 60:02}"
                    replaced.add(write.replaces)
        facts = [
            (f"{talk.id}-{PLANTED if text in replaced else 'fact'}-{number}", date, text)
            for number, (text, date) in enumerate(dates.items())
        ]
        questions = [
            {"id": f"{talk.id}-{number:02}", "question": turn.user, "reference_answers": turn.reference_answers}
            for number, turn in enumerate(talk.turns)
            if turn.reference_answers and not replaced & set(turn.metadata.get("evidence", []))
        ]
        if questions:
            yield talk.id, facts, questions


def write(folder: Path, limit: int | None) -> tuple[int, set[str]]:
    """The memory set; how many questions it has, and the planted facts."""
    folder.mkdir(parents=True)
    sessions, questions, planted = [], [], set()
    for name, facts, asking in memories(limit):
        for number, (fact, date, text) in enumerate(facts):
            session = {"conversation_id": name, "session_id": f"{name}-s{number}", "date": date, "speakers": ["user"]}
            sessions.append(session | {"turns": [{"id": fact, "speaker": "user", "text": text}]})
            planted |= {fact} if PLANTED in fact else set()
        for row in asking:
            row |= {"conversation_id": name, "category": "stale", "unanswerable": False, "evidence_ids": []}
            questions.append(row | {"source": "datasets/memory", "licence": "Apache-2.0"})
    for file, rows in (("sessions", sessions), ("questions", questions)):
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return len(questions), planted


Counts = tuple[int, int, int]
"""Counts of facts: both detected and planted, all detected, all planted."""


def count(proposed: pd.Series, worth: pd.DataFrame, planted: set[str]) -> Counts:
    return len(planted & set(worth.loc[proposed, "fact"])), int(proposed.sum()), len(planted)


def rates(*counts: Counts) -> str:
    hits, proposed, planted = map(sum, zip(*counts, strict=True))
    precision = f"precision {hits / max(1, proposed):.2f} ({hits} of {proposed})"
    return f"{precision}, recall {hits / planted:.2f} ({hits} of {planted})"


def deleted(worth: pd.DataFrame, alike: float) -> pd.Series:
    return (worth["worth"] < 0) | (worth["alike"] >= alike)


def only_alike(worth: pd.DataFrame, alike: float) -> pd.Series:
    return worth["alike"] >= alike


Half = tuple[pd.DataFrame, set[str]]


def best_on(half: Half, rule: Callable[..., pd.Series]) -> float:
    def f1(alike: float) -> float:
        hits, proposed, planted = count(rule(half[0], alike), *half)
        return round(2 * hits / (proposed + planted), 9)

    return max(GRID, key=lambda alike: (f1(alike), alike))


def held_out(rule: Callable[..., pd.Series], worth: pd.DataFrame, planted: set[str]) -> str:
    def half(odd: int) -> Half:
        mine = worth["fact"].str[7:10].astype(int) % 2 == odd
        return worth[mine], {fact for fact in planted if int(fact[7:10]) % 2 == odd}

    one, other = half(0), half(1)
    chosen = [best_on(other, rule), best_on(one, rule)]
    measured = [count(rule(of[0], best), *of) for of, best in zip((one, other), chosen, strict=True)]
    return f"{rates(*measured)}; thresholds {chosen[0]} and {chosen[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, help="conversations of the data set")
    parser.add_argument("--reader", choices=["first", "words", "last"], default="first")
    parser.add_argument("--model", help="model instead of a scripted reader")
    parser.add_argument("--keep", type=Path, help="folder of the runs; interrupted runs are resumed")
    arguments = parser.parse_args()
    home = arguments.keep or Path(tempfile.mkdtemp(prefix="agentlab-"))
    folder = home / "stale"
    shutil.rmtree(folder, ignore_errors=True)
    questions, planted = write(folder, arguments.limit)
    (home / "said.py").write_text(SCORER, encoding="utf-8")
    for old in ("run", "worth"):
        shutil.rmtree(home / old, ignore_errors=True)
    spec: dict[str, Any] = {
        "scorers": ["answer", str(home / "said.py")],
        "datasets": [str(folder)],
        "flows": [{"flow": "coordinator", "tools": [], "gate": "words"}],
        "memory": "sqlite",
        "recordings": str(home / "rec"),
        "model": arguments.model or f"{__name__}:READERS/{arguments.reader}",
        "generation": {"max_tokens": 48},
    }
    with al.Lab(mode="auto", concurrency=4, **spec) as lab:
        run = lab.run_sync(out=home / "run")
    result = fact_worth(run, out=home / "worth", measure="stated")

    def with_verdicts(**parts: Any) -> pd.DataFrame:
        """Anew, from the recordings, for thresholds from the lowest on and with other parts of the rule."""
        with patch.multiple(worth, SAME_MATTER=min(GRID), **parts):
            return fact_worth(run, mode="replay", out=Path(tempfile.mkdtemp(dir=home)), measure="stated")

    def nothing(text: str) -> frozenset[str]:
        return frozenset()

    def always(fact: object, turn: object) -> bool:
        return True

    def never(fact: object, turn: object) -> bool:
        return False

    harmful = {fact for fact in result.loc[result["worth"] != 0, "fact"] if fact in planted}
    misled = result["worth"] < 0
    print(
        f"{questions} questions; {len(result)} facts read,"
        f" {len(planted & set(result['fact']))} of {len(planted)} planted"
    )
    print(f"misled              {rates(count(misled, result, planted))}; of the {len(harmful)} that changed an answer:")
    print(f"                    {rates(count(misled, result, harmful))}")
    print(f"alike, held out     {held_out(only_alike, with_verdicts(named=nothing, holds=always), planted)}")
    print(f"delete, held out    {held_out(deleted, with_verdicts(), planted)}")
    print(f"  whatever is asked {held_out(deleted, with_verdicts(named=nothing), planted)}")
    print(f"  whatever is held  {held_out(deleted, with_verdicts(holds=never), planted)}")
    print(f"delete, as it is    {rates(count(result['delete'] != '', result, planted))}")
    for kind in ("misled", "superseded"):
        print(f"  {kind:17} {rates(count(result['delete'] == kind, result, planted))}")
    wrong = result[(result["delete"] != "") & ~result["fact"].isin(planted)]
    missed = result[(result["delete"] == "") & result["fact"].isin(planted)]
    for name, facts in (("wrongly", wrong), ("missed", missed)):
        print(f"\n{name}:\n{facts[['text', 'worth', 'delete', 'newer', 'alike']].to_string(index=False)}")


if __name__ == "__main__":
    main()
