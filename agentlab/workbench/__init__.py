"""Everything that a spec asks for, ready for runs and chats: variants, models, indexes, memories and sessions.

`spec`: the keys of a spec and their defaults. `variants`: flows with all their settings. `settings`: the settings of
a flow as text and schema. `prompt_files`: prompts from a data folder. `workbench`: opens models, indexes, memories and
sessions. `seat`: the parts of one conversation. `turn_driver`: plays one turn. `loop`: the event loop in a thread.
"""
