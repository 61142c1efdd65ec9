"""Child process of the embedded model: llama.cpp's server on 127.0.0.1, which ends with its parent.

The first line of standard input holds the settings, so that other users cannot read the key:

    {"model": "F.gguf", "context": 8192, "threads": 2, "prompt_cache": 0, "key": "secret"}

Once the model is loaded, the process prints its port on one line and answers requests that carry the key. It ends when
its standard input closes, which also happens if the parent is killed. The output of llama.cpp goes to standard error.
The server has its own process because stopping it inside a process can hang that process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any, NoReturn


def parameters(model: str, context: int, threads: int, prompt_cache: int, key: str) -> Any:
    """Return the settings of llama.cpp: one slot, local clients with the key only, reproducible replies.

    `context` is in tokens, prompt and reply together; `prompt_cache` is in MiB, 0 for none.
    """
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = context
    params.n_parallel = 1
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.fit_params = False  # it silently shortens the context if memory is low
    # A partly cached prompt is evaluated in other batches, and rounding then changes some replies.
    params.cache_prompt = prompt_cache > 0
    params.cache_ram_mib = prompt_cache
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.cors_origins = "http://127.0.0.1"
    params.ui = False
    params.endpoint_slots = False
    params.n_threads_http = 2
    return params


def main() -> NoReturn:
    """Serve until standard input ends; always exits with `os._exit`."""
    settings = json.loads(sys.stdin.readline())
    # Spinning OpenMP threads lose two thirds of the speed on a busy machine. The library reads this when it loads.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # llama.cpp may write to standard output, where the parent expects only the port.
    report = os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        import xllamacpp

        # Requests carry grammars in the format of llguidance; a build without it aborts at the first one.
        assert xllamacpp.json_schema_to_grammar({}).startswith("%llguidance"), "xllamacpp was built without llguidance"
        server = xllamacpp.Server(parameters(**settings))
        port = server.listening_address.rsplit(":", 1)[1]
    except Exception as error:
        os.write(2, f"cannot serve {settings['model']}: {error}\n".encode())
        os._exit(1)
    os.write(report, f"{port}\n".encode())
    os.close(report)
    threading.Event().wait()
    os._exit(0)


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
