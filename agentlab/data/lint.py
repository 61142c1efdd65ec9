"""What in a data set can be read but hardly be meant, a line each: `conversations.jsonl:3: turn 0 of a: what it is`.

* Duplicates: the same turns twice, or nearly (four in five runs of three words are shared): they count as independent;
  and documents that are the same, of which one is relevant by its id.
* Leaks: a reference answer of three words or more stands in the user's message (other than as a choice, `this or
  that`), or in a reply given before.
* Contradictions: a turn whose gold excludes itself, or two turns that are the same, all before them included, with gold
  that excludes the other's.
* Turns that no reply could meet, and turns that nothing grades.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from agentlab.core.constants import MEMORY_TOOLS
from agentlab.data.conversations import Conversation, ExpectedCall, Turn
from agentlab.data.datasets import Dataset
from agentlab.data.memory_sets import Question

ORDERS = ("any", "sequence")
FLOW_TOOLS = ("lookup_documents", *MEMORY_TOOLS)
"""Tools that a flow has beside those a conversation brings."""
MIN_LEAKED_WORDS = 3
"""Words of a reference answer that cannot stand in a question by chance."""
NEAR_DUPLICATE_SHARE = 0.8
SHINGLE_WORDS = 3
"""Words that are compared together."""
MIN_CONVERSATIONS = 6
"""With fewer, a test that flips the signs of whole conversations never comes below p = .05: 2 / 2^5 is more."""


_WORD = re.compile(r"\w+")


@functools.lru_cache(maxsize=8)  # a run asks twice
def lint(dataset: Dataset) -> tuple[str, ...]:
    """Return findings: entries of a data set that are valid but probably not intended, one line each.

    `conversations.jsonl:3: turn 0 of a: ...` names file and line, turn, conversation and problem. Findings are
    duplicates, leaked or contradictory answers, turns that no reply can meet, and turns without an expectation.
    """
    return tuple(_findings(dataset))


def _findings(dataset: Dataset) -> Iterator[str]:
    for conversation in dataset.conversations:
        if not conversation.scored_turns:
            yield f"{_place(dataset, conversation)}: no turn is scored, so nothing of it is graded"
        for number in conversation.scored_turns:
            for doubt in _check_turn(conversation, number, bool(dataset.documents)):
                yield f"{_place(dataset, conversation, number)}: {doubt}"
    yield from _duplicates(dataset)
    yield from _near_duplicates(dataset)
    first: dict[tuple[str, str], str] = {}
    for document in dataset.documents:
        if (other := first.setdefault((document.title, document.text), document.doc_id)) != document.doc_id:
            yield f"corpus.jsonl: {document.doc_id}: the same as {other}: who finds one of them has missed the other"


def too_few_conversations(dataset: Dataset) -> str:
    """Why no comparison on it can show anything; "" where one can."""
    count = len(dataset.conversations)
    if count >= MIN_CONVERSATIONS:
        return ""
    counted = "1 conversation is" if count == 1 else f"{count} conversations are"
    return (
        f"{dataset.name}: {counted} too few: between two flows no difference can be shown, however large"
        f" (p is {2.0 ** (1 - count):.2g} at the least); {MIN_CONVERSATIONS} are the least for one measure"
    )


def _place(dataset: Dataset, conversation: Conversation, turn: int | None = None) -> str:
    """File, row and name of a conversation, or of one of its turns."""
    name = conversation.id if turn is None else f"turn {turn} of {conversation.id}"
    return f"{place}: {name}" if (place := dataset.locations.get(conversation.id)) else name


def _check_turn(conversation: Conversation, number: int, has_documents: bool) -> Iterator[str]:
    turn = conversation.turns[number]
    yield from _check_expectations(turn, has_documents)
    for answer in turn.reference_answers:
        words = _words(answer)
        if not words:
            yield f"reference_answers: {answer!r} has no word that a reply could share"
        elif not turn.unanswerable and (where := _leak_location(words, conversation, number)):
            yield f"reference_answers: {answer!r} stands in {where}"
    expected = turn.expected_calls or []
    if turn.no_call and expected:
        yield "no_call: calls are expected all the same"
    if turn.call_order not in ORDERS:
        yield f"call_order: {turn.call_order!r} is not graded; 'sequence' is"
    for memory in turn.expected_memory or []:
        if memory.op != "none" and not memory.content:
            yield f"expected_memory: {memory.op} without a content"
    offered = {tool.name: tool.parameters for tool in conversation.tools}
    for call in expected:
        if offered and call.name not in offered and call.name not in FLOW_TOOLS:
            yield f"expected_calls: {call.name} is no tool of the conversation"
        yield from _check_expected_call(call, offered.get(call.name, {}))


def _check_expectations(turn: Turn, has_documents: bool) -> Iterator[str]:
    if not turn.user.strip():
        yield "user: nothing is said"
    asked = (turn.relevant_doc_ids, turn.needs_document_lookup, turn.expected_calls, turn.expected_memory)
    if not (turn.reference_answers or turn.unanswerable or turn.no_call) and all(part is None for part in asked):
        yield "nothing is expected of the reply, so none of our scorers grades it"
    if turn.unanswerable and turn.relevant_doc_ids:
        yield f"unanswerable: {turn.relevant_doc_ids[0]!r} is relevant all the same"
    if turn.needs_document_lookup is False and turn.relevant_doc_ids:
        yield f"needs_document_lookup: none is, but {turn.relevant_doc_ids[0]!r} is relevant"
    if turn.needs_document_lookup and not has_documents:
        yield "needs_document_lookup: the set has no corpus.jsonl to look into"


def _check_expected_call(call: ExpectedCall, parameters: Mapping[str, object]) -> Iterator[str]:
    for name, accepted in call.accepted_arguments.items():
        if not accepted and name not in call.optional_arguments:
            yield f"expected_calls: {call.name} accepts no value of {name}"
    known = parameters.get("properties")
    if isinstance(known, Mapping):
        for name in sorted({*call.accepted_arguments, *call.optional_arguments} - {*known}):
            yield f"expected_calls: {call.name} has no argument {name}"
    required = parameters.get("required")
    if isinstance(required, Sequence) and call.arguments_visible_in_context:
        for name in required:
            if name not in call.accepted_arguments and name not in call.optional_arguments:
                yield f"expected_calls: {call.name} needs {name}, of which no value is accepted"


@functools.lru_cache(maxsize=1024)
def _words(text: str) -> list[str]:
    """Not to be changed."""
    return _WORD.findall(text.casefold())


def _leak_location(words: Sequence[str], conversation: Conversation, number: int) -> str:
    """Where a reference answer can be read by the flow before it answers; "" where it cannot."""
    if len(words) < MIN_LEAKED_WORDS:
        return ""
    turn = conversation.turns[number]
    said = [("the user's message", _words(turn.user))]
    for before, earlier in enumerate(conversation.turns[:number]):
        if not earlier.scored and earlier.session == turn.session:
            said += [(f"the reply of turn {before}", _words(answer)) for answer in earlier.reference_answers[:1]]
    answer = f" {' '.join(words)} "
    for where, their in said:
        heard = f" {' '.join(their)} "
        # Of what a question offers to choose from, one is right.
        if answer in heard and f"{answer}or " not in heard and f" or{answer}" not in heard:
            return where
    return ""


def _duplicates(dataset: Dataset) -> Iterator[str]:
    """Conversations that are the same, and turns that are while their gold is not."""
    numbers: dict[tuple[object, ...], int] = {}
    """Of beginnings; each turn makes another one of the last."""
    seen: dict[int, tuple[Conversation, int]] = {}
    for conversation in dataset.conversations:
        tools = json.dumps([tool.model_dump() for tool in conversation.tools]) if conversation.tools else ""
        setting = _memory_of(conversation), repr(conversation.metadata.get("today")), tools
        before = numbers.setdefault(setting, len(numbers))
        same, contradicts = None, False
        for number, turn in enumerate(conversation.turns):
            plain = turn.speaker is None and turn.session is None and not turn.tool_results  # as most turns are
            context = "" if plain else turn.model_dump_json(include={"speaker", "session", "tool_results"})
            beginning = before, " ".join(_words(turn.user)), context, repr(turn.metadata.get("now"))
            before = numbers.setdefault(beginning, len(numbers))
            first, at = seen.setdefault(before, (conversation, number))
            same = first if first is not conversation and at == number else None
            if same and turn.scored and (how := _contradiction(turn, same.turns[number])):
                contradicts = True
                asked = f"the same is asked in turn {number} of {_other(dataset, same)}"
                yield f"{_place(dataset, conversation, number)}: {asked}, and there {how}"
            if not turn.scored:
                before = numbers.setdefault(("told", before, *turn.reference_answers), len(numbers))
        if same and not contradicts and len(same.turns) == len(conversation.turns):
            yield f"{_place(dataset, conversation)}: the same turns as {_other(dataset, same)}"


def _memory_of(conversation: Conversation) -> str:
    return conversation.memory_of if isinstance(conversation, Question) else ""


def _other(dataset: Dataset, conversation: Conversation) -> str:
    place = dataset.locations.get(conversation.id, "")
    return conversation.id + (f" in row {place.rpartition(':')[2]}" if place else "")


def _contradiction(turn: Turn, other: Turn) -> str:
    """What is expected of `other` and excludes what is expected of `turn`; "" where nothing does."""
    if turn.unanswerable != other.unanswerable:
        return f"unanswerable is {str(other.unanswerable).lower()}"
    lookups = {turn.needs_document_lookup, other.needs_document_lookup}
    if lookups == {True, False}:
        return f"needs_document_lookup is {str(other.needs_document_lookup).lower()}"
    if turn.relevant_doc_ids and other.relevant_doc_ids and not {*turn.relevant_doc_ids} & {*other.relevant_doc_ids}:
        return f"{other.relevant_doc_ids[0]!r} is relevant"
    if turn.expected_calls is not None and other.expected_calls is not None:
        calls = [Counter(call.name for call in each.expected_calls or ()) for each in (turn, other)]
        if calls[0] != calls[1]:
            return f"{', '.join(calls[1]) or 'no call'} is expected"
    ours, theirs = ({word for answer in each.reference_answers for word in _words(answer)} for each in (turn, other))
    return f"{other.reference_answers[0]!r} is right" if ours and theirs and not ours & theirs else ""


def _near_duplicates(dataset: Dataset) -> Iterator[str]:
    """Pairs of conversations in one setting whose users say almost the same.

    Two sets of runs can only share NEAR of their union if they share one of the rarest few of each; only those are
    looked up, so that large sets are not compared pair by pair (prefix filtering, Chaudhuri et al. 2006).
    """
    groups: dict[str, list[tuple[Conversation, frozenset[str], list[list[str]]]]] = defaultdict(list)
    for conversation in dataset.conversations:
        said = [_words(turn.user) for turn in conversation.turns]
        runs = frozenset(
            " ".join(words[at : at + SHINGLE_WORDS])
            for words in said
            for at in range(max(1, len(words) - SHINGLE_WORDS + 1))
        )
        groups[_memory_of(conversation)].append((conversation, runs, said))
    for group in groups.values():
        common = Counter(run for _, runs, _ in group for run in runs)
        holding: dict[str, list[int]] = defaultdict(list)
        for place, (conversation, runs, said) in enumerate(group):
            rarest = sorted(runs, key=lambda run: (common[run], run))[
                : len(runs) - int(NEAR_DUPLICATE_SHARE * len(runs)) + 1
            ]
            rare = [run for run in rarest if common[run] > 1]  # by what only one has, nobody is found
            for other in sorted({other for run in rare for other in holding[run]}):
                twin, theirs, they_said = group[other]
                if said != they_said and len(runs & theirs) >= NEAR_DUPLICATE_SHARE * len(runs | theirs):
                    yield f"{_place(dataset, conversation)}: almost the turns of {_other(dataset, twin)}"
                    break
            for run in rare:
                holding[run].append(place)
