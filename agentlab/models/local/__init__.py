"""Embedded model: llama.cpp serves a GGUF file in a child process, on the CPU, without key or network.

`model`: the provider `local`. `server`: the child process. `tool_protocol`: the texts that describe tools
to the model, their `EDITION`, and the parser of its replies. `trial`: what an unknown file can do.
"""

from agentlab.models.local.model import connect, identity, seconds_per_call

__all__ = ["connect", "identity", "seconds_per_call"]
