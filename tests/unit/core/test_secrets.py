"""Secrets of this process, and the search for a text that contains one."""

from __future__ import annotations

import json

from agentlab.core import secrets
from agentlab.models.openai import connect


def test_the_environment_is_searched_by_the_names_of_its_variables(monkeypatch):
    monkeypatch.setenv("MY_API_KEYS", "first-long-key, second-long-key")
    monkeypatch.setenv("MY_PLACE", "somewhere-harmless")
    assert secrets.find_secret("it said second-long-key") == "MY_API_KEYS"
    assert secrets.find_secret("it said somewhere-harmless") is None


def test_registered_secret_is_found():
    assert secrets.find_secret("a-key-of-a-file") is None
    secrets.register(["a-key-of-a-file", 'quo"ted-key', "short"], "a key of mine")
    assert secrets.find_secret("[a-key-of-a-file]") == "a key of mine"
    assert secrets.find_secret('quo"ted-key') == secrets.find_secret(json.dumps('quo"ted-key')) == "a key of mine"
    assert secrets.find_secret("short") is None


def test_keys_of_the_key_file_and_keys_given_are_registered(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llm_api_keys.json").write_text(json.dumps({"openai": ["key-of-the-file"]}))
    connect("m")
    connect("m", api_key="key-as-given")
    assert secrets.find_secret("key-of-the-file") == secrets.find_secret("key-as-given") == "a key of openai"
