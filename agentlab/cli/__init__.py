"""The command `agentlab`: its parser, its commands and their output.

Import `main` from `parser`; nothing else imports from this room.
"""
