"""`python -m agentlab` is `agentlab`."""

from agentlab.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
