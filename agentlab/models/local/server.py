"""The child process of the embedded model: llama.cpp's server on 127.0.0.1, for as long as its parent lives.

    AGENTLAB_LLAMA_KEY=secret python -m agentlab.models.local.server --model F.gguf --context 8192 --threads 2

When the model is loaded it prints one line, `{"port": 40123, "pid": 4242}`, and answers requests that carry the key.
It ends when its standard input closes, which the system does even for a parent that was killed. llama.cpp's own output
goes to standard error. It is a process of its own because ending the server inside a process can hang it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

KEY_VARIABLE = "AGENTLAB_LLAMA_KEY"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m agentlab.models.local.server", description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--context", type=int, default=8192, help="tokens of prompt and reply together")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--prompt-cache", type=int, default=0, metavar="MIB", help="keep prompts in this much memory")
    parser.add_argument("--log", type=Path, help="where standard error goes; deleted when the parent is gone")
    return parser.parse_args(arguments)


def parameters(options: argparse.Namespace, key: str) -> Any:
    """llama.cpp's settings: one slot, only this machine, only with the key, the same reply to the same request."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(options.model)
    params.n_ctx = options.context
    params.n_parallel = 1
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.fit_params = False  # it would shorten the context silently where memory is tight
    # A prompt that is cached in part is evaluated in other batches, and rounding then changes some replies.
    params.cache_prompt = options.prompt_cache > 0
    params.cache_ram_mib = options.prompt_cache
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
    options = parse()
    key = os.environ.pop(KEY_VARIABLE)
    # Spinning OpenMP threads cost two thirds of the speed as soon as anything else runs. Read when the library loads.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # llama.cpp may write to standard output; the one line the parent reads keeps it to itself.
    report = os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, args=(options.log,), daemon=True).start()
    try:
        import xllamacpp

        # Grammars are handed over in llguidance's form; another build would abort at the first one.
        assert xllamacpp.json_schema_to_grammar({}).startswith("%llguidance"), "xllamacpp was built without llguidance"
        server = xllamacpp.Server(parameters(options, key))
        port = int(server.listening_address.rsplit(":", 1)[1])
    except Exception as error:
        sys.stderr.write(f"cannot serve {options.model}: {error}\n")
        sys.stderr.flush()
        os._exit(1)
    os.write(report, json.dumps({"port": port, "pid": os.getpid()}).encode() + b"\n")
    os.close(report)
    threading.Event().wait()
    os._exit(0)


def _end_with_parent(log: Path | None) -> None:
    while os.read(0, 4096):
        pass
    if log is not None:
        log.unlink(missing_ok=True)
    os._exit(0)


if __name__ == "__main__":
    main()
