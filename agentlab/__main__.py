"""`python -m agentlab` is `agentlab`."""

from agentlab.cli.parser import main

if __name__ == "__main__":
    raise SystemExit(main())
