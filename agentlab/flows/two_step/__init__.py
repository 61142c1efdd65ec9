"""What `chatbox` and `discord` share: the orchestrator that chooses a tool in one call and fills it in a second."""
