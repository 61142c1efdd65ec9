"""Files are read whole up to a size, and line by line beyond it."""

from __future__ import annotations

import os

import pytest

from agentlab.core.files import MAX_GENERATED_FILE_BYTES, iter_lines, open_regular_file, read_bytes


def test_large_file_is_read_line_by_line(tmp_path):
    file = tmp_path / "rows"
    file.write_bytes(b"one\ntwo\n")
    os.truncate(file, MAX_GENERATED_FILE_BYTES + 1)
    with pytest.raises(OSError, match="2,147,483,649 bytes, of which at most"):
        read_bytes(file, MAX_GENERATED_FILE_BYTES)
    with open_regular_file(file) as opened:
        lines = iter_lines(opened)
        assert [next(lines), next(lines)] == [b"one\n", b"two\n"]
        with pytest.raises(ValueError, match="a line of more than"):
            next(lines)
