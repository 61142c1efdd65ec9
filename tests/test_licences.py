"""Every package installed with agentlab has a known licence without duties for its users."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from support.licences import EXTRAS, table, verdict

TOOLS = {"all", "browser", "dev", "docs"}
"""Extras for developers of agentlab."""


def test_no_dependency_is_copyleft_or_of_unknown_licence():
    rows = table()
    names = {row[0] for row in rows}
    assert len(rows) > 50 and {"numpy", "chromadb", "dask", "distributed", "pyarrow", "jupyterlab"} <= names
    assert not [row for row in rows if not row[3].startswith("ok")]
    assert not names & {"secantusdb", "hypothesis", "mkdocs"}, "tools are not given to anybody"


def test_without_an_extra_only_one_is_weak_copyleft():
    rows = table(extras=())
    assert {row[0] for row in rows if row[3] != "ok"} == {"tqdm"}
    assert not {row[0] for row in rows} & {"dask", "distributed", "pyarrow", "mkdocs", "jupyterlab"}


def test_every_extra_is_judged_or_a_tool_of_ours():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) == {*EXTRAS, *TOOLS}
    licences = {row[0]: row[3] for row in table(("docs",))}
    assert not [name for name, outcome in licences.items() if not outcome.startswith("ok")]


@pytest.mark.parametrize(
    "name, licence, outcome",
    [
        *(("a", "MIT", "ok"), ("a", "BSD-3-Clause AND Apache-2.0", "ok"), ("a", "GPL-3.0 OR MIT", "ok")),
        *(("a", "GPL-2.0-only", "copyleft"), ("a", "LGPL-3.0", "copyleft"), ("a", "MIT AND MPL-2.0", "copyleft")),
        *(("a", "", "unknown"), ("a", "Proprietary", "unknown"), ("a", "MIT License, GNU General Public", "copyleft")),
    ],
)
def test_the_verdict_is_that_of_the_strictest_part(name, licence, outcome):
    assert verdict(name, licence) == outcome
    assert verdict("certifi", "MPL-2.0").startswith("ok (")
