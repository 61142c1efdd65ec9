"""Starts a server under limits, in its place: `python launch.py BYTES COMMAND ARGUMENT...`

`BYTES` is the memory that it may take. On Linux it ends with the process that started it, however that ends. Run as a
file, by an interpreter that need not have this package.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    most, command = int(sys.argv[1]), sys.argv[2:]
    # Not the address space, of which some runtimes reserve a thousand times what they use.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell reads what the user configured
    except OSError as problem:
        sys.exit(f"{command[0]}: {problem.strerror}")


if __name__ == "__main__":
    main()
