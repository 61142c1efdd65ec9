"""Replaces itself by a server with limits: `python launch.py BYTES COMMAND ARGUMENT...`

`BYTES` is the server's memory limit. On Linux the server ends with its parent process, even if that is killed. This
file runs as a script, so its interpreter need not have the package installed.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    limit, command = int(sys.argv[1]), sys.argv[2:]
    # Do not limit the address space: some runtimes reserve a thousand times the memory that they use.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell reads what the user configured
    except OSError as problem:
        sys.exit(f"{command[0]}: {problem.strerror}")


if __name__ == "__main__":
    main()
