"""The reference study's specs fit each other and the sets of the repository; the plan equals the run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import agentlab as al
from agentlab.core import plugins
from agentlab.core.messages import Completion, Message, Usage
from agentlab.data.datasets import load_dataset
from agentlab.evals.store.measures import COSTS, measure
from agentlab.models.scripted import Scripted
from agentlab.workbench.spec import load_spec
from support.paths import ROOT

SPECS = sorted((ROOT / "evals" / "study").glob("*.yaml"))
PLAN, OUTCOME = (
    part.splitlines()
    for part in (ROOT / "results" / "study_plan.md").read_text(encoding="utf-8").split("\n## After the runs\n")
)


@pytest.mark.parametrize("file", SPECS, ids=lambda file: file.stem)
def test_table_covers_a_whole_set_on_one_model_and_names_primary_measures(file):
    spec = load_spec(file)
    assert spec.name == f"study_{file.stem}" and list(spec.datasets) == [f"datasets/{file.stem}"]
    assert (spec.model, spec.limit) == ("local/qwen2.5-coder-1.5b", None)
    assert spec.primary[0] == "answer_correctness" and len(spec.flows) > 2
    (planned,) = [line for line in PLAN if line.startswith(f"| {file.stem} |")]
    assert f" at {spec.generation.max_tokens} |" in planned, "replies are as long as they were when it was planned"
    assert int(planned.split("|")[5]) == (len(spec.flows) - 1) * len(spec.primary)


def test_page_compares_results_with_the_plan():
    outcome_rows = [line.split("|") for line in OUTCOME if line.startswith("| ") and "---" not in line][1:]
    planned = {row.split("|")[1]: row.split("|")[7] for row in PLAN if row.startswith("| ")}
    assert outcome_rows and all(planned[cells[1]] == cells[2] for cells in outcome_rows)
    page = (ROOT / "results" / "study.md").read_text(encoding="utf-8")
    for _, name, _, detected, _ in outcome_rows:
        section = page.partition(f"\n## {name.strip()}\n")[2].partition("\n## ")[0]
        rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in section.splitlines() if row.startswith("| ")]
        of_first = [row for row in rows if len(row) == 11 and row[0] == rows[0][1] and row[2] == "answer_correctness"]
        detectable = {f"{float(row[9]):.2f}" for row in of_first}
        assert {*re.findall(r"0\.\d\d", detected)} <= detectable, name
        assert max(detectable) in detected, name


@pytest.mark.parametrize(
    "file", [file for file in SPECS if (ROOT / "datasets" / file.stem).exists()], ids=lambda f: f.stem
)
def test_primary_measures_are_graded_on_own_sets(file):
    data = load_dataset(Path(ROOT / "datasets" / file.stem))
    turns = [turn for conversation in data.conversations for turn in conversation.turns if turn.scored]
    scorers = [plugins.resolve("evals.scorers", name) for name in plugins.names("evals.scorers")]
    graded = {metric for scorer in scorers for turn in turns for metric in scorer.metrics(turn)}
    assert {name for name in load_spec(file).primary if measure(name) not in COSTS} <= graded


def published(page: Path, *runs: Path) -> str:
    """Return the page that contains these runs."""
    command = [sys.executable, "evals/publish.py", "--study", str(page), *map(str, runs)]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return page.read_text(encoding="utf-8")


def test_repeated_set_replaces_its_part_of_the_page(tmp_path):
    page = tmp_path / "study.md"
    before = (ROOT / "results" / "study.md").read_text(encoding="utf-8")
    page.write_text(before, encoding="utf-8")
    replies = [Completion(message=Message(role="agent", text="It is 7.32 m wide."), usage=Usage())]
    spec = {"datasets": ["datasets/laws"], "limit": 3, "embedder": "hashing/hashing-64", "name": "study_laws"}
    with al.Lab(model=Scripted(replies, loop=True), flows=["rag_only", "tools"], **spec) as lab:
        lab.run_sync(out=tmp_path / "laws")
    after = published(page, tmp_path / "laws")
    head, *sections = before.split("\n## ")
    now_head, *now = after.split("\n## ")
    assert now_head == head
    assert [new for new in now if new not in sections] == [new for new in now if new.startswith("laws")] != []
    assert [new.partition("\n")[0] for new in now] == [old.partition("\n")[0] for old in sections]
    (laws,) = (new for new in now if new.startswith("laws"))
    assert "| rag_only | tools | answer_correctness |" in laws and "| poor turns |" in laws
    assert published(page, tmp_path / "laws") == after


def test_the_picture_is_of_the_page():
    drawn = subprocess.run(
        [sys.executable, "evals/picture.py", "results/study.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert drawn.stdout == (ROOT / "results" / "study.svg").read_text(encoding="utf-8")
    sets = re.findall(r"^## (\w+)$", (ROOT / "results" / "study.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sets == sorted(sets) and [name for name in sets if f"{name}: " not in drawn.stdout] == []


def test_links_and_pictures_of_the_project_pages_exist():
    count = 0
    for page in (ROOT / "README.md", *(ROOT / "results").glob("*.md"), ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                count += 1
                assert (page.parent / target).exists(), f"{page.name} leads to {target}"
    assert count > 30
