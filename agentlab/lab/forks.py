"""Continues a recorded run from a turn with another flow, prompt, model or memory.

forked = al.fork("results/a", 3, model="openai/my-model")       # keeps turns 1 and 2, plays the rest
forked = al.fork("results/a", 2, flow="tools", replace_flow="rag_only")
al.compare(al.open_run("results/a"), forked)                    # compares the new turns
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentlab.core import plugins
from agentlab.core.constants import Mode
from agentlab.core.errors import ConfigError, RunError
from agentlab.core.trace import turn_index
from agentlab.evals.play.player import Fork
from agentlab.lab.lab import Lab
from agentlab.lab.run import Run, open_run
from agentlab.workbench.spec import FlowSpec, make_spec
from agentlab.workbench.variants import make_variant

_FIXED = ("datasets", "limit", "sample", "epochs", "ingest")
"""Keys of a spec that decide the turns of a run; a fork keeps them."""


def fork(
    run: Run | str | Path,
    turn: int,
    *,
    flow: str | Mapping[str, Any] | None = None,
    replace_flow: str | None = None,
    mode: Mode = "auto",
    out: str | Path | None = None,
    **overrides: Any,
) -> Run:
    """Keep the turns before `turn` of every conversation of a run, play the others, and return the new run.

    `turn` counts from 1: with 3 the fork keeps turns 1 and 2.

    `flow`, a name or an entry of a spec, replaces the flow `replace_flow` (needed if the run has several). Without
    `flow`, each flow continues itself. `overrides` are keys of the spec, such as `model` or `retrieval__top_k`.
    `mode` is `auto` or `replay`, `out` the folder of the new run. Kept turns come from recordings, without model calls.

    Raises RunError for a run without recordings or without such a turn, ConfigError for a key that a fork keeps.
    """
    run = run if isinstance(run, Run) else open_run(run)
    header = run.header
    if header["spec"]["mode"] == "live":
        raise RunError(
            f"{run.path} has no recordings, so its turns cannot be copied; run it with --mode record or auto"
        )
    first = turn_index(turn)
    longest = max((row.turn for row in run.turn_rows()), default=-1) + 1
    if first >= longest:
        raise RunError(f"turn {turn}: the longest conversation of {run.path} has {longest} turns; name 1 to {longest}")
    changed = {key.replace("__", "."): value for key, value in overrides.items()}
    for key in changed:
        if key.split(".")[0] in (*_FIXED, "flows", "name", "mode"):
            raise ConfigError(f"{key}: a fork cannot change it, because it continues the run's conversations")
    source = make_spec(dict(header["spec"]), {})
    names = [entry.name for entry in source.flows]
    plugins.check_names("flow of this run", names[:1] if replace_flow is None else [replace_flow], names)
    flows = [entry for entry in source.flows if replace_flow in (None, entry.name)]
    if flow is not None and len(flows) > 1:
        raise ConfigError(f"several flows; name the one to replace: --replace-flow {' or --replace-flow '.join(names)}")
    new_flows = flows if flow is None else [FlowSpec.model_validate({"flow": flow} if isinstance(flow, str) else flow)]
    data = {
        **source.model_dump(exclude_unset=True),
        "name": f"{source.name}-fork",
        "also_recorded": (source.name, *source.also_recorded),
        "flows": [_without(changed, entry.model_dump(exclude_unset=True)) for entry in new_flows],
        "mode": mode,
    }
    source_variants = {new.name: make_variant(source, old) for new, old in zip(new_flows, flows, strict=True)}
    with Lab(make_spec(data, changed, "the fork")) as lab:
        return lab.run_sync(out=out, fork=Fork(of=str(run.path), turn=first, source_variants=source_variants))


def _without(changed: Mapping[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """Return a flow's entry without the changed keys, which it would override."""
    for key in changed:
        outer, _, inner = key.partition(".")
        if not inner:
            entry.pop(outer, None)
        elif isinstance(entry.get(outer), Mapping):
            entry[outer] = {name: value for name, value in entry[outer].items() if name != inner}
    return entry
