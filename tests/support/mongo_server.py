"""A server of the wire protocol of MongoDB, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

SERVER = Path(sys.executable).with_name("secantusd-py")


class MongoServer:
    """A server of MongoDB's wire protocol, of this test run."""

    def __init__(self, storage: str = ":memory:") -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.uri = f"mongodb://127.0.0.1:{self.port}"
        self.storage = storage
        self.start()

    def start(self) -> None:
        command = [SERVER, "--host", "127.0.0.1", "--port", str(self.port), "--storage-path", self.storage]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the MongoDB stand-in did not start")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
