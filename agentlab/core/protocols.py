"""What a session is built on: the shapes of a model, an embedder, an index, a memory and a tool.

Each is as narrow as its double in a test allows; implementations live in their own rooms and do not know each other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from agentlab.core.errors import NotRecorded
from agentlab.core.events import Phase
from agentlab.core.messages import AddResult, Completion, Fact, Message, Passage, Request, ToolSpec
from agentlab.core.slot import Slot

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
Emit = Callable[[str], None]
NewId = Callable[[], str]
RELEVANCE_THRESHOLD = 0.15
"""Cosine similarity from which a remembered fact is brought; measured by `evals/bench/memory_threshold.py`."""
DUPLICATE_THRESHOLD = 0.9
"""Cosine similarity from which a text that is to be remembered counts as known already."""


class Model(Protocol):
    """A language model. It neither retries nor stores nor counts; it raises the errors of `agentlab.core.errors`."""

    name: str
    """`provider/model`, as users type it."""
    parallel: int | None
    """How many requests it can serve at once; None: no limit of its own."""

    async def complete(self, request: Request, emit: Emit) -> Completion:
        """Answer `request`, handing each piece of visible text to `emit` as it arrives."""
        ...

    async def close(self) -> None: ...


class Embedder(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def dimensions(self) -> int: ...

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return float32 rows of unit length, shape (len(texts), dimensions)."""
        ...


class IndexedDocument(Protocol):
    @property
    def doc_id(self) -> str: ...
    @property
    def title(self) -> str: ...


class Index(Protocol):
    """A read-only index of a corpus; `embedder` is None where queries need no vector."""

    @property
    def name(self) -> str:
        """How it searches and what, short enough for a ledger."""
        ...

    @property
    def documents(self) -> Sequence[IndexedDocument]: ...
    @property
    def embedder(self) -> Embedder | None: ...

    async def search(
        self, query: str, vector: np.ndarray | None, *, top_k: int, doc_ids: Sequence[str] | None = None
    ) -> tuple[Passage, ...]:
        """The `top_k` best passages, best first; with `doc_ids`, of these documents only."""
        ...


