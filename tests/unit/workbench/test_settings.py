"""The list of flows and the schema of a spec contain every setting of a flow."""

from __future__ import annotations

import json
from dataclasses import fields

import jsonschema
import pytest

from agentlab.cli.parser import main
from agentlab.core import plugins
from agentlab.workbench.settings import settings_of, spec_schema


@pytest.mark.parametrize("flow", plugins.names("flows"))
def test_every_setting_has_a_description(flow):
    assert not [key for key, schema in settings_of(flow).items() if len(schema["description"]) < 10]


def test_every_setting_of_ego_has_a_description(capsys):
    described = settings_of("ego")
    assert list(described) == [field.name for field in fields(plugins.resolve("flows", "ego").Settings)]
    assert not [name for name, schema in described.items() if not schema.get("description")]
    assert main(["list", "flows"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  max_iterations: 10  Maximum number of steps per attempt." in lines
    assert all(any(line.startswith(f"  {name}: ") for line in lines) for name in described)
    assert "  personality: Path of a text file with the agent's personality, which shapes its replies." in lines


def test_wider_flow_has_the_settings_of_the_narrower_one_and_its_own():
    wide, narrow = settings_of("discord"), settings_of("chatbox")
    assert set(narrow) < set(wide) and wide["history"] == narrow["history"]
    assert wide["master_id"]["description"] == "Id of the user that the assistant belongs to."


def test_a_name_that_is_no_flow_has_no_settings():
    assert settings_of("nowhere") == {}


@pytest.mark.parametrize(
    ("flow", "is_right"),
    [
        ({"flow": "ego", "max_iterations": 3}, True),
        ({"flow": "ego", "max_iterations": "three"}, False),
        ({"flow": "ego", "memory_kinds": ["command"]}, True),
        ({"flow": "ego", "memory_kinds": ["commands"]}, False),
        ({"flow": "my_flow:respond", "max_iterations": "three"}, True),
        ("ego", True),
    ],
)
def test_schema_lists_the_settings_of_each_flow(capsys, flow, is_right):
    assert main(["list", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema == json.loads(json.dumps(spec_schema()))
    assert jsonschema.Draft202012Validator(schema).is_valid({"flows": [flow]}) == is_right
