"""A Lab and the chat widget inside a real ipykernel, while cells await and block."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from support.paths import OWN, TESTS

pytestmark = pytest.mark.slow


class Kernel:
    """A real ipykernel; `drawn` is every state that widgets sent to the browser's side."""

    def __init__(self, folder: Path) -> None:
        from jupyter_client.manager import start_new_kernel

        env = {**os.environ, "PYTHONPATH": str(TESTS)}
        self.manager, self.client = start_new_kernel(kernel_name="python3", cwd=str(folder), env=env)
        self.drawn: list[dict] = []
        self.displayed: list[dict] = []

    def begin(self, source: str) -> str:
        return self.client.execute(dedent(source))

    def finish(self, cell: str) -> None:
        """Read what the kernel sends until the cell has ended; an error in it fails the test."""
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            kind, content = message["msg_type"], message["content"]
            if kind in ("comm_open", "comm_msg"):
                self.drawn.append(content["data"].get("state", {}))
            if kind in ("display_data", "update_display_data", "execute_result"):
                self.displayed.append(content["data"])
            assert kind != "error", "\n".join(content["traceback"])
            if message["parent_header"].get("msg_id") == cell and content.get("execution_state") == "idle":
                return

    def run(self, source: str) -> None:
        self.finish(self.begin(source))

    def click(self, comm_id: str) -> None:
        data = {"method": "custom", "content": {"event": "click"}}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", {"comm_id": comm_id, "data": data}))

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(own_home: Path, tmp_path: Path) -> Iterator[Kernel]:
    kernel = Kernel(tmp_path)
    yield kernel
    kernel.close()


def test_lab_and_widget_work_in_a_running_kernel(kernel, tmp_path):
    kernel.run(
        f"""
        import asyncio, time
        import agentlab as al
        from agentlab import notebook
        from support.widgets import ANSWER, LOOKUP, Slow
        def reply(request):
            return LOOKUP if request.tools and request.messages[-1].role == "user" else ANSWER
        spec = {{"datasets": [{str(OWN / "laws")!r}], "limit": 1, "flows": ["rag_only", "tools"]}}
        spec["embedder"] = "hashing/hashing-256"
        lab = al.Lab(model=al.Scripted([reply], loop=True), **spec)
        run = await lab.run(out="awaited", on_progress=notebook.progress())
        assert len(run.turns) == 6 and not run.turns["error"].any()
        """
    )
    kernel.run(
        """
        assert lab.run_sync(out="blocking").summary["flows"]["tools"]["llm_calls_per_turn"] == 2
        await notebook.show_flows(lab, "How wide is a goal?")
        """
    )
    assert (tmp_path / "awaited" / "summary.json").exists() and (tmp_path / "blocking" / "summary.json").exists()
    assert any(state.get("value") == "turn 6 of 6" for state in kernel.drawn), "the progress bar got to its end"
    assert "rag_only on scripted" in kernel.displayed[-1]["text/plain"]
    kernel.run(
        """
        model = Slow("one two three four", pause="three")
        chat = notebook.chat_widget(al.Lab(model=model, **spec))
        display(chat)
        display(chat.send_button.comm.comm_id)
        """
    )
    widget, stored, _ = kernel.displayed[-3:]
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert "application/vnd.jupyter.widget-view+json" not in stored, "what a saved notebook shows of the chat"
    # A hand clicks while a cell awaits: the reply begins before the cell has ended.
    cell = kernel.begin(
        """
        chat.ask.value = "Count"
        while not chat.turns or "one two" not in chat.turns[-1].reply.value:
            await asyncio.sleep(0.05)
        """
    )
    time.sleep(0.5)
    kernel.click(kernel.displayed[-1]["text/plain"].strip("'"))
    kernel.finish(cell)
    # A cell that blocks the kernel does not hold up the reply.
    kernel.run("model.go.set(); assert chat.answering.result(30).text == 'one two three four'")
    kernel.run("lab.close(); chat.lab.close()")
    assert any("one two three four" in str(state.get("value")) for state in kernel.drawn)
