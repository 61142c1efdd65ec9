"""Everything that is installed with agentlab has a licence that is known and asks nothing of those who use it."""

from __future__ import annotations

import pytest

from support.licences import table, verdict


def test_no_dependency_is_copyleft_or_of_unknown_licence():
    rows = table()
    assert len(rows) > 50 and {"numpy", "openai", "chromadb"} <= {row[0] for row in rows}
    assert not [row for row in rows if not row[3].startswith("ok")]
    assert "secantusdb" not in {row[0] for row in rows}, "tools of the tests are not given to anybody"


@pytest.mark.parametrize(
    "name, licence, judged",
    [
        *(("a", "MIT", "ok"), ("a", "BSD-3-Clause AND Apache-2.0", "ok"), ("a", "GPL-3.0 OR MIT", "ok")),
        *(("a", "GPL-2.0-only", "copyleft"), ("a", "LGPL-3.0", "copyleft"), ("a", "MIT AND MPL-2.0", "copyleft")),
        *(("a", "", "unknown"), ("a", "Proprietary", "unknown"), ("a", "MIT License, GNU General Public", "copyleft")),
    ],
)
def test_the_verdict_is_that_of_the_strictest_part(name, licence, judged):
    assert verdict(name, licence) == judged
    assert verdict("certifi", "MPL-2.0").startswith("ok (")
