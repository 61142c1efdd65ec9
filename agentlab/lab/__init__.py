"""The front door for users: `Lab` runs a spec, `Chat` is a conversation with one of its flows.

Import both from here. No room below imports this one.
"""

from agentlab.lab.chat import Chat as Chat
from agentlab.lab.lab import Lab as Lab
