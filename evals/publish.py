"""Prints the published table of finished runs as Markdown: one section a data set, with n and what n could have shown.

python evals/publish.py results/squad2 results/pyfaq > results/document_flows.md
"""

from __future__ import annotations

import argparse
from typing import Any

from agentlab.evals.results import Run, open_run
from agentlab.terminal import visible_differences

ROWS = (
    ("LLM calls / turn", "llm_calls_per_turn"),
    ("embedding calls / turn", "embedding_calls_per_turn"),
    ("tool calls / turn", "tool_calls_per_turn"),
    ("fallback rate", "fallback_rate"),
)


def section(run: Run) -> list[str]:
    summary = run.summary
    flows: dict[str, Any] = summary["flows"]
    header = run.folder.header
    (name,) = summary["datasets"]
    spec = header["spec"]
    data = f"../shared/datasets/{name}"
    command = f"agentlab run evals/published.yaml --dataset {data} --limit {spec['limit']} --out results/{name}"
    each = list(flows.values())
    lines = [
        f"## {name}",
        "",
        f"`{command}`",
        "",
        f"{summary['model']}, {summary['conversations']} conversations drawn with seed {spec['sample']},"
        f" {each[0]['turns']} graded turns a flow.",
        "",
        f"| | {' | '.join(flows)} |",
        f"| --- |{' ---: |' * len(flows)}",
        "| turns (failed) | " + " | ".join(f"{f['turns']} ({f['errors']})" for f in each) + " |",
    ]
    for title, key in ROWS:
        lines.append(f"| {title} | " + " | ".join(f"{f[key]:.2f}" for f in each) + " |")
    for title, key in (("input tokens / turn", "input_tokens"), ("output tokens / turn", "output_tokens")):
        lines.append(f"| {title} | " + " | ".join(f"{f[key] / f['turns']:.0f}" for f in each) + " |")
    latency = [f["latency_s"] for f in each]
    lines.append("| latency s, mean (p95) | " + " | ".join(f"{s['mean']:.1f} ({s['p95']:.1f})" for s in latency) + " |")
    for metric in dict.fromkeys(metric for f in each for metric in f["scores"]):
        scores = [f["scores"][metric] for f in each]
        shown = [f"{s['mean']:.2f}" + (" [{:.2f}, {:.2f}]".format(*s["ci95"]) if s["ci95"] else "") for s in scores]
        lines.append(f"| {metric} (n={scores[0]['n']}) | " + " | ".join(shown) + " |")
    return [*lines, "", *(f"* {line}" for line in visible_differences(run)), ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="+", help="a finished run folder")
    for path in parser.parse_args().run:
        print("\n".join(section(open_run(path))))


if __name__ == "__main__":
    main()
