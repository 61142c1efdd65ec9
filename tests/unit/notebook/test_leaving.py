"""A closed lab or chat leaves no task, thread or process behind, in any state; nor does the end of a kernel."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import psutil
import pytest

from agentlab import notebook
from agentlab.lab.lab import Lab
from agentlab.notebook.compare import show_flows
from support.mcp_servers import OURS, has_ended, is_alive
from support.paths import TESTS
from support.widgets import Slow, until

SERVER_TASKS = 8
IN_A_KERNEL = """
import sys
sys.path[:0] = {paths!r}
import agentlab as al, psutil
from agentlab import notebook
from support.widgets import Slow
model = Slow("one two three", pause="three")
lab = al.Lab(datasets=[{data!r}], flows=["tools"], mcp={mcp!r}, model=model, embedder="hashing/hashing-64")
widget = notebook.chat_widget(lab)
widget.ask.value = "How wide?"
widget.send_button.click()
while "two" not in widget.turns[0].text:
    await __import__("asyncio").sleep(0.01)
print(*[child.pid for child in psutil.Process().children(recursive=True)])
"""


def servers(folder: Path) -> str:
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"ours": OURS}}))
    return str(folder / "servers.json")


async def tasks(lab: Lab) -> int:
    async def count() -> int:
        return len(asyncio.all_tasks())

    return await asyncio.wrap_future(lab.loop.submit(count()))


async def test_widgets_that_are_closed_in_the_middle_of_it_leave_nothing(lab_over, tmp_path):
    threads, children = set(threading.enumerate()), psutil.Process().children(recursive=True)
    model = Slow("one two three", pause="three")
    lab = lab_over(model, flows=["rag_only", "tools"], mcp=servers(tmp_path))
    alone = await tasks(lab)
    chat = notebook.chat_widget(lab, memory=tmp_path / "memory")
    chat.second_flow.value = "tools"
    chat.ask.value = "How wide?"
    chat.send_button.click()
    await until(lambda: all("two" in turn.text for turn in chat.questions[0][1]))
    assert len(psutil.Process().children(recursive=True)) > len(children), "the server of the tools runs"
    chat.close()
    view = asyncio.create_task(show_flows(lab, "How wide?"))
    await until(lambda: bool(lab._chats) or view.done())
    view.cancel()
    await asyncio.gather(view, return_exceptions=True)
    for _ in range(500):
        if await tasks(lab) <= alone + SERVER_TASKS:
            break
        await asyncio.sleep(0.01)
    assert await tasks(lab) <= alone + SERVER_TASKS and not lab._chats
    model.go.set()
    run = await lab.run(out=tmp_path / "run")
    notebook.label(run).close()
    lab.close()
    assert set(threading.enumerate()) <= threads
    assert psutil.Process().children(recursive=True) == children


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets of the client
@pytest.mark.parametrize("killed", [False, True])
def test_a_kernel_that_ends_takes_the_processes_with_it(dataset, tmp_path, own_home, killed):
    from jupyter_client.manager import start_new_kernel

    source = IN_A_KERNEL.format(paths=[str(TESTS), str(TESTS.parent)], data=str(dataset), mcp=servers(tmp_path))
    manager, client = start_new_kernel()
    texts: list[str] = []
    try:
        client.execute_interactive(
            source, timeout=60, output_hook=lambda message: texts.append(message["content"].get("text", ""))
        )
        pids = [int(pid) for pid in "".join(texts).split()]
        assert pids and all(map(is_alive, pids))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=killed)
    for pid in pids:
        assert asyncio.run(has_ended(pid))
