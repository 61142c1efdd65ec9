"""The front door for people: `Lab` runs a spec, `Chat` talks to one of its flows.

Import both from here; nothing below this room knows them.
"""

from agentlab.lab.chat import Chat as Chat
from agentlab.lab.lab import Lab as Lab
