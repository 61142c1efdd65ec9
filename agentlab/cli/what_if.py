"""`agentlab fork`, `cost` and `memory`: a run as it would have gone, and what it remembered."""

from __future__ import annotations

import argparse
import math
from typing import Any


def fork(arguments: argparse.Namespace) -> int:
    import yaml

    from agentlab.cli.commands import show_reuse, spec_overrides
    from agentlab.cli.comparing import show_pairs
    from agentlab.cli.say import say
    from agentlab.core.errors import ConfigError
    from agentlab.evals.compare.pairs import compare
    from agentlab.lab.forks import fork
    from agentlab.lab.run import open_run

    try:
        flow = None if arguments.flow is None else yaml.safe_load(arguments.flow)
    except yaml.YAMLError:
        raise ConfigError(
            f"--flow {arguments.flow!r}: a name, or an entry such as '{{flow: tools, label: mine}}'"
        ) from None
    before = open_run(arguments.run)
    after = fork(
        before,
        arguments.turn,
        flow=flow,
        of=arguments.of,
        mode=arguments.mode,
        out=arguments.out,
        **spec_overrides(arguments, ()),
    )
    missed = show_reuse(after)
    say(f"{after.path}: turns from {arguments.turn + 1} on are new; compared with {before.path}, these turns only")
    if missed:
        return 1
    now, then = next(iter(after.header["fork"]["flows"].items()))
    show_pairs(compare(before, after, flows=[then, now] if flow is not None else ()), [before, after])
    return 0


def cost(arguments: argparse.Namespace) -> None:
    from agentlab.cli.say import say
    from agentlab.core.prices import load_prices
    from agentlab.evals.cost import CacheRules, Elsewhere, breaks
    from agentlab.evals.report.tables import new_console, print_table
    from agentlab.lab.run import open_run

    run = open_run(arguments.run)
    names = ("model", "cached", "prefill", "decode", "per_call")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    block = arguments.block if given or arguments.prices or arguments.block is not None else 1
    rules = None if block is None else CacheRules(block=block, minimum=arguments.minimum)
    given |= {"cached": rules} if rules else {}
    prices = load_prices(arguments.prices or run.header["spec"].get("prices"))
    table = Elsewhere(prices=prices, **given).table(run)
    say(f"{run.run_id}: what was said, its calls and its tokens stay; no model is asked")
    console = new_console()
    rows = [[str(name), *map(_shown, table[name])] for name in table]
    print_table(console, "as it was, and there", ["", *table.index], rows)
    if rules and (lost := breaks(run, rules)):
        rows = [[where, f"{times:,}", f"{tokens:,}"] for where, times, tokens in lost]
        heading = "where prompts leave what was sent before: flow, phase, part"
        print_table(console, heading, ["", "times", "tokens lost"], rows)


def memory(arguments: argparse.Namespace) -> None:
    from agentlab.cli.say import say
    from agentlab.core.shown import printable
    from agentlab.evals.report.tables import new_console, print_table
    from agentlab.lab.run import open_run

    run = open_run(arguments.run)
    view = run.memory(arguments.conversation, arguments.flow)
    say(repr(view).strip("<>").replace("MemoryView", "memory"))
    table = view.table
    rows = [[printable(_shown(cell)) for cell in row] for row in table.itertuples(index=False)]
    if rows:
        print_table(new_console(), "", [*table.columns], rows)


def _shown(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
