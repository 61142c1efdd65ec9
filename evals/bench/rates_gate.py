"""Sections on qualities, costs, gates, the flows that no test separates from the best, and judges.

Worlds of costs, against a usual cost of 1 with normal noise: `P % x F` of the conversations take F times the usual, and
`+5 % on all` is dearer everywhere. Worlds of flows: four turns a conversation, right with a probability that all flows
share, less a loss.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from rates import Row, Section

from agentlab.evals.compare.baselines import mean_over_epochs
from agentlab.evals.compare.best import best
from agentlab.evals.compare.gate import evaluate_measures
from agentlab.evals.compare.measure_verdict import MeasureVerdict
from agentlab.evals.compare.paired import make_turn_tables, pair_measure

Turns = dict[tuple[str, int, int], dict[str, float | None]]
GATES = 5


def turns_of(name: str, values: np.ndarray) -> Turns:
    """Return turn values from an array of shape (epochs, conversations, turns)."""
    return {(f"c{c:03}", t, e): {name: float(value)} for (e, c, t), value in np.ndenumerate(values)}


def cost_passes(
    rare: float, times: float, stop: float | None, margin: float, size: int, random: np.random.Generator
) -> float:
    """Return 1 if a gate passes a cost whose rare conversations take `times` the usual; `rare` 1: all of them."""
    usual, now = random.normal(1, 0.02, (2, 1, size, 1)).clip(0.5)
    now = now * np.where(random.random((1, size, 1)) < rare, times, 1)
    stops = {} if stop is None else {"flow": {"cost_usd": max(stop, float(now.max()))}}
    sides = [{"flow": turns_of("cost_usd", values)} for values in (usual, now)]
    (verdict,), _ = evaluate_measures(*sides, {"cost_usd": margin}, 0.05, ["cost_usd"], stops=stops)
    return float(verdict.kind == "pass")


def quality_passes(world: str, loss: float, size: int, random: np.random.Generator) -> float:
    """Return 1 if a gate passes a quality that loses `loss` on average, with the default margin of .05."""
    lengths = random.integers(1, 11, size) if world == "uneven" else np.full(size, 4)
    skill, whole = random.beta(4, 1, size), random.random(size) < loss
    sides: tuple[Turns, Turns] = {}, {}
    for number, length in enumerate(lengths.tolist()):
        before = np.ones(length) if world == "rare" else (random.random(length) < skill[number]).astype(float)
        now = before if world == "rare" else (random.random(length) < skill[number]).astype(float)
        is_kept = 1.0 - whole[number] if world == "rare" else random.random(length) >= loss / 0.8
        for values, side in zip((before, now * is_kept), sides, strict=True):
            side.update({(f"c{number:03}", turn, 0): {"answer_f1": float(v)} for turn, v in enumerate(values)})
    (verdict,), _ = evaluate_measures(
        {"flow": sides[0]}, {"flow": sides[1]}, {}, 0.05, ["answer_f1"], longest=10 if world == "uneven" else 0
    )
    return float(verdict.kind == "pass" if loss else verdict.kind in ("pass", "unchanged"))


def decided(loss: float, size: int, random: np.random.Generator) -> float:
    """Return 1 if a gate at the margin .10 is decided after the upper number of more conversations that it printed."""

    def gated(sides: tuple[np.ndarray, ...]) -> MeasureVerdict:
        flows = [{"flow": turns_of("answer_f1", side[None])} for side in sides]
        return evaluate_measures(*flows, {"answer_f1": 0.1}, 0.05, ["answer_f1"])[0][0]

    def played(size: int) -> tuple[np.ndarray, ...]:
        skill = random.beta(4, 1, (size, 1))
        before, now = (random.random((size, 4)) < skill for _ in range(2))
        return before.astype(float), (now & (random.random((size, 4)) >= loss / 0.8)).astype(float)

    while (pilot := gated(first := played(size))).kind != "undecided" or pilot.conversations_needed is None:
        pass
    more = played(min(pilot.conversations_needed.high, 2000))
    return float(gated(tuple(np.vstack(both) for both in zip(first, more, strict=True))).kind != "undecided")


def alarms(epochs: int, loss: float, any_of_five: bool, size: int, random: np.random.Generator) -> float:
    """Return 1 if a gate, or any of five against one baseline, calls an answer worse."""
    skill = random.beta(4, 1, (size, 1))

    def played(epochs: int, loss: float) -> dict[str, Turns]:
        right = random.random((epochs, size, 4)) < skill
        is_kept = random.random((epochs, size, 4)) >= loss / 0.8
        return mean_over_epochs({"flow": turns_of("answer_f1", (right & is_kept).astype(float))})

    base = played(epochs, 0.0)
    for _ in range(GATES if any_of_five else 1):
        (verdict,), _ = evaluate_measures(base, played(1, loss), {}, 0.05, ["answer_f1"], gates=GATES)
        if verdict.kind == "worse":
            return 1.0
    return 0.0


def left_out(flows: int, gap: float, of_best: bool, size: int, random: np.random.Generator) -> float:
    """Return 1 if a best flow is left out of the set, or the fraction of the inferior flows that are."""
    skill = random.beta(4, 1, (1, size, 1))
    sides = []
    for loss in [0.0] + [gap] * (flows - 1):
        right, is_kept = random.random((1, size, 4)) < skill, random.random((1, size, 4)) >= loss / 0.8
        sides.append(turns_of("answer_f1", (right & is_kept).astype(float)))
    outcome = best({str(number): table for number, table in enumerate(make_turn_tables(sides))}, ["answer_f1"])
    assert outcome is not None
    (means,) = outcome.sets.values()
    if of_best:
        return float(any(not each.is_best for each in means if not gap or each.flow == "0"))
    return float(np.mean([not each.is_best for each in means if each.flow != "0"]))


def judge_claims(kinder: float, effect: float, size: int, random: np.random.Generator) -> float:
    """Return 1 if B is called better by a judge that passes a fraction `kinder` of its replies, whatever they say."""
    truth = [random.random(size) < p for p in (0.5, 0.5 + effect)]
    verdicts = [each ^ (random.random(size) < 0.2) for each in truth]
    verdicts[1] |= random.random(size) < kinder
    labelled = {*random.permutation(size)[: size // 2].tolist()}
    sides: list[Turns] = []
    for right, score in zip(truth, verdicts, strict=True):
        rows = turns_of("judge_correct", score[None, :, None])
        for (name, _, _), row in rows.items():
            if int(name[1:]) in labelled:
                row["label_correct"] = float(right[int(name[1:])])
        sides.append(rows)
    corrected = pair_measure("judge_correct", *make_turn_tables(sides)).corrected
    return float(corrected is not None and corrected.value < 0 and corrected.p_value(two_sided=True) < 0.05)


COSTS = (
    ("1 % x 6", "stop 10 x", "false", 0.01, 6.0, 10.0, 0.0499),
    ("2 % x 11", "stop 15 x", "false", 0.02, 11.0, 15.0, 0.05),
    ("2.5 % x 3", "stop 3.5 x", "false", 0.025, 3.0, 3.5, 0.0499),
    ("+5 % on all", "stop 3 x", "false", 1.0, 1.0501, 3.0, 0.05),
    ("+5 % on all", "no stop", "false", 1.0, 1.0501, None, 0.05),
    ("equal", "no stop", "power, +25 %", 0.0, 1.0, None, 0.25),
    ("equal", "stop 3 x", "power, +5 %", 0.0, 1.0, 3.0, 0.05),
    ("equal", "stop 3 x", "power, +25 %", 0.0, 1.0, 3.0, 0.25),
    ("equal", "stop 10 x", "power, +25 %", 0.0, 1.0, 10.0, 0.25),
)
SECTIONS = (
    Section(
        "Pass of a cost",
        "*false*: a gate passes a cost that is 5 % dearer on average; promised .05 at most. Without a stop"
        " nothing passes.",
        ("cost", "declared", ""),
        (20, 60, 120),
        [
            Row((world, stop, kind), partial(cost_passes, *numbers), high=0.05 if kind == "false" else 1.0)
            for world, stop, kind, *numbers in COSTS
        ],
    ),
    Section(
        "Pass of a quality",
        "*false*: a gate passes a quality whose mean loss is the margin, .05; promised .05 at most. *power*: it passes,"
        " or finds unchanged, a flow that is equally good. *rare*: conversations break as a whole. *uneven*:"
        " conversations of 1 to 10 turns.",
        ("world", ""),
        (20, 60, 120, 240),
        [
            Row((world, kind), partial(quality_passes, world, loss), high=high)
            for world in ("spread", "rare", "uneven")
            for kind, loss, high in (("false", 0.05, 0.05), ("power", 0.0, 1.0))
        ],
    ),
    Section(
        "A gate after N more conversations",
        "Rates at which a gate that was undecided at the margin .10 is decided after the upper number of further"
        " conversations that it printed: it passes, or calls the flow worse. Promised .75 at least, whatever the loss.",
        ("true loss",),
        (10, 20),
        [Row((f"{loss:.2f}",), partial(decided, loss), low=0.75) for loss in (0.0, 0.05, 0.1, 0.15)],
    ),
    Section(
        "Regression of a gate",
        "*false*: nothing changed, and the gate says `regression`: .01 of one gate, .05 of any of five against one"
        " baseline. *power*: each answer is lost with a probability that makes the mean loss .10.",
        ("baseline", "gates", ""),
        (20, 40, 60),
        [
            Row(("one run", "one", "false"), partial(alarms, 1, 0.0, False), high=0.01),
            Row(("one run", "any of five", "false"), partial(alarms, 1, 0.0, True), high=0.05),
            Row(("mean of five", "one", "false"), partial(alarms, 5, 0.0, False), high=0.01),
            Row(("mean of five", "any of five", "false"), partial(alarms, 5, 0.0, True), high=0.05),
            Row(("one run", "one", "power"), partial(alarms, 1, 0.1, False)),
            Row(("mean of five", "one", "power"), partial(alarms, 5, 0.1, False)),
        ],
    ),
    Section(
        "Not separated from the best",
        "*false*: a best flow is left out of the set; promised .05 at most. *power*: the fraction of the other flows"
        " that are left out, if one is best by .15.",
        ("truth", "flows", ""),
        (20, 60, 120),
        [
            row
            for flows in (5, 12)
            for row in (
                Row(("equal", str(flows), "false"), partial(left_out, flows, 0.0, True), high=0.05),
                Row(("one best", str(flows), "false"), partial(left_out, flows, 0.15, True), high=0.05),
                Row(("one best", str(flows), "power"), partial(left_out, flows, 0.15, False)),
            )
        ],
    ),
    Section(
        "A judge that labels correct",
        "Rates at which B is called better by a judge that errs on one reply in five. *kinder*: it passes .3 of B's"
        " replies whatever they say. Half of the turns have labels. Equal: false, promised .025 at most.",
        ("judge", "truth"),
        (40, 80, 160),
        [
            Row(("fair", "equal"), partial(judge_claims, 0.0, 0.0), high=0.025),
            Row(("kinder", "equal"), partial(judge_claims, 0.3, 0.0), high=0.025),
            Row(("kinder", "B better by .2"), partial(judge_claims, 0.3, 0.2)),
        ],
    ),
)
