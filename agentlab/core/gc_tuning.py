"""How often Python looks for garbage."""

import gc


def relax_gc() -> None:
    """For the process, from here on: what is imported and what a conversation makes lives on, in hardly any circle.

    By default every 700 new objects are walked over, which is a tenth of the time of a run.
    """
    gc.set_threshold(100_000, 50, 100)
