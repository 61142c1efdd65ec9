"""Files of local tools, as a data folder holds them."""

from __future__ import annotations

DICE = """
NAME = "dice"
DESCRIPTION = "Roll a die."
PARAMETERS = {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]}

def execute(arguments):
    if arguments["sides"] == 0:
        raise ValueError("no sides")
    return {"rolled": arguments["sides"]}
"""
SLEEPY = """
import asyncio
name, description, parameters = "sleepy", "Sleep.", {"properties": {"seconds": {"type": "number"}}}

async def execute(arguments):
    await asyncio.sleep(arguments["seconds"])
"""
BUILT = """
from agentlab.core.messages import ToolSpec

class Add:
    spec = ToolSpec(name="good", description="Ours.", parameters={"type": "object"})
    instruction = "Just call it."
    def run(self, arguments, session):
        return f"at {session.now:%H:%M}"

def build():
    return Add()
"""