class Memory(Protocol):
    """Long-term memory of one user. Facts are listed oldest first; of equal scores the older comes first.

    A backend with an approximate index looks at a few facts more than it was asked for, and ranks those.

    Vectors are of shape (dimensions,) and come from `embedder`. Every method raises MemoryUnavailable when the backend
    cannot be reached or its files are gone; it can be asked again, and answers once the backend is back.
    """

    @property
    def name(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def embedder(self) -> Embedder | None:
        """What texts and queries are embedded with; None for a memory that needs no vectors."""
        ...

    async def search(
        self, text: str, vector: np.ndarray | None, *, top_k: int = 3, min_score: float | None = None
    ) -> tuple[Fact, ...]:
        """The `top_k` facts nearest to the query, best first, none below `min_score`."""
        ...

    async def add(
        self,
        text: str,
        vector: np.ndarray | None,
        *,
        created: datetime,
        new_id: NewId,
        duplicate_threshold: float | None = DUPLICATE_THRESHOLD,
        about: str = "",
    ) -> AddResult:
        """Store `text`, unless a fact scores `duplicate_threshold` or more against it; None: store it in any case.

        `new_id` is asked until it gives an id that is free. ToolError for a text that is empty or beyond all measure.
        """
        ...

    async def ingest(
        self,
        texts: Sequence[str],
        vectors: Sequence[np.ndarray] | np.ndarray,
        *,
        created: Sequence[datetime],
        new_id: NewId,
    ) -> tuple[Fact, ...]:
        """Store many texts in their order and at once, none of them compared with anything.

        If the backend fails on the way, the first of them may be stored.
        """
        ...

    async def update(
        self, fact_id: str, text: str, vector: np.ndarray | None, *, created: datetime, new_id: NewId
    ) -> Fact | None:
        """Delete a fact and store `text`, about the same person, under a new id; both or neither.

        None if there is no such id.
        """
        ...

    async def delete(self, fact_id: str) -> bool:
        """Forget a fact; False if there is no such id."""
        ...

    async def get(self, fact_id: str) -> Fact | None: ...
    async def facts(self) -> tuple[Fact, ...]:
        """Everything remembered about the user."""
        ...

    async def clear(self) -> int:
        """Forget everything about the user; returns how many facts that were."""
        ...

    async def snapshot(self) -> Memory:
        """An independent copy of this moment: neither sees what is written to the other. Close it after use."""
        ...

    async def close(self) -> None: ...
    async def drop(self) -> None:
        """Forget everything and close: the end of a store that nobody is to open again."""
        ...


class ToolContext(Protocol):
    """What a tool is handed of the session it works in; what each verb does is said there."""

    @property
    def now(self) -> datetime: ...
    @property
    def index(self) -> Index | None: ...
    @property
    def memory(self) -> Memory | None: ...
    def state(self, slot: Slot[T]) -> T: ...
    def prompt_or_default(self, name: str, default: str) -> str: ...
    def notify(self, name: str, text: str = "", **data: Any) -> None: ...
    def report(self, tool: str, text: str) -> None: ...
    def turn_passages(self) -> tuple[Passage, ...]: ...
    async def complete(self, messages: Sequence[Message], *, phase: Phase) -> Completion: ...
    async def retrieve(self, query: str, *, doc_ids: Sequence[str] | None = None) -> tuple[Passage, ...]: ...
    async def recall(self, text: str, *, top_k: int = 3) -> tuple[Fact, ...]: ...
    async def remember(self, text: str) -> AddResult | None: ...
    async def revise(self, fact_id: str, text: str) -> Fact | None: ...
    async def fetch(self, kind: str, facts: Any, ask: Callable[[], Awaitable[Any]]) -> Any: ...


class Tool(Protocol):
    """What a model can call; an `instruction` beside these says how to write the arguments."""

    @property
    def spec(self) -> ToolSpec: ...

    def run(self, arguments: dict[str, Any], context: ToolContext, /) -> Awaitable[str] | str:
        """Do the work with validated arguments; raise ToolError with a sentence the model can act on."""
        ...


class CallSite(NamedTuple):
    """Where in a conversation a request is made."""

    turn: int
    path: tuple[int, ...] = ()
    """The branches of parallel work that lead there, by number; below zero, pieces of background work."""


class Gateway(Protocol):
    """A conversation's one way out of the process. What goes wrong is in the answer; nothing here raises."""

    @property
    def name(self) -> str:
        """The model that answers."""
        ...

    def switch_to(self, other: Any) -> None:
        """Ask as `other` does from here on; how often each request was made before still counts."""
        ...

    async def ask(
        self, request: Request, place: CallSite, emit: Emit, on_restart: Callable[[], None] = lambda: None
    ) -> CallResult[Completion]:
        """The model's answer, asked for as often as need be; `emit` is given its text as it arrives.

        `again` is called where what was given is void, because a further attempt begins.
        """
        ...

    async def embed(self, text: str) -> CallResult[np.ndarray]:
        """The vector of a query: float32, shape (dimensions,)."""
        ...

    async def fetch(self, kind: str, facts: Any, ask: Callable[[], Awaitable[Any]]) -> CallResult[Any]:
        """What `ask` brings from outside, JSON; `kind` and `facts` (JSON) say in full what is asked for."""
        ...

    def recorded_duration(self, work: Any, seconds: float) -> tuple[float, str]:
        """Seconds and origin of work that was done in this process; `work` says in JSON what it was."""
        ...


class CallResult(Struct, Generic[T], frozen=True, kw_only=True):
    """What came of one call, and all that its event says of it."""

    value: T | None = None
    seconds: float = 0.0
    """What the accepted attempt took."""
    waited: float = 0.0
    """Seconds in the queue, in attempts that failed, and between attempts."""
    attempt: int = 1
    origin: str = "live"
    error: str | None = None
    failure: BaseException | None = None
    """What whoever asked is to raise; beside a value, why that could not be recorded."""
    invalid_usage: str = ""
    """What the provider said of the call that cannot be, and was left out."""
    miss: NotRecorded | None = None
    """Why it was not among the recordings, where there are some."""
