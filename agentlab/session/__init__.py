"""What a flow is handed: the traced verbs of one conversation, on a clock that a replay repeats.

Import `Session`, the values it is made of and `History` from here.
"""

from agentlab.session.history import History as History
from agentlab.session.session import Session as Session
from agentlab.session.traced import Bounds as Bounds
from agentlab.session.traced import Files as Files
from agentlab.session.traced import Generation as Generation
from agentlab.session.traced import Has as Has
