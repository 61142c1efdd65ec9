"""Your own flow: search, call the model, reply. Change it and run `agentlab run` again.

The session counts every call of its verbs (retrieve, complete, call_tool, recall, remember, parallel, ...).
"""

import agentlab as al

CALLS_PER_TURN = 1.0  # model calls, for the estimate before a run
PROMPTS = {"system": "Answer in one sentence, from these passages alone; say so where they do not.\n\n{passages}"}


async def respond(turn: al.UserTurn, session: al.Session) -> al.Reply:
    passages = await session.retrieve(turn.text)  # retrieval.top_k passages
    listed = "\n\n".join(f"[{number}] {passage}" for number, passage in enumerate(passages, 1))
    system = al.Message(role="system", text=session.prompt("system", passages=listed))
    question = al.Message(role="user", text=turn.text)
    completion = await session.complete([system, *session.load_conversation(), question])
    reply = completion.text
    session.save_message("user", turn.text)  # for load_conversation in the next turn
    session.save_message("agent", reply)
    return al.Reply(text=reply, citations=al.cite(reply, passages))
