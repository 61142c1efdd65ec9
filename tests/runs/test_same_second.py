"""Runs that begin in the same second."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import agentlab as al
from agentlab.models.scripted import Scripted


def test_runs_of_the_same_second_get_a_folder_each(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def play(number: int) -> Path:
        with al.Lab(
            model=Scripted(["Yes."], loop=True),
            datasets=[str(dataset)],
            flows=["tools"],
            embedder="hashing/hashing-64",
            scorers=["answer"],
        ) as lab:
            return lab.run_sync().path

    with ThreadPoolExecutor(6) as pool:
        folders = [*pool.map(play, range(6))]
    assert len(set(folders)) == 6
    assert {al.open_run(folder).run_id for folder in folders} == {folder.name for folder in folders}
    assert {al.open_run(folder).result.status for folder in folders} == {"complete"}
