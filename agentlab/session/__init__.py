"""What a flow is handed: the traced verbs of one conversation, on a clock that a replay repeats.

Import `Session` and `Generation` from here; `history` and `clock` are for whoever makes a session.
"""

from agentlab.session.session import Generation as Generation
from agentlab.session.session import Session as Session
