"""Scripts: files of replies for the scripted model."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentlab.core.errors import ConfigError, RateLimited
from agentlab.core.messages import Message, Request
from agentlab.models.scripted import connect

HELLO = Request(messages=(Message(role="user", text="Hello"),))


async def test_a_file_holds_every_kind_of_reply(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(
        "loop: true\n"
        "replies:\n"
        "  - plain\n"
        "  - {text: said, tool_calls: [{name: a, arguments: {n: 1}}, {name: b, id: mine}]}\n"
        "  - {error: RateLimited}\n"
    )
    model = connect(str(script))
    assert model.name == f"scripted/{script}"
    assert (await model.complete(HELLO, print)).message.text == "plain"
    second = (await model.complete(HELLO, print)).message
    assert (second.text, [(call.id, call.name, call.arguments) for call in second.tool_calls]) == (
        "said",
        [("call_1", "a", {"n": 1}), ("mine", "b", {})],
    )
    with pytest.raises(RateLimited, match="scripted failure"):
        await model.complete(HELLO, print)
    assert (await model.complete(HELLO, print)).message.text == "plain"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("replies: [", "not YAML"),
        ("[a]", "Expected `object`"),
        ("replies: none", "Expected `array`"),
        ("{replies: [], lop: true}", "unknown field `lop`"),
        ("replies: [{text: 3}]", r"Expected `str`, got `int` - at `\$\.replies\[0\]\.text`"),
        ("replies: [{txt: a}]", "unknown field `txt`"),
        ("replies: [{error: Sad}]", "Invalid enum value 'Sad'"),
        ("replies: [{tool_calls: [{nam: a}]}]", "Unexpected keyword argument 'nam'"),
    ],
)
def test_invalid_script_is_one_line(tmp_path: Path, written: str, text: str) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(written)
    with pytest.raises(ConfigError, match=text) as caught:
        connect(str(script))
    assert "\n" not in str(caught.value) and str(script) in str(caught.value)
