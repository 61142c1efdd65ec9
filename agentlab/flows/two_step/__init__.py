"""The orchestrator of `chatbox` and `discord`: one model call chooses a tool, a second one writes its arguments."""
