"""A flow of your own: look something up, ask the model, answer. Change it, and run `agentlab run` again.

Every verb of the session (retrieve, complete, call_tool, recall, remember, parallel, ...) is counted for you.
"""

import agentlab as al

CALLS_PER_TURN = 1.0  # model calls, for the estimate before a run
PROMPTS = {"system": "Answer in one sentence, from these passages alone; say so where they do not.\n\n{passages}"}


async def respond(turn: al.UserTurn, session: al.Session) -> al.Reply:
    passages = await session.retrieve(turn.text)  # as many as retrieval.top_k says
    listed = "\n\n".join(f"[{number}] {passage}" for number, passage in enumerate(passages, 1))
    system = al.Message(role="system", text=session.prompt("system", passages=listed))
    question = al.Message(role="user", text=turn.text)
    completion = await session.complete([system, *session.load_conversation(), question])
    answer = completion.text
    session.save_message("user", turn.text)  # what the next turn's load_conversation brings
    session.save_message("agent", answer)
    return al.Reply(text=answer, citations=al.cite(answer, passages))
