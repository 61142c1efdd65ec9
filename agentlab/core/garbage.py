"""How often Python looks for garbage in a process that is ours alone."""

import gc


def collect_seldom() -> None:
    """What is imported lives until the end, and by default is walked over again and again while more is imported."""
    gc.set_threshold(100_000, 50, 100)
