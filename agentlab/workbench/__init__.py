"""The parts that a spec names, ready for use: variants of flows, queued models, indexes, memories and sessions.

Evaluations and chats use this room and do not import each other.
"""
