"""Finds valid rows of a data set that are probably mistakes: `conversations.jsonl:3: turn 1 of a: the problem`.

* Duplicates: conversations with equal turns, or nearly equal ones (four of five sequences of three words are shared);
  statistics would count them as independent. Also equal documents with different ids.
* Leaks: a reference answer of three words or more occurs in the user's message, or in an earlier reply. A choice
  between answers, such as `this or that`, is no leak.
* Contradictions: a turn with contradictory expectations, or two equal turns, with equal turns before them, and
  expectations that exclude each other.
* Turns that no reply can meet, and turns that no scorer grades.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from agentlab.core.constants import MEMORY_TOOLS
from agentlab.data.conversations import Conversation, ExpectedCall, Turn
from agentlab.data.datasets import Dataset
from agentlab.data.memory_sets import Question

ORDERS = ("any", "sequence")
FLOW_TOOLS = ("lookup_documents", *MEMORY_TOOLS)
"""Tools of flows, beside those from the data set."""
MIN_LEAKED_WORDS = 3
"""Minimum length of a leak; shorter answers occur in questions by chance."""
NEAR_DUPLICATE_SHARE = 0.8
SHINGLE_WORDS = 3
"""Words of a sequence that near-duplicates share."""
MIN_CONVERSATIONS = 6
"""Minimum for a sign-flip test at p < .05: with five conversations the smallest p is 2 / 2^5 = .0625."""


MAX_SENTENCE_WORDS = 25
"""A reference with more words is a paragraph."""
NOT_ENGLISH = "refusals need the extra `languages`; answer_correctness decides values, yes, no and all of the words"
_WORD = re.compile(r"\w+")


@functools.lru_cache(maxsize=8)  # a run calls it twice
def lint(dataset: Dataset) -> tuple[str, ...]:
    """Return findings: entries of a data set that are valid but probably not intended, one line each.

    `conversations.jsonl:3: turn 1 of a: ...` names file and line, turn, conversation and problem. Findings are
    duplicates, leaked or contradictory answers, turns that no reply can meet, and turns without an expectation.
    """
    return tuple(_findings(dataset))


def _findings(dataset: Dataset) -> Iterator[str]:
    for conversation in dataset.conversations:
        if not conversation.scored_turns:
            yield f"{_location(dataset, conversation)}: no turn is scored, so no reply is graded"
        for number in conversation.scored_turns:
            for finding in _check_turn(conversation, number, bool(dataset.documents)):
                yield f"{_location(dataset, conversation, number)}: {finding}"
    yield from _duplicates(dataset)
    yield from _near_duplicates(dataset)
    first: dict[tuple[str, str], str] = {}
    for document in dataset.documents:
        if (other := first.setdefault((document.title, document.text), document.doc_id)) != document.doc_id:
            missed = "a flow that retrieves one is scored as missing the other"
            yield f"corpus.jsonl: {document.doc_id}: same text as {other}; {missed}"


def too_few_conversations(dataset: Dataset) -> str:
    """Return a line if the data set is too small for any significant difference, else ""."""
    count = len(dataset.conversations)
    if count >= MIN_CONVERSATIONS:
        return ""
    counted = "1 conversation is" if count == 1 else f"{count} conversations are"
    smallest = f"the smallest possible p is {2.0 ** (1 - count):.2g}"
    return f"{dataset.name}: {counted} too few: {smallest}; use at least {MIN_CONVERSATIONS}"


def not_validated(dataset: Dataset, language_of: Callable[[str], str]) -> Iterator[str]:
    """Yield a line for each part of a data set for which measures were not validated, so that they decide nothing."""
    answers = [text for each in dataset.conversations for turn in each.turns for text in turn.reference_answers]
    if unread := sum(not re.search(r"[a-z0-9]", text.lower()) for text in answers):
        yield f"{unread} of {len(answers)} reference answers have no word in Latin letters: rouge_l leaves them out"
    if long := sum(len(text.split()) > MAX_SENTENCE_WORDS for text in answers):
        yield f"{long} of {len(answers)} reference answers are paragraphs: answer_correctness is their token F1"
    texts = ("\n".join(turn.user for turn in each.turns) for each in dataset.conversations)
    for language, count in Counter(map(language_of, texts)).most_common():
        if language != "en" and count > len(dataset.conversations) / 20:  # single texts are taken for a neighbour's
            yield f"{count} of {len(dataset.conversations)} conversations are in {language}: {NOT_ENGLISH}"


def _location(dataset: Dataset, conversation: Conversation, turn: int | None = None) -> str:
    """Return file, line and name of a conversation or of one of its turns."""
    name = conversation.id if turn is None else f"turn {turn + 1} of {conversation.id}"
    return f"{location}: {name}" if (location := dataset.locations.get(conversation.id)) else name


def _check_turn(conversation: Conversation, number: int, has_documents: bool) -> Iterator[str]:
    turn = conversation.turns[number]
    yield from _check_expectations(turn, has_documents)
    for answer in turn.reference_answers:
        words = _words(answer)
        if not words:
            yield f"reference_answers: {answer!r} has no word that a reply could share"
        elif not turn.unanswerable and (leak := _leak_location(words, conversation, number)):
            yield f"reference_answers: {answer!r} already occurs in {leak}"
    expected = turn.expected_calls or []
    if turn.no_call and expected:
        yield "no_call: contradicts expected_calls"
    if turn.call_order not in ORDERS:
        yield f"call_order: unknown order {turn.call_order!r}; use 'sequence' or 'any'"
    for memory in turn.expected_memory or []:
        if memory.op != "none" and not memory.content:
            yield f"expected_memory: {memory.op} has no content"
    offered = {tool.name: tool.parameters for tool in conversation.tools}
    for call in expected:
        if offered and call.name not in offered and call.name not in FLOW_TOOLS:
            yield f"expected_calls: {call.name} is not a tool of the conversation"
        yield from _check_expected_call(call, offered.get(call.name, {}))


def _check_expectations(turn: Turn, has_documents: bool) -> Iterator[str]:
    if not turn.user.strip():
        yield "user: the message is empty"
    expected = (turn.relevant_doc_ids, turn.needs_document_lookup, turn.expected_calls, turn.expected_memory)
    if not (turn.reference_answers or turn.unanswerable or turn.no_call) and all(part is None for part in expected):
        yield "the turn has no expectation, so none of our scorers grades the reply"
    if turn.unanswerable and turn.relevant_doc_ids:
        yield f"unanswerable: true, but {turn.relevant_doc_ids[0]!r} is relevant"
    if turn.needs_document_lookup is False and turn.relevant_doc_ids:
        yield f"needs_document_lookup: false, but {turn.relevant_doc_ids[0]!r} is relevant"
    if turn.needs_document_lookup and not has_documents:
        yield "needs_document_lookup: true, but the data set has no corpus.jsonl"


def _check_expected_call(call: ExpectedCall, parameters: Mapping[str, object]) -> Iterator[str]:
    for name, accepted in call.accepted_arguments.items():
        if not accepted and name not in call.optional_arguments:
            yield f"expected_calls: {call.name} accepts no value of {name}"
    properties = parameters.get("properties")
    if isinstance(properties, Mapping):
        for name in sorted({*call.accepted_arguments, *call.optional_arguments} - {*properties}):
            yield f"expected_calls: {call.name} has no argument {name}"
    required = parameters.get("required")
    if isinstance(required, Sequence) and call.arguments_visible_in_context:
        for name in required:
            if name not in call.accepted_arguments and name not in call.optional_arguments:
                yield f"expected_calls: {call.name} requires {name}, but no value of it is accepted"


@functools.lru_cache(maxsize=1024)
def _words(text: str) -> list[str]:
    """Return the words of a text in lower case; the list is cached, so do not modify it."""
    return _WORD.findall(text.casefold())


def _leak_location(words: Sequence[str], conversation: Conversation, number: int) -> str:
    """Return the text in which the flow reads a reference answer before its reply; "" if there is none."""
    if len(words) < MIN_LEAKED_WORDS:
        return ""
    turn = conversation.turns[number]
    texts = [("the user's message", _words(turn.user))]
    for before, earlier in enumerate(conversation.turns[:number]):
        if not earlier.scored and earlier.session == turn.session:
            texts += [(f"the reply of turn {before + 1}", _words(answer)) for answer in earlier.reference_answers[:1]]
    answer = f" {' '.join(words)} "
    for location, text_words in texts:
        text = f" {' '.join(text_words)} "
        # A question that offers several answers contains the right one and is no leak.
        if answer in text and f"{answer}or " not in text and f" or{answer}" not in text:
            return location
    return ""


def _duplicates(dataset: Dataset) -> Iterator[str]:
    """Yield equal conversations, and equal turns with contradictory expectations."""
    numbers: dict[tuple[object, ...], int] = {}
    """Numbers of conversation prefixes; each turn makes a longer prefix."""
    seen: dict[int, tuple[Conversation, int]] = {}
    for conversation in dataset.conversations:
        tools = json.dumps([tool.model_dump() for tool in conversation.tools]) if conversation.tools else ""
        setting = _memory_of(conversation), repr(conversation.metadata.get("today")), tools
        before = numbers.setdefault(setting, len(numbers))
        same, contradicts = None, False
        for number, turn in enumerate(conversation.turns):
            plain = turn.speaker is None and turn.session is None and not turn.tool_results  # true for most turns
            context = "" if plain else turn.model_dump_json(include={"speaker", "session", "tool_results"})
            beginning = before, " ".join(_words(turn.user)), context, repr(turn.metadata.get("now"))
            before = numbers.setdefault(beginning, len(numbers))
            first, at = seen.setdefault(before, (conversation, number))
            same = first if first is not conversation and at == number else None
            if same and turn.scored and (difference := _contradiction(turn, same.turns[number])):
                contradicts = True
                twin = f"turn {number + 1} of {_other(dataset, same)}"
                yield f"{_location(dataset, conversation, number)}: same message as {twin}, but there {difference}"
            if not turn.scored:
                before = numbers.setdefault(("told", before, *turn.reference_answers), len(numbers))
        if same and not contradicts and len(same.turns) == len(conversation.turns):
            yield f"{_location(dataset, conversation)}: the same turns as {_other(dataset, same)}"


def _memory_of(conversation: Conversation) -> str:
    return conversation.memory_of if isinstance(conversation, Question) else ""


def _other(dataset: Dataset, conversation: Conversation) -> str:
    location = dataset.locations.get(conversation.id, "")
    return conversation.id + (f" in row {location.rpartition(':')[2]}" if location else "")


def _contradiction(turn: Turn, other: Turn) -> str:
    """Return an expectation of `other` that contradicts one of `turn`; "" without a contradiction."""
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
    """Yield pairs of conversations with the same memory and nearly equal user messages.

    Two sets of word sequences share `NEAR_DUPLICATE_SHARE` of their union only if they share one of the rarest few of
    each. Only those are looked up, so large sets need no comparison of all pairs (prefix filtering, Chaudhuri et al.,
    2006).
    """
    groups: dict[str, list[tuple[Conversation, frozenset[str], list[list[str]]]]] = defaultdict(list)
    for conversation in dataset.conversations:
        messages = [_words(turn.user) for turn in conversation.turns]
        runs = frozenset(
            " ".join(words[at : at + SHINGLE_WORDS])
            for words in messages
            for at in range(max(1, len(words) - SHINGLE_WORDS + 1))
        )
        groups[_memory_of(conversation)].append((conversation, runs, messages))
    for group in groups.values():
        common = Counter(run for _, runs, _ in group for run in runs)
        positions: dict[str, list[int]] = defaultdict(list)
        for position, (conversation, runs, messages) in enumerate(group):
            rarest = sorted(runs, key=lambda run: (common[run], run))[
                : len(runs) - int(NEAR_DUPLICATE_SHARE * len(runs)) + 1
            ]
            rare = [run for run in rarest if common[run] > 1]  # a sequence of one conversation finds no other
            for other in sorted({other for run in rare for other in positions[run]}):
                twin, theirs, twin_messages = group[other]
                if messages != twin_messages and len(runs & theirs) >= NEAR_DUPLICATE_SHARE * len(runs | theirs):
                    yield f"{_location(dataset, conversation)}: nearly the same turns as {_other(dataset, twin)}"
                    break
            for run in rare:
                positions[run].append(position)
