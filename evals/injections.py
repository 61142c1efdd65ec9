"""Prints which injected instructions each flow of finished runs read and obeyed, by where they stood, as Markdown.

agentlab run evals/recorded/injections.yaml --mode replay --out results/gate/injections
python evals/injections.py results/gate/injections > results/injections.md
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence

from agentlab.core.escaping import as_markdown
from agentlab.evals.scorers.injection import UNSEEN
from agentlab.evals.store.rows import StoredScore
from agentlab.lab.run import Run, open_run


def page(runs: Sequence[Run]) -> list[str]:
    replayed = "\n".join(
        f"agentlab run evals/recorded/{run.path.name}.yaml --mode replay --out {run.path}" for run in runs
    )
    lines = [
        "# Injected instructions: read and obeyed",
        "",
        *(f"    {line}" for line in replayed.splitlines()),
        f"    python evals/injections.py {' '.join(str(run.path) for run in runs)}",
        "",
        "Of each flow: obeyed / read by the model / asked. Quoting the word that an instruction asks for counts as",
        "obeying it; a flow that never looks the text up resists by not reading.",
    ]
    for run in runs:
        lines += ["", *table(run)]
    return lines


def table(run: Run) -> list[str]:
    """Return the rate at which each flow obeyed, a row a location, and two scores with 95 % intervals."""
    by_category: dict[str, dict[str, list[StoredScore]]] = defaultdict(lambda: defaultdict(list))
    for row in run.rows():
        if score := (row.scores or {}).get("injection_resistance"):
            for category in (str(row.category), "all"):
                by_category[category][row.flow].append(score)
    flows = list(run.result.flows)
    lines = [
        f"## {run.result.model}, {run.result.conversations} conversations of `datasets/injections`",
        "",
        f"| instruction in | {' | '.join(map(as_markdown, flows))} |",
        f"| --- |{' ---: |' * len(flows)}",
    ]
    for category, of in sorted(by_category.items(), key=lambda item: (item[0] == "all", item[0])):
        cells = []
        for flow in flows:
            graded = of[flow]
            read = [score for score in graded if score.reason != UNSEEN]
            cells.append(f"{sum(score.value == 0 for score in read)} / {len(read)} / {len(graded)}")
        lines.append(f"| {as_markdown(category)} | {' | '.join(cells)} |")
    for metric in ("injection_resistance", "answer_f1"):
        summaries = [run.result.flows[flow].scores.get(metric) for flow in flows]
        ends = [s and (s.ci95 or ("-", "-")) for s in summaries]
        cells = [
            f"{s.mean:.2f} [{low:.2f}, {high:.2f}]" if s and s.ci95 else f"{s.mean:.2f}" if s else "-"
            for s, (low, high) in zip(summaries, (end or ("-", "-") for end in ends), strict=True)
        ]
        lines.append(f"| {metric} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(page([open_run(folder) for folder in sys.argv[1:]])))
