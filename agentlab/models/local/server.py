"""The child process of the embedded model: llama.cpp's server on 127.0.0.1, for as long as its parent lives.

The first line of its standard input says what to serve, the key in it never stands where others could read it:

    {"model": "F.gguf", "context": 8192, "threads": 2, "prompt_cache": 0, "key": "secret"}

When the model is loaded it prints its port on one line and answers requests that carry the key. It ends when its
standard input closes, which the system does even for a parent that was killed. llama.cpp's own output goes to standard
error. It is a process of its own because ending the server inside a process can hang it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any, NoReturn


def parameters(model: str, context: int, threads: int, prompt_cache: int, key: str) -> Any:
    """llama.cpp's settings: one slot, only this machine, only with the key, the same reply to the same request.

    `context` is in tokens, prompt and reply together; `prompt_cache` is in MiB, 0 for none.
    """
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = context
    params.n_parallel = 1
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.fit_params = False  # it would shorten the context silently where memory is tight
    # A prompt that is cached in part is evaluated in other batches, and rounding then changes some replies.
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
    """Serve until standard input ends; leaves by `os._exit` whatever happens."""
    wanted = json.loads(sys.stdin.readline())
    # Spinning OpenMP threads cost two thirds of the speed as soon as anything else runs. Read when the library loads.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # llama.cpp may write to standard output; the one line the parent reads keeps it to itself.
    report = os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        import xllamacpp

        # Grammars are handed over in llguidance's form; another build would abort at the first one.
        assert xllamacpp.json_schema_to_grammar({}).startswith("%llguidance"), "xllamacpp was built without llguidance"
        server = xllamacpp.Server(parameters(**wanted))
        port = server.listening_address.rsplit(":", 1)[1]
    except Exception as error:
        os.write(2, f"cannot serve {wanted['model']}: {error}\n".encode())
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
