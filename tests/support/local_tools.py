"""Files of local tools, as in a data folder."""

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
from agentlab.tools import tool

@tool(description="Ours.", parameters={}, instruction="Just call it.")
async def good(arguments, context):
    return f"at {context.now:%H:%M}"
"""
