"""The front door: a Lab turns a spec into models, indexes and sessions, and owns the event loop they live on.

    lab = Lab("evals/flows.yaml", limit=2)
    run = lab.run_sync()          # in a script
    run = await lab.run()         # in a notebook cell, while the kernel's own loop runs

The only file that imports every room.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from agentlab.core import plugins
from agentlab.core.errors import ConfigError, MemoryUnavailable
from agentlab.core.names import MEMORY_TOOLS
from agentlab.core.prices import PriceTable, load_prices
from agentlab.core.protocols import Embedder, Index, Memory, Model, Tool
from agentlab.core.trace import Trace
from agentlab.memory.unavailable import open_or_away
from agentlab.session.history import ConversationDatabase
from agentlab.session.session import Generation, Session
from agentlab.wire.gateway import KeptEmbedder, Line, Recorder
from agentlab.wire.queue import QueuedEmbedder, QueuedModel
from agentlab.wire.recordings import Recordings
from agentlab.workbench.loop import OwnLoop
from agentlab.workbench.spec import FlowSpec, RetrievalSpec, Spec, load_spec, make_spec
from agentlab.workbench.variants import Variant, check_consistency, make_variant

if TYPE_CHECKING:
    from agentlab.data.datasets import Dataset
    from agentlab.data.documents import Document
    from agentlab.evals.results.run import Run
    from agentlab.knowledge.index import DocumentIndex
    from agentlab.lab.chat import Chat
    from agentlab.tools.mcp.folder import ToolManager

log = logging.getLogger(__name__)
CLOSING_SECONDS = 90


class Lab(OwnLoop):
    """Everything a run or a chat needs, opened when first used and closed by `close` or a `with` block.

    `spec` is a file, a Spec or None; keywords are keys of the spec and win over it (`retrieval__top_k=8` is
    `retrieval: {top_k: 8}`). `model`, `embedder` and entries of `flows` may also be objects.
    """

    def __init__(self, spec: str | Path | Spec | None = None, **overrides: Any) -> None:
        super().__init__()
        self._given_models: dict[str, Model] = {}
        self._given_embedders: dict[str, Embedder] = {}
        self._given_flows: dict[str, Any] = {}
        overrides = {key.replace("__", "."): value for key, value in overrides.items()}
        given: tuple[tuple[str, dict[str, Any]], ...] = (
            ("model", self._given_models),
            ("embedder", self._given_embedders),
        )
        for key, objects in given:
            thing = overrides.get(key, "")
            if not isinstance(thing, str):
                if not isinstance(getattr(thing, "name", None), str):
                    raise ConfigError(f"{key}: {thing!r} is neither a name nor an object that has one")
                objects[thing.name] = thing
                overrides[key] = thing.name
        if "datasets" in overrides:
            folders = overrides["datasets"]
            overrides["datasets"] = [str(f) for f in ([folders] if isinstance(folders, (str, Path)) else folders)]
        if isinstance(overrides.get("flows"), (list, tuple)):
            overrides["flows"] = [self._flow_entry(entry) for entry in overrides["flows"]]
        if isinstance(spec, Spec):
            self.spec = make_spec(spec.model_dump(exclude_unset=True), overrides)
        else:
            self.spec = load_spec(spec, overrides)
        self.variants = tuple(
            make_variant(self.spec, flow, self._given_flows.get(flow.flow)) for flow in self.spec.flows
        )
        check_consistency(self.spec, self.variants)
        self.prices: PriceTable = load_prices(self.spec.prices)
        named = {variant.model for variant in self.variants}
        self._models = {name: self._queued(name) for name in named}
        self._queries = QueuedEmbedder(
            *_behind("models.embedders", self.spec.embedder, self._given_embedders.get(self.spec.embedder))
        )
        if self.asks_first:
            # A missing key is said before anything is loaded; what only replays needs none.
            self._queries.connect()
            for queued in self._models.values():
                queued.connect()
        asked = self.spec.scorers
        names = plugins.names("evals.scorers") if asked == "default" else asked
        self.scorers = [plugins.resolve("evals.scorers", name) for name in names]
        self._indexes: dict[tuple[int, str], DocumentIndex] = {}
        self._chats: list[Chat] = []
        self._managers: dict[tuple[Path, tuple[str, ...]], ToolManager] = {}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._opening = asyncio.Lock()

    @property
    def asks_first(self) -> bool:
        """True where models are asked without a look at what is recorded."""
        return self.spec.mode in ("live", "record")

    @cached_property
    def recorder(self) -> Recorder:
        """Where calls are recorded and found; raises ConfigError or RecordingError where the folder cannot be used."""
        mode, folder = self.spec.mode, Path(self.spec.recordings)
        if mode == "live":
            return Recorder()
        found = Recordings.open(folder, self.spec.name, write=mode != "replay", only_own=mode == "record")
        return Recorder(mode, found)

    @cached_property
    def embedder(self) -> Embedder:
        """For passages and graded texts: from the recordings or the cache on disk where they are there."""
        from agentlab.models.embedders.cache import CachedEmbedder
        from agentlab.models.weights import home

        return KeptEmbedder(CachedEmbedder(self._queries, home() / "embeddings"), self._queries.endpoint, self.recorder)

    # Runs and chats.

    async def run(self, **options: Any) -> Run:
        """Replay the data sets through the flows; options are those of `agentlab.evals.run.runner.run`."""
        from agentlab.evals.run.runner import run

        return await asyncio.wrap_future(self.start(run(self, **options)))

    def run_sync(self, **options: Any) -> Run:
        """`run` for scripts, and for cells that do not want to await."""
        from agentlab.evals.run.runner import run

        return self.wait(run(self, **options))

    def chat(self, flow: str | None = None, *, model: str | None = None, **options: Any) -> Chat:
        """A conversation with one of the lab's flows, on `model` if it is given; other options are those of Chat."""
        from agentlab.lab.chat import Chat

        variant = self.variant(flow or self.variants[0].label)
        self._chats.append(Chat(self, dataclasses.replace(variant, model=model or variant.model), **options))
        return self._chats[-1]

    def forget(self, chat: Chat) -> None:
        """Called by a chat that has closed itself."""
        if chat in self._chats:
            self._chats.remove(chat)

    def datasets(self) -> tuple[Dataset, ...]:
        """The data sets of the spec, cut to its limit; raises DatasetError."""
        from agentlab.data.datasets import load_dataset

        loaded = tuple(load_dataset(path) for path in self.spec.datasets)
        names = [dataset.name for dataset in loaded]
        if len(set(names)) < len(names):
            raise ConfigError(f"datasets: two folders are called {max(names, key=names.count)!r}; names must differ")
        return tuple(dataset.take(self.spec.limit, self.spec.sample) for dataset in loaded)

    def variant(self, label: str) -> Variant:
        for variant in self.variants:
            if variant.label == label:
                return variant
        raise ConfigError(plugins.unknown("flow of this lab", label, (v.label for v in self.variants)))

    # What sessions are made of. These run on the lab's loop.

    async def model(self, name: str) -> QueuedModel:
        """The model behind its queue, one for the whole lab; started, unless everything may be recorded already."""
        if name not in self._models:
            self._models[name] = self._queued(name)
        if self.asks_first:
            await self._models[name].start()
        return self._models[name]

    def _queued(self, name: str) -> QueuedModel:
        return QueuedModel(*_behind("models", name, self._given_models.get(name)))

    def local_weights(self) -> list[str]:
        """Catalogue names of the embedded models this lab will load for certain."""
        if not self.asks_first:
            return []
        # A name that is not the adapter's own stands for a file of the user's (AGENTLAB_LOCAL_MODEL).
        models = [name for name, answering in self.answering().items() if name == answering]
        given = {*self._given_models, *self._given_embedders}
        named = [name for name in dict.fromkeys([self.spec.embedder, *models]) if name not in given]
        return [name.removeprefix("local/") for name in named if name.startswith("local/")]

    def answering(self) -> dict[str, str]:
        """The models of the spec, and the names of those that really answer for them."""
        return {name: shared.name for name, shared in self._models.items()}

    def seconds_per_call(self, model: str) -> float | None:
        """How long a call takes by the provider's own rough word; None where it has none."""
        if model in self._given_models:
            return None
        provider, name = plugins.provider("models", model)
        pace = getattr(provider, "seconds_per_call", None)
        return pace(name) if pace else None

    async def index(
        self,
        documents: Sequence[Document],
        retrieval: RetrievalSpec,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Index | None:
        """The index over `documents`, built once and kept on disk; None without documents.

        `progress` is told of passages embedded and all there are.
        """
        from agentlab.knowledge.index import open_index
        from agentlab.models.weights import home

        if not documents:
            return None
        key = (
            hash(tuple((d.doc_id, d.title, d.text) for d in documents)),
            f"{retrieval.method}/{retrieval.max_tokens}",
        )
        async with self._opening:
            if key not in self._indexes:
                folder = home() / "indexes"
                if self.spec.mode != "live":
                    # Built anew: every vector passes the recorder, and a stranger's vectors stay out of the cache.
                    self._scratch = self._scratch or tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
                    folder = Path(self._scratch.name)
                opened = await open_index(
                    documents,
                    self.embedder,
                    folder=folder,
                    method=retrieval.method,
                    max_tokens=retrieval.max_tokens,
                    progress=progress,
                )
                if opened.embedder is not None:
                    # A cached query would make the flow that asks second look faster.
                    opened.embedder = self._queries
                self._indexes[key] = opened
        return self._indexes[key]

    @contextlib.asynccontextmanager
    async def memory(self, variant: Variant) -> AsyncIterator[Memory | None]:
        """A fresh long-term memory for one conversation, gone with the block; None for a flow without one."""
        if variant.memory is None:
            yield None
            return
        with tempfile.TemporaryDirectory(prefix="agentlab-", ignore_cleanup_errors=True) as folder:
            opened = await self.open_memory(variant, folder)
            assert opened is not None, "the flow has a memory"
            try:
                yield opened
            finally:
                # On a server the store outlives the folder it is named after.
                with contextlib.suppress(MemoryUnavailable):
                    await opened.drop()

    async def open_memory(self, variant: Variant, folder: str | Path) -> Memory | None:
        """The long-term memory kept in `folder`, one that cannot be reached included; None for a flow without one."""
        if variant.memory is None:
            return None
        backend = plugins.resolve("memory", variant.memory)
        return await open_or_away(variant.memory, lambda: backend.connect(str(folder), self._queries))

    async def session(
        self,
        variant: Variant,
        trace: Trace,
        *,
        index: Index | None,
        tools: Sequence[Tool] = (),
        memory: Memory | None = None,
        folder: Path | None = None,
        database: ConversationDatabase | None = None,
        now: datetime | None = None,
        on_text: Callable[[int, str], None] = lambda event_id, text: None,
    ) -> Session:
        """A session for one conversation. `tools` that a data set brings replace the flow's own, but for look-ups and,
        where there is a memory, what works on it."""

        def offered(name: str) -> bool:
            if name == "lookup_documents":
                return index is not None
            # What a conversation brings answers in place of ours, the memory tools too; their steps stay.
            return memory is not None and name not in given if name in MEMORY_TOOLS else not tools

        given = {tool.spec.name for tool in tools}
        found = () if tools else await self.found_tools(variant)
        built_in = [name for name in variant.tools if offered(name)]
        brought = [tool for tool in tools if tool.spec.name not in built_in]
        history = database or ConversationDatabase()
        generation = variant.generation
        seed = None if generation.seed is None else generation.seed + trace.epoch
        return Session(
            trace=trace,
            wire=Line(self.recorder, await self.model(variant.model), self._queries, trace),
            history=history,
            reply_to=history.last_message(trace.conversation),
            now=now or self.spec.today,
            generation=Generation(temperature=generation.temperature, seed=seed, max_tokens=generation.max_tokens),
            index=index,
            top_k=variant.retrieval.top_k,
            memory=memory,
            folder=folder,
            tools=[*(plugins.resolve("tools", name).build() for name in built_in), *brought, *found],
            tools_are_brought=bool(tools),
            settings=variant.settings,
            prompts=variant.prompts,
            price=self.prices.cost,
            on_text=on_text,
        )

    async def found_tools(self, variant: Variant) -> tuple[Tool, ...]:
        """The scripts and MCP servers of the flow's data folder, opened once for all its sessions; () without one."""
        from agentlab.tools.mcp.folder import ToolManager

        if variant.tool_folder is None:
            return ()
        own = tuple(plugins.resolve("tools", name).build().spec.name for name in variant.tools)
        async with self._opening:
            if (key := (variant.tool_folder, own)) not in self._managers:
                self._managers[key] = await ToolManager.open(variant.tool_folder, reserved=own)
                for problem in self._managers[key].problems:
                    log.warning("%s: %s", variant.tool_folder, problem)
        return self._managers[key].tools

    # Reading the spec.

    def _flow_entry(self, entry: Any) -> Any:
        if isinstance(entry, (str, Mapping, FlowSpec)):
            return entry
        name = getattr(entry, "name", None) or getattr(entry, "__name__", None) or type(entry).__name__
        self._given_flows[name] = entry
        return {"flow": name}

    # The end.

    def close(self) -> None:
        """End its chats, the models it started and its loop. A lab can be closed twice, not used again."""
        if self.is_running:
            self.wait(self._close_all())
            self.end_loop()
        if self._scratch is not None:
            self._scratch.cleanup()

    async def _close_all(self) -> None:
        opened: list[Any] = [*self._chats, *self._managers.values(), *self._models.values(), self._queries]
        self._chats, self._managers, self._models, indexes, self._indexes = [], {}, {}, self._indexes, {}
        for thing in opened:
            # Whatever one of them does, the others are closed.
            try:
                async with asyncio.timeout(CLOSING_SECONDS):
                    await thing.close()
            except Exception:
                log.warning("%r could not be closed", thing, exc_info=True)
        for index in indexes.values():
            index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Lab {self.spec.name}: {', '.join(v.label for v in self.variants)} on {self.spec.model}>"


def _behind(room: str, name: str, given: Any) -> tuple[str, str, Callable[[], Any]]:
    """What a queue stands before: the name it answers under, its endpoint, and how it is connected."""
    if given is not None:
        return name, getattr(given, "endpoint", ""), lambda: given
    provider, rest = plugins.provider(room, name)
    answering, endpoint = getattr(provider, "identity", lambda rest: (name, ""))(rest)
    return answering, endpoint, lambda: provider.connect(rest)
