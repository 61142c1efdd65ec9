"""What a spec asks for, made ready to work: variants of flows, models behind their queues, indexes, memories, sessions.

Evaluations and chats stand on it, and neither knows the other.
"""
