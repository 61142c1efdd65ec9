"""Recordings return complete requests, in older formats, too."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from agentlab.core.errors import RecordingError
from agentlab.wire.keys import digest, normalise_request
from agentlab.wire.recordings import Recordings
from support.paths import TESTS
from support.requests import REQUESTS, key, request_of


@given(REQUESTS)
def test_a_request_comes_back_whole_from_its_recording(tmp_path_factory, request_):
    folder = tmp_path_factory.mktemp("recordings")
    recorded = normalise_request("m", "", request_, 0)
    entry = {
        "kind": "completion",
        "request": recorded.fields,
        "repeat": 0,
        "completion": {"message": {"role": "agent"}},
        "seconds": 1.0,
    }
    Recordings.open(folder, "a", write=True).add(recorded.key(0), entry, recorded.parts)
    read = Recordings.open(folder, "a")
    (row,) = read.completions()
    assert key(request_of(read, row)) == recorded.key(0) == row.key


def test_recordings_of_format_1_can_still_be_read():
    recordings = Recordings.open(TESTS / "data" / "recordings_format_1", "run")
    rows = list(recordings.completions())
    assert len(rows) == 4
    for row in rows:
        request = request_of(recordings, row)
        question = row.request
        assert key(request, question["model"], question["endpoint"], question["epoch"], row.repeat) == row.key


def test_recordings_of_a_newer_format_are_refused(tmp_path):
    newer = {"kind": "recordings", "format": 2}
    (tmp_path / "a.jsonl").write_text(json.dumps({**newer, "check": digest(newer)[:12]}) + "\n")
    with pytest.raises(RecordingError, match=r"a\.jsonl:1: this is recording format 2, agentlab reads format 1"):
        Recordings.open(tmp_path, "a")
