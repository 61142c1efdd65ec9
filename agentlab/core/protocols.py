"""Interfaces that a session uses: model, embedder, index, memory, tool and gateway.

Each is small enough for a short test double. Implementations are in their own rooms and do not import each other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from agentlab.core.errors import NotRecorded
from agentlab.core.events import Phase
from agentlab.core.messages import AddResult, Completion, Fact, Message, Passage, Request, ToolSpec
from agentlab.core.state_key import StateKey

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
Emit = Callable[[str], None]
NewId = Callable[[], str]
RELEVANCE_THRESHOLD = 0.15
"""Minimum cosine similarity of a recalled fact; measured by `evals/bench/memory_threshold.py`."""
DUPLICATE_THRESHOLD = 0.9
"""Cosine similarity from which a new text counts as a duplicate of a stored fact."""
NEAR_THRESHOLD = 0.75
"""Cosine similarity from which a new text may correct a stored fact; measured by `evals/bench/corrections.py`."""


class Model(Protocol):
    """Language model. It does not retry, store or count; it raises the errors of `agentlab.core.errors`."""

    name: str
    """`provider/model`, as users type it."""
    parallel: int | None
    """Maximum number of parallel requests; None: no limit."""

    async def complete(self, request: Request, emit: Emit) -> Completion:
        """Return the completion of `request`; calls `emit` with each piece of visible text as it arrives."""
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
    """Read-only index of a corpus; `embedder` is None if queries need no vector.

    An index outside this process has an attribute `source`: JSON that identifies it in recordings of its searches.
    """

    @property
    def name(self) -> str:
        """Short name of the search method and the corpus, for the ledger."""
        ...

    @property
    def documents(self) -> Sequence[IndexedDocument]: ...
    @property
    def embedder(self) -> Embedder | None: ...

    async def search(
        self, query: str, vector: np.ndarray | None, *, top_k: int, doc_ids: Sequence[str] | None = None
    ) -> tuple[Passage, ...]:
        """Return the `top_k` best passages, best first; with `doc_ids`, only of these documents."""
        ...


class Memory(Protocol):
    """Long-term memory of one user. Facts are listed oldest first; with equal scores the older one is first.

    A backend with an approximate index fetches a few facts more than requested, and ranks those.

    Vectors have the shape (dimensions,) and come from `embedder`. Every method raises MemoryUnavailable if the backend
    does not respond or its files are missing. A later call succeeds once the backend has recovered.
    """

    @property
    def name(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def embedder(self) -> Embedder | None:
        """Embedder of texts and queries; None for a memory that needs no vectors."""
        ...

    async def search(
        self, text: str, vector: np.ndarray | None, *, top_k: int = 3, min_score: float | None = None
    ) -> tuple[Fact, ...]:
        """Return the `top_k` facts nearest to the query, best first, none below `min_score`."""
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
        """Store `text`, unless a stored fact has a similarity of at least `duplicate_threshold` (None: always store).

        `new_id` is called until it returns an unused id. Raises ToolError for a text that is empty or too long.
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
        """Store many texts in their order, without a search for duplicates.

        If the backend fails, the first texts may already be stored.
        """
        ...

    async def update(
        self, fact_id: str, text: str, vector: np.ndarray | None, *, created: datetime, new_id: NewId
    ) -> Fact | None:
        """Replace a fact by `text`, about the same person and with a new id; both steps happen or neither.

        Returns None if there is no such id.
        """
        ...

    async def delete(self, fact_id: str) -> bool:
        """Delete a fact; returns False if there is no such id."""
        ...

    async def get(self, fact_id: str) -> Fact | None: ...
    async def facts(self) -> tuple[Fact, ...]:
        """Return all facts of the user."""
        ...

    async def clear(self) -> int:
        """Delete all facts of the user; returns their number."""
        ...

    async def snapshot(self) -> Memory:
        """Return an independent copy: writes to one are not visible in the other. Close it after use."""
        ...

    async def close(self) -> None: ...
    async def drop(self) -> None:
        """Delete the store and close it."""
        ...


