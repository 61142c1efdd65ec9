"""The command `agentlab`: its parser, its commands, and what they print.

Import `main` from `parser`; nothing else imports from this room.
"""
