"""Plans the reference study before it runs: detectable differences and costs, as a Markdown page.

make gate && python evals/study/plan.py results/gate ../shared/datasets ../shared/published > results/study_plan.md

Nothing of the model of the study is looked at. How much two flows differ from turn to turn is taken from what was there
before: recorded runs of a smaller model (`results/gate`), and answers that others published. A mean difference over C
conversations of m turns has the variance (between + within / m) / C (variance components);
.10 is found in 80 % of studies where C is at least (z(1 - .05 / 2k) + z(.8))^2 (between + within / m) / .01, with k
tests: every other flow against the first, in every measure that decides. Of pairs of flows the one that varies most
counts. Hours are the tokens a turn of those runs, at 72 read and 28 written in a second, nothing taken from a cache.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import ceil, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from agentlab.data.datasets import load_dataset
from agentlab.evals.published.reproduce import Pack
from agentlab.evals.scorers.correctness import correctness
from agentlab.evals.scorers.words import has_reference
from agentlab.evals.store.measures import TurnKey
from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.passages import count_tokens
from agentlab.lab.run import open_run
from agentlab.workbench.spec import Spec, load_spec

HERE = Path(__file__).parent
AGENT = HERE.parents[1] / "results" / "agent.md"
MEASURE = "answer_correctness"
EFFECT, POWER, ALPHA = 0.10, 0.8, 0.05
READ, WRITTEN = 72, 28
"""Tokens a second of local/qwen2.5-coder-1.5b on two cores."""
SEARCHED = 3 * 120
"""Tokens of passages in the runs that measure tokens a turn."""
LIKE = {
    "laws": "laws",
    "memory": "memory",
    "assistant": "assistant",
    "squad2": "adarague: squad",
    "pyfaq": "laws by answer_f1",  # which is what it is of a paragraph
    "mtrag_human": "laws by answer_f1",
    "research": "adarague: musique hotpotqa 2wikimultihopqa",
}
"""Set -> whose differences stand in for those of its flows: a recorded run, or categories of a pack."""
AS_RUN = {"laws": "laws", "squad2": "laws", "pyfaq": "laws", "mtrag_human": "laws"}
"""Set -> whose tokens a turn, where it is not itself."""
Column = Mapping[TurnKey, float]


class Varies(NamedTuple):
    between: float
    within: float


def of_pairs(flows: Mapping[str, Column]) -> Varies:
    """Return the variation of the two flows whose differences vary most."""
    results = []
    for a, b in combinations(flows.values(), 2):
        results.append(varies({key: b[key] - a[key] for key in a.keys() & b.keys()}))
    return max(results, key=sum)


def varies(values: Column) -> Varies:
    """The analysis of unweighted means (Searle, Casella, McCulloch, Variance Components, 1992), of one epoch."""
    turns: defaultdict[str, list[float]] = defaultdict(list)
    for (conversation, _, _), value in values.items():
        turns[conversation].append(value)
    several = [(float(np.var(of, ddof=1)), len(of)) for of in turns.values() if len(of) > 1]
    total = float(np.var([np.mean(of) for of in turns.values()], ddof=1))
    noise = float(np.mean([spread / many for spread, many in several])) if several else 0.0
    within = float(np.mean([spread for spread, _ in several])) if several else 0.0
    return Varies(max(0.0, total - noise), within)


def of_run(folder: Path, metric: str = MEASURE) -> Varies:
    flows = open_run(folder).turn_values
    return of_pairs(
        {
            name: {key: value for key, row in rows.items() if (value := row.get(metric)) is not None}
            for name, rows in flows.items()
        }
    )


def of_pack(folder: Path, categories: Sequence[str], fraction: float) -> Varies:
    """Return the variation in a pack; with one turn a conversation, `fraction` of it lies between conversations."""
    with tempfile.TemporaryDirectory() as scratch:
        pack = Pack(folder, Path(scratch) / "run", print)
    flows: dict[str, dict[TurnKey, float]] = {}
    for a in pack.answers:
        counts = has_reference(a.turn) and a.row.flow != "reference" and a.category in categories
        if a.row.reply and counts:
            reply = strip_markers(a.row.reply.text)
            flows.setdefault(a.row.flow, {})[a.key] = max(correctness(reply, r) for r in a.turn.reference_answers)
    result = of_pairs(flows)
    single = all(key[1] == 0 for rows in flows.values() for key in rows)
    return Varies(result.between * fraction, result.between * (1 - fraction)) if single else result


def spent(name: str, spec: Spec, runs: Path) -> tuple[float, float]:
    """Tokens read and written in a turn of all flows of the spec together, before there were longer passages."""
    if name == "research":
        page = AGENT.read_text(encoding="utf-8")
        rows = page[page.index("## research") :].splitlines()
        sums = [
            sum(map(float, next(row for row in rows if row.startswith(f"| {kind} tokens")).split("|")[2:-1]))
            for kind in ("input", "output")
        ]
        return sums[0], sums[1]
    run = open_run(runs / AS_RUN.get(name, name))
    flows = [flow for label, flow in run.result.flows.items() if label in {each.name for each in spec.flows}]
    read, written = (sum(flow.per_turn(f"{kind}_tokens") or 0.0 for flow in flows) for kind in ("input", "output"))
    return read, written


def row(name: str, varies: Varies, shared: Path, runs: Path) -> str:
    spec = load_spec(HERE / f"{name}.yaml")
    own = Path(spec.datasets[0])
    data = load_dataset(own if own.exists() else shared / name)
    turns = [turn for conversation in data.conversations for turn in conversation.turns if turn.scored]
    graded = [turn for turn in turns if has_reference(turn)]
    size, each = len(data.conversations), len(graded) / len(data.conversations)
    tests = (len(spec.flows) - 1) * len(spec.primary)
    variance = varies.between + varies.within / each
    z = float(ndtri(1 - ALPHA / 2 / tests) + ndtri(POWER))
    needed, detectable = ceil(z**2 * variance / EFFECT**2), z * sqrt(variance / size)
    read, written = spent(name, spec, runs)
    if name not in ("memory", "assistant"):
        read += len(spec.flows) * (spec.retrieval.top_k * spec.retrieval.max_tokens - SEARCHED)
    hours = len(turns) * (read / READ + written / WRITTEN) / 3600
    longest = spec.generation.max_tokens
    cut = sum(min(map(count_tokens, turn.reference_answers)) > longest for turn in graded)
    cells = [name, size, f"{len(turns)} ({len(graded)})", LIKE[name], tests, needed, f"{detectable:.2f}"]
    return f"| {' | '.join(map(str, [*cells, f'{cut} at {longest}', f'{hours:.1f}']))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, help="the folder with the recorded runs, each under the name of its spec")
    parser.add_argument("sets", type=Path, help="the folder with the public sets")
    parser.add_argument("packs", type=Path, help="the folder with published answers")
    given = parser.parse_args()
    laws = of_run(given.runs / "laws")
    fraction = laws.between / sum(laws)
    print(HEAD)
    for name, like in LIKE.items():
        pack, _, categories = like.partition(": ")
        run, _, metric = like.partition(" by ")
        if categories:
            varies = of_pack(given.packs / pack, categories.split(), fraction)
        else:
            varies = of_run(given.runs / run, metric or MEASURE)
        print(row(name, varies, given.sets, given.runs))


HEAD = f"""# The reference study: detectable differences and time

Written before any run, by `python evals/study/plan.py results/gate SETS PACKS`, which has the method.
`needed`: conversations in which a difference of {EFFECT:.2f} in {MEASURE} is found in {POWER:.0%} of studies;
`detectable`: the smallest difference that the whole set finds as often. `like`: the source of the
variance. `tests`: the number of tests in the family. `truncated`: references longer than a reply may be, in
tokens. Hours: of local/qwen2.5-coder-1.5b on two free cores.

Five passages of 200 tokens hold .77 of the relevant documents on laws and .70 on research, five documents .98 on
squad2, .91 on pyfaq and .75 on mtrag_human (`python evals/bench/retrieval.py SET...`). Every set is
played whole. If `needed` is more than it has, differences below `detectable` are missed more often. The page of the
study says so.

| set | conversations | turns (with a reference) | like | tests | needed | detectable | truncated | hours |
| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |"""

if __name__ == "__main__":
    main()
