"""Prints the loss of each flow outside English, by model, measure and language, as Markdown.

agentlab run evals/recorded/worldwide.yaml --mode replay --out results/gate/worldwide
python evals/worldwide.py results/gate/worldwide > results/worldwide.md

A loss is a difference between turns in another language and the same turns in English (`datasets/worldwide`).
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Collection, Iterator, Sequence

from agentlab.core.events import ToolRun
from agentlab.evals.compare.measure_verdict import MeasureVerdict
from agentlab.evals.compare.pairs import Comparison, FlowSides, compare_turns
from agentlab.evals.store.measures import TurnKey, Values
from agentlab.lab.run import Run, open_run

LANGUAGES = {"de": "German", "es": "Spanish", "ru": "Russian", "ar": "Arabic", "zh": "Chinese", "ja": "Japanese"}
OWN_ALPHABET = ("ru", "ar", "zh", "ja")
PRIMARY = ("answer_correctness", "retrieval_recall", "lookup_accuracy")
IN_WORDS = "answer_correctness of answers in words"
NOT_VALIDATED = (IN_WORDS, "refusal_accuracy", "answered", "groundedness")
"""Measures that read other words than numbers, yes and no; their losses may be the grader's."""
COSTS = ("llm_calls", "input_tokens", "output_tokens")
HEAD = """# Losses of each flow outside English

{commands}

The [set](../datasets/worldwide/README.md) has conversations in six languages, and the same ones in English. All
documents are English. A loss is a paired difference of the same turns: another language minus English. Brackets hold
95 % intervals over conversations; `p` is adjusted over all flows and primary measures of a model, and `-` if the test
cannot reject. `answer_correctness` counts turns whose answer is a number, or yes or no; `turns` are those that both
sides decide. The 1.5B played a quarter of the set, without `tools_rag_fallback`: the rest is not recorded, because it
takes hours on two cores. So it decides nothing."""


def page(runs: Sequence[Run]) -> Iterator[str]:
    commands = [f"    agentlab run evals/recorded/{run.path.name}.yaml --mode replay --out {run.path}" for run in runs]
    commands += [f"    python evals/worldwide.py {' '.join(str(run.path) for run in runs)}"]
    yield HEAD.format(commands="\n".join(commands))
    for run in runs:
        yield from ("", f"## {run.result.model}, {run.result.conversations // 2} conversations and counterparts", "")
        yield from pooled(run)
        yield from ("", "### By language", "")
        yield from by_language(run)
        yield from ("", "### Letters of replies and queries", "")
        yield from letters(run)


def pooled(run: Run) -> Iterator[str]:
    comparison = compare_with_english(run, LANGUAGES)
    yield from (f"* `{pair.b}`: {str(pair).partition(': ')[2]}" for pair in comparison.pairs)
    yield from ("", "| measure | flow | turns | English | elsewhere | difference | p |")
    yield "| --- | --- | ---: | ---: | ---: | --- | --- |"
    for name in (*PRIMARY, *COSTS, *NOT_VALIDATED):
        for pair in comparison.pairs:
            if name not in pair.paired:
                continue
            loss = pair[name]
            title = f"{name}, not validated: decides nothing" if name in NOT_VALIDATED else f"`{name}`"
            p = "-" if name in NOT_VALIDATED or loss.p_adjusted is None else f"{loss.p_adjusted:.2g}"
            means = " | ".join(map(loss.measure.show, (loss.a, loss.b)))
            yield f"| {title} | `{loss.flow}` | {loss.n} | {means} | {difference(loss)} | {p} |"


def by_language(run: Run) -> Iterator[str]:
    count = run.result.conversations // 2 // len(LANGUAGES)
    yield f"A language has {count} of the conversations: no test can reject, so no row decides anything."
    flows = list(run.result.flows)
    yield from ("", f"| measure | language | {' | '.join(f'`{flow}`' for flow in flows)} |")
    yield f"| --- | --- |{' --- |' * len(flows)}"
    comparisons = {title: compare_with_english(run, [code]) for code, title in LANGUAGES.items()}
    for name in PRIMARY:
        for title, comparison in comparisons.items():
            cells = [difference(pair[name]) for pair in comparison.pairs]
            yield f"| `{name}` | {title} | {' | '.join(cells)} |"


def difference(loss: MeasureVerdict) -> str:
    """Return the difference with its interval, or a dash if it is unknown."""
    return "-" if loss.difference is None else f"{loss.difference + 0.0:+.3g} {loss.interval}".rstrip()


def compare_with_english(run: Run, languages: Collection[str]) -> Comparison:
    """Compare each flow in English with itself in `languages`, on the counterparts of the same conversations."""
    sides = []
    for flow in run.result.flows:
        other = turns_of(run, flow, languages)
        english = {key: values for key, values in turns_of(run, flow, ["en"]).items() if key in other}
        for key, values in english.items():
            if (IN_WORDS in values) != (IN_WORDS in other[key]):  # one side is undecided
                values.pop(IN_WORDS, None)
                other[key].pop(IN_WORDS, None)
        sides.append(FlowSides(f"{flow} in English", english, flow, other, (flow, flow)))
    return compare_turns(sides, PRIMARY, latency_is_primary=False)


def turns_of(run: Run, flow: str, languages: Collection[str]) -> dict[TurnKey, Values]:
    """Return the measures of turns in `languages`, by a name that is equal for a turn and its counterparts.

    The key `answer_correctness` is renamed for answers in words, which are not validated.
    """
    turns = {}
    for (conversation, number, epoch), values in run.turn_values[flow].items():
        language, _, shared = conversation.partition("-")
        turn = run.expected_turn(conversation, number)
        if language in languages and turn is not None:
            is_checked = turn.metadata.get("answer") in ("number", "yes_no")
            names = {} if is_checked else {PRIMARY[0]: IN_WORDS}
            turns[shared, number, epoch] = {names.get(name, name): value for name, value in values.items()}
    return turns


def letters(run: Run) -> Iterator[str]:
    """Yield the numbers of replies and search queries in Latin letters, where the user writes in others."""
    yield "Of turns in Russian, Arabic, Chinese and Japanese; a text counts as Latin if most of its letters are."
    yield from (
        "",
        "| flow | replies in Latin letters | queries of the model in Latin letters |",
        "| --- | ---: | ---: |",
    )
    for flow in run.result.flows:
        replies, queries = [], []
        for row in run.rows():
            if row.flow == flow and row.conversation.partition("-")[0] in OWN_ALPHABET:
                replies += [row.reply.text] if row.reply else []
        for (label, conversation, _), trace in run.traces.items():
            if label == flow and conversation.partition("-")[0] in OWN_ALPHABET:
                runs = [event for event in trace.events if isinstance(event, ToolRun)]
                queries += [str(event.call.arguments.get("query", "")) for event in runs]
        counts = [f"{sum(map(is_latin, texts))} of {len(texts)}" for texts in (replies, queries)]
        yield f"| `{flow}` | {' | '.join(counts)} |"


def is_latin(text: str) -> bool:
    scripts = [unicodedata.name(letter, "").startswith("LATIN") for letter in text if letter.isalpha()]
    return sum(scripts) * 2 > len(scripts)


if __name__ == "__main__":
    print("\n".join(page([open_run(folder) for folder in sys.argv[1:]])))
