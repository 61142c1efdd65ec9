"""The embedded model: a GGUF file served by llama.cpp in a child process, on the CPU, without key or network."""

from agentlab.models.local.model import connect, identity, seconds_per_call

__all__ = ["connect", "identity", "seconds_per_call"]
