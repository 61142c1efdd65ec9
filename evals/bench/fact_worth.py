"""Does deletion replay find what is stale in a memory? Planted stale facts, found with which precision and recall.

    python evals/bench/fact_worth.py [--limit N] [--keep DIR]

From `datasets/memory` (facts told, corrected and asked for): every question whose answer was corrected at some time is
asked of a memory that holds all facts in force, and beside them the one that was corrected, as if the correction had
been added and the old fact never taken away. That one is planted. Scripted readers stand in for the model, so that
only the replay is measured, not how a model reads:

    first    of what it was brought, what is about the same matter as the nearest fact (half of the words), and of that
             what it was told first: it always believes the old
    words    what shares most words with the question, and of two that share as many what it was told first: it
             believes the old now and then, and is misled by other things, too

An answer is right where all words of a reference are in it. Each fact that was read is deleted in turn, and found is
what has a worth below 0. Recall is said twice: of all that was planted, and of what did harm, which is to say that the
answer was another one without it. What never changes an answer is worth 0, and no deletion can find it.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import agentlab as al
from agentlab.core.messages import Completion, Message, Request, Usage
from agentlab.data.conversations import Conversation
from agentlab.lab.worth import fact_worth

FOLDER = Path(__file__).parents[2] / "datasets" / "memory"
PLANTED = "planted"
_TOLD = re.compile(r"(\d{4}-\d\d-\d\d), user: (.*?)(?=; \d{4}-\d\d-\d\d, user: |$)", re.DOTALL)

SCORER = '''"""Whether all words of a reference were said."""

import re

from agentlab.evals.scorers import Score


def metrics(turn):
    return ("said",) if turn.reference_answers else ()


def score(turn, outcome):
    def words(text):
        return set(re.findall(r"[a-z0-9]+", text.lower()))

    said = words(outcome.reply.text)
    return {"said": Score(value=float(any(words(answer) <= said for answer in turn.reference_answers)), reason="")}
'''


class Reader:
    """See above; `name` is what the recordings call it."""

    parallel = 8

    def __init__(self, name: str) -> None:
        self.name = name

    async def complete(self, request: Request, emit: object) -> Completion:
        asked = request.messages[-1].text
        context, _, question = asked.partition("]\n")
        told = [(found[1], found[2]) for found in _TOLD.finditer(context)]
        if self.name == "words":
            shared = words(question)
            most = max((len(words(text) & shared) for _, text in told), default=0)
            told = [fact for fact in told if len(words(fact[1]) & shared) == most]
        elif told:
            told = [fact for fact in told if same_matter(fact[1], told[0][1])]
        said = min(told, default=("", "-"))[1]
        usage = Usage(input_tokens=len(asked.split()), output_tokens=len(said.split()), cached_tokens=0)
        return Completion(message=Message(role="agent", text=said), usage=usage)

    async def close(self) -> None:
        pass


def same_matter(one: str, other: str) -> bool:
    fewest = min(len(words(one)), len(words(other)))
    return len(words(one) & words(other)) * 2 >= max(1, fewest)


def words(text: str) -> set[str]:
    """Those that say something, by their length, and numbers."""
    return set(re.findall(r"[0-9]+|[a-z]{4,}", text.lower()))


def planted_questions(limit: int | None) -> Iterator[tuple[str, list[tuple[str, str, str]], dict]]:
    """(id, facts as (id, date, text), the question's row) for every question about something that was corrected."""
    for line in (FOLDER / "conversations.jsonl").read_text(encoding="utf-8").splitlines()[:limit]:
        talk = Conversation.model_validate(json.loads(line))
        in_force: dict[str, str] = {}
        corrected: dict[str, tuple[str, str]] = {}
        for number, turn in enumerate(talk.turns):
            evidence = turn.metadata.get("evidence", [])
            stale = [corrected[text] for text in evidence if text in corrected]
            if stale and turn.reference_answers:
                name = f"{talk.id}-{number:02}"
                facts = [(f"{name}-{n}", date, text) for n, (text, date) in enumerate(in_force.items())]
                facts += [(f"{name}-{PLANTED}-{n}", date, text) for n, (text, date) in enumerate(stale)]
                row = {"id": name, "question": turn.user, "reference_answers": turn.reference_answers}
                yield name, sorted(facts, key=lambda fact: fact[1]), row
            for kept in turn.expected_memory or ():
                if kept.op == "none" or kept.content is None:
                    continue
                if kept.op == "update" and kept.replaces in in_force:
                    corrected[kept.content] = (kept.replaces, in_force.pop(kept.replaces))
                in_force[kept.content] = str(turn.session)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, help="conversations of the data set")
    parser.add_argument("--reader", choices=["first", "words"], default="first")
    parser.add_argument("--measure", choices=["said", "answer_f1"], default="said")
    parser.add_argument("--keep", type=Path, help="where the runs are kept")
    arguments = parser.parse_args()
    home = arguments.keep or Path(tempfile.mkdtemp(prefix="agentlab-"))
    folder = home / "stale"
    folder.mkdir(parents=True)
    sessions, questions = [], []
    for name, facts, row in planted_questions(arguments.limit):
        for number, (fact, date, text) in enumerate(facts):
            turn = {"id": fact, "speaker": "user", "text": text}
            sessions.append(
                {"conversation_id": name, "session_id": f"{name}-s{number}", "date": date, "speakers": ["user"]}
                | {"turns": [turn]}
            )
        row |= {"conversation_id": name, "category": "stale", "unanswerable": False, "evidence_ids": []}
        questions.append(row | {"source": "datasets/memory", "licence": "Apache-2.0"})
    for file, rows in (("sessions", sessions), ("questions", questions)):
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    flow = {"flow": "coordinator", "tools": [], "gate": "words"}
    Path(home / "said.py").write_text(SCORER, encoding="utf-8")
    spec = {
        "scorers": ["answer", str(home / "said.py")],
        "datasets": [str(folder)],
        "flows": [flow],
        "memory": "sqlite",
        "recordings": str(home / "rec"),
    }
    with al.Lab(model=Reader(arguments.reader), mode="record", concurrency=4, **spec) as lab:
        run = lab.run_sync(out=home / "run")
    worth = fact_worth(run, measure=arguments.measure, out=home / "worth", model=Reader(arguments.reader))
    is_planted = worth["fact"].str.contains(PLANTED)
    found, harmed = worth["worth"] < 0, worth["worth"] != 0
    harmful = is_planted & (worth["worth"].abs() > 0)
    hits = (found & is_planted).sum()
    planted = sum(PLANTED in fact for _, facts, _ in planted_questions(arguments.limit) for fact, *_ in facts)
    print(f"{len(questions)} questions, {planted} planted; {is_planted.sum()} of them read; {len(worth)} facts read")
    print(f"changed an answer: {harmed.sum()} facts, {harmful.sum()} of them planted; worth below 0: {found.sum()}")
    print(f"precision {hits / max(1, found.sum()):.3f}")
    print(f"recall of the harmful {hits / max(1, harmful.sum()):.3f}, of all planted {hits / planted:.3f}")
    print(worth.loc[found & ~is_planted, ["conversation", "text", "worth"]].to_string())


if __name__ == "__main__":
    main()
