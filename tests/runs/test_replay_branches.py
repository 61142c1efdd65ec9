"""Branches, retries, specs and backends beside each other keep their own answers and times in a replay."""

from __future__ import annotations

import asyncio

from agentlab.core.errors import BadRequest, ServerFault
from agentlab.core.messages import Reply
from agentlab.models.scripted import Scripted
from agentlab.workbench import variants
from support.replays import VaryingModel, ask, lab, play, replay, replay_invariants


def test_branches_that_ask_the_same_get_their_own_answers_back(dataset, tmp_path):
    async def branching(turn, session):
        # What is in flight would be shared.
        nothing_in_flight = asyncio.Event()

        async def patient():
            first = await ask(session, "slow")
            await nothing_in_flight.wait()
            return first, await ask(session, "the same")

        async def quick():
            completions = await ask(session, "the same"), await ask(session, "the same")
            nothing_in_flight.set()
            return completions

        (a, b), (c, d) = await session.parallel(patient(), quick())
        return Reply(text=f"{a} {b} {c} {d}")

    recorded = play(dataset, "record", tmp_path / "a", model=VaryingModel(), flows=[branching])
    replayed = replay(dataset, tmp_path / "b", flows=[branching], concurrency=3)
    assert replay_invariants(replayed) == replay_invariants(recorded)
    assert len(set(recorded.turns["reply"][0].split()) - {"answer"}) == 4


def test_a_branch_that_fails_does_not_end_the_others_at_a_matter_of_speed(dataset, tmp_path):
    class Refusing(VaryingModel):
        async def complete(self, request, emit):
            if "refuse" in request.messages[-1].text:
                await asyncio.sleep(0.01)
                raise BadRequest("no", self.name)
            return await super().complete(request, emit)

    async def branching(turn, session):
        async def steady():
            for number in range(4):
                await ask(session, f"{turn.text} {number}")

        await session.parallel(ask(session, f"refuse {turn.text}"), steady())
        return Reply(text="never")

    recorded = play(dataset, "record", tmp_path / "a", model=Refusing(), flows=[branching])
    assert recorded.summary["flows"]["branching"]["llm_calls"] == 6 * 4
    assert replay_invariants(replay(dataset, tmp_path / "b", flows=[branching])) == replay_invariants(recorded)


def test_a_retry_while_recording_does_not_change_the_flows_own_chances(dataset, tmp_path):
    async def gambling(turn, session):
        await ask(session, turn.text)
        return Reply(text=str(session.random.randrange(10**9)))

    model = Scripted([ServerFault("500", "scripted"), "yes"], loop=True)
    recorded = play(dataset, "record", tmp_path / "a", model=model, flows=[gambling])
    assert recorded.summary["flows"]["gambling"]["errors"] == 0
    assert list(replay(dataset, tmp_path / "b", flows=[gambling]).turns["reply"]) == list(recorded.turns["reply"])


def test_two_specs_in_one_folder_keep_their_own_answers_and_times(dataset, tmp_path):
    runs = {}
    for name in ("a", "b"):
        runs[name] = play(dataset, "record", tmp_path / name, model=VaryingModel(), flows=["rag_only"], name=name)
    for name, recorded in runs.items():
        replayed = replay(dataset, tmp_path / f"{name} again", flows=["rag_only"], name=name)
        assert replay_invariants(replayed) == replay_invariants(recorded)


def test_backends_keep_their_own_times(dataset, tmp_path):
    async def remembering(turn, session):
        await session.remember(turn.text)
        return Reply(text="noted")

    class Flow:
        MEMORY = True
        respond = staticmethod(remembering)
        name = "remembering"

    flow = Flow()
    with lab(dataset, "record", flows=[flow], limit=1) as laboratory:
        entries = [{"flow": "remembering", "label": name, "memory": name} for name in ("sqlite", "textfile")]
        spec = laboratory.bench.spec.model_dump() | {"flows": entries}
        laboratory.bench.spec = type(laboratory.bench.spec).model_validate(spec)
        laboratory.bench.variants = tuple(
            variants.make_variant(laboratory.bench.spec, entry, flow) for entry in laboratory.bench.spec.flows
        )
        run = laboratory.run_sync(out=tmp_path / "a")
    assert set(run.calls.loc[run.calls["kind"] == "memory", "origin"]) == {"live"}


def test_an_interrupted_run_is_charged_for_its_calls(dataset, tmp_path):
    model = VaryingModel()
    with lab(dataset, "live", model, flows=["rag_only"]) as laboratory:
        laboratory.run_sync(out=tmp_path / "a")
    turns = tmp_path / "a" / "turns.jsonl"
    # As if it had been killed after the last event, before its turn was written: there is no summary yet.
    turns.write_text("".join(turns.read_text().splitlines(True)[:-1]))
    (tmp_path / "a" / "summary.json").unlink()
    with lab(dataset, "live", model, flows=["rag_only"]) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "a", resume=True)
    flow = run.summary["flows"]["rag_only"]
    assert (flow["llm_calls"], flow["billed"]["llm_calls"], model.received) == (6, 8, 8)
