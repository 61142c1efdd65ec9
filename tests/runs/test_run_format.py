"""Runs of older and newer formats are refused."""

from __future__ import annotations

import pytest

from agentlab.cli.parser import main


@pytest.mark.parametrize("form", [1, 2, 99])
def test_a_run_of_another_format_is_refused_in_one_line(tmp_path, capsys, form):
    file = tmp_path / "run.json"
    file.write_text(f'{{"format": {form}, "spec": {{}}, "datasets": {{}}, "models": {{}}}}')
    assert main(["show", str(tmp_path)]) == 1
    said = f"agentlab: {file}: this is run format {form}, agentlab reads format 3; run it again\n"
    assert capsys.readouterr().err == said
