"""The embedded model: a GGUF file served by llama.cpp in a child process, on the CPU, without key or network.

`model`: the provider `local`. `server`: the child process. `tool_protocol`: the texts that offer it tools, with
`EDITION`, and the parser of its replies.
"""

from agentlab.models.local.model import connect, identity, seconds_per_call

__all__ = ["connect", "identity", "seconds_per_call"]
