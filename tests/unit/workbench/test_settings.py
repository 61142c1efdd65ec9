"""What can be set of each flow: documented where people and editors look, and the winner over the environment said."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core import plugins
from agentlab.models.scripted import Scripted
from agentlab.workbench.settings import flow_settings, spec_schema
from agentlab.workbench.variants import environment_notes

FLOWS = plugins.names("flows")


@pytest.mark.parametrize("flow", FLOWS)
def test_every_setting_says_what_it_means(flow):
    assert not [key for key, schema in flow_settings(flow).items() if len(schema["description"]) < 10]


def test_the_list_of_flows_shows_settings_when_asked(capsys):
    main(["list", "flows"])
    short = capsys.readouterr()
    assert "max_tool_calls" not in short.out and "list flows -v" in short.err
    main(["list", "flows", "-v"])
    told = capsys.readouterr().out
    assert "    max_tool_calls = 5\n        How many tools run for one message." in told
    assert str(Path.cwd()) not in told, "no path of this machine stands there as a default"


@pytest.mark.parametrize(
    ("flow", "fits"),
    [
        ({"flow": "chatbox", "max_tool_calls": 3}, True),
        ({"flow": "chatbox", "max_tool_calls": "many"}, False),
        ({"flow": "coordinator", "gate": "words"}, True),
        ({"flow": "coordinator", "gate": "feelings"}, False),
    ],
)
def test_the_schema_of_a_spec_knows_the_settings_of_each_flow(flow, fits, capsys):
    main(["schema"])
    schema = json.loads(capsys.readouterr().out)
    assert schema == json.loads(json.dumps(spec_schema()))
    assert jsonschema.Draft202012Validator(schema).is_valid({"flows": [flow]}) == fits


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ({}, "discord: DISCORD_MAX_TOOL_CALLS=2 sets max_tool_calls"),
        (
            {"max_tool_calls": 4},
            "discord: DISCORD_MAX_TOOL_CALLS=2 is not used, the spec or the command line says max_tool_calls: 4",
        ),
    ],
)
def test_which_of_environment_and_spec_wins_is_said(given, note, monkeypatch):
    monkeypatch.setenv("DISCORD_MAX_TOOL_CALLS", "2")
    model = Scripted(["-"])
    with al.Lab(model=model, embedder="hashing/hashing-64", flows=[{"flow": "discord", **given}]) as lab:
        assert note in environment_notes(lab.spec, lab.variants)


def test_nothing_is_said_where_nothing_is_set():
    with al.Lab(model=Scripted(["-"]), embedder="hashing/hashing-64", flows=["discord"]) as lab:
        assert environment_notes(lab.spec, lab.variants) == []
