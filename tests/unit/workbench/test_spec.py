"""A spec object is checked like a file, and the published schema takes our own specs."""

from __future__ import annotations

import jsonschema
import pytest
import yaml

import agentlab as al
from agentlab.core.errors import ConfigError
from agentlab.models.scripted import Scripted
from agentlab.workbench.spec import Spec
from support.paths import ROOT


@pytest.mark.parametrize(
    "overrides, text",
    [
        ({"retrieval": 5, "retrieval.top_k": 3}, "retrieval is not a mapping"),
        ({"flows.0.label": "x"}, "flows is not a mapping"),
        ({"flows": "rag_only"}, "flows:"),
        ({"prompts": {"rag_onl": {"system": "x"}}}, "Did you mean 'rag_only'?"),
        ({"prompts": {"rag_only": {"question": "{question:d}"}}}, "no plain {placeholder}"),
        ({"name": "../up"}, "name:"),
        ({"limit": 0}, "limit:"),
    ],
)
def test_a_spec_object_is_checked_like_a_file(overrides, text):
    base = Spec(flows=("rag_only",))
    with pytest.raises(ConfigError) as caught:
        al.Lab(base, model=Scripted([]), **overrides)
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_dotted_keys_reach_into_a_spec_object():
    assert al.Lab(Spec(), model=Scripted([]), retrieval__top_k=8).bench.spec.retrieval.top_k == 8


@pytest.mark.parametrize("name", ["flows", "published"])
def test_the_published_schema_takes_our_own_specs(name):
    spec = yaml.safe_load((ROOT / "evals" / f"{name}.yaml").read_text())
    jsonschema.validate(spec, Spec.model_json_schema())