class ToolContext(Protocol):
    """Part of a session that a tool may use; `Session` documents each verb."""

    @property
    def now(self) -> datetime: ...
    @property
    def index(self) -> Index | None: ...
    @property
    def memory(self) -> Memory | None: ...
    @property
    def settings(self) -> Any: ...

    speaker: str

    def state(self, key: StateKey[T]) -> T: ...
    def prompt_or_default(self, name: str, default: str) -> str: ...
    def notify(self, name: str, text: str = "", **data: Any) -> None: ...
    def report(self, tool: str, text: str) -> None: ...
    async def ask_user(self, text: str) -> str | None: ...
    def turn_passages(self) -> tuple[Passage, ...]: ...
    async def complete(self, messages: Sequence[Message], *, phase: Phase) -> Completion: ...
    async def retrieve(self, query: str, *, doc_ids: Sequence[str] | None = None) -> tuple[Passage, ...]: ...
    async def recall(self, text: str, *, top_k: int = 3) -> tuple[Fact, ...]: ...
    async def remember(self, text: str, *, duplicate_threshold: float | None) -> AddResult | None: ...
    async def revise(self, fact_id: str, text: str) -> Fact | None: ...
    async def fetch(self, kind: str, facts: Any, ask: Callable[[], Awaitable[Any]]) -> Any: ...


class Tool(Protocol):
    """Tool for a model; an optional attribute `instruction` explains how to write the arguments."""

    @property
    def spec(self) -> ToolSpec:
        """Name, description and JSON schema of the arguments."""

    def run(self, arguments: dict[str, Any], context: ToolContext, /) -> Awaitable[str] | str:
        """Run with validated arguments and return a text; raises ToolError with a sentence that helps the model."""
        ...


class CallSite(NamedTuple):
    """Position of a request in its conversation."""

    turn: int
    path: tuple[int, ...] = ()
    """Numbers of the parallel branches that lead to it; negative numbers are background tasks."""


class Gateway(Protocol):
    """All calls of a conversation that leave the process. Failures are in the result; no method raises."""

    @property
    def name(self) -> str:
        """Name of the model."""
        ...

    def switch_to(self, other: Any) -> None:
        """Use the model and recorder of `other` from now on; the occurrence counts stay."""
        ...

    async def ask(
        self, request: Request, site: CallSite, emit: Emit, on_restart: Callable[[], None] = lambda: None
    ) -> CallResult[Completion]:
        """Return the model's completion, after retries if necessary; `emit` gets its text as it arrives.

        `on_restart` is called when another attempt starts and the text emitted so far is void.
        """
        ...

    async def embed(self, text: str) -> CallResult[np.ndarray]:
        """Return the vector of a query: float32, shape (dimensions,)."""
        ...

    async def fetch(self, kind: str, facts: Any, ask: Callable[[], Awaitable[Any]]) -> CallResult[Any]:
        """Return the JSON that `ask` fetches from outside; `kind` and `facts` (JSON) identify the request."""
        ...

    def recorded_duration(self, work: Any, seconds: float) -> tuple[float, str]:
        """Return the seconds of work in this process and their origin; `work` (JSON) identifies the work."""
        ...


class CallResult(Struct, Generic[T], frozen=True, kw_only=True):
    """Result of one call, with all fields of its event."""

    value: T | None = None
    seconds: float = 0.0
    """Seconds of the accepted attempt."""
    waited: float = 0.0
    """Seconds in the queue, in failed attempts and between attempts."""
    attempt: int = 1
    origin: str = "live"
    error: str | None = None
    failure: BaseException | None = None
    """Error that the caller raises; beside a value, the reason why it could not be recorded."""
    invalid_usage: str = ""
    """Impossible token counts that the provider reported, which were dropped."""
    miss: NotRecorded | None = None
    """Reason why the call has no recording, in a run with recordings."""
