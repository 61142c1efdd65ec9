"""Models, indexes, memories and sessions of a spec: opened at the first use, closed together.

Evaluations and chats use it. All its coroutines must run on the same event loop, which the owner provides.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import json
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.core import plugins
from agentlab.core.errors import ConfigError, MemoryUnavailable
from agentlab.core.events import Notice
from agentlab.core.prices import PriceTable, load_prices
from agentlab.core.protocols import Embedder, Index, IndexedDocument, Memory
from agentlab.core.scratch import process_temp_folder, temp_folder_for
from agentlab.data.datasets import Dataset, file_stamps, load_dataset
from agentlab.data.documents import Document
from agentlab.knowledge.retriever import ROOM, Corpus, Retriever, find_retriever
from agentlab.memory.unavailable import open_or_unavailable
from agentlab.models.weights import home
from agentlab.session.own_searches import LookupTool
from agentlab.session.session import Session
from agentlab.session.traced import Bounds, Files, Generation, Has
from agentlab.wire.gateway import Gateway
from agentlab.wire.keys import result_key
from agentlab.wire.limits import RateLimiter
from agentlab.wire.queue import QueuedEmbedder, QueuedModel
from agentlab.wire.recorder import RecordedEmbedder, Recorder
from agentlab.wire.recordings import Recordings
from agentlab.workbench.seat import Seat
from agentlab.workbench.spec import FlowSpec, RetrievalSpec, Spec
from agentlab.workbench.variants import Variant, check_consistency, make_variant

if TYPE_CHECKING:
    from agentlab.tools.mcp.tool_manager import ToolManager

log = logging.getLogger(__name__)
CLOSING_SECONDS = 90


class Workbench:
    """Parts of one spec's sessions. `objects` replaces plug-ins of the spec, by room and name.

    `sharers` is the number of processes that share the rate limits of this spec.
    """

    def __init__(self, spec: Spec, objects: Mapping[tuple[str, str], Any], sharers: int = 1) -> None:
        process_temp_folder()  # also deletes the facts that killed runs left behind
        self.spec = spec
        self.objects = objects
        self._sharers = sharers
        self.variants = tuple(make_variant(spec, flow, objects.get(("flows", flow.flow))) for flow in spec.flows)
        check_consistency(spec, self.variants)
        if spec.files is not None and not Path(spec.files).is_dir():
            raise ConfigError(f"files: there is no folder {spec.files}; make it, or name another")
        self.prices: PriceTable = load_prices(spec.prices)
        self._models = {name: self._queued(name) for name in dict.fromkeys(each.model for each in self.variants)}
        self._queries = QueuedEmbedder(*self._resolve("models.embedders", spec.embedder))
        if self.always_calls_models:
            # Report a missing API key before anything is loaded; a replay needs no key.
            self._queries.connect()
            for queued in self._models.values():
                queued.connect()
        scorers = plugins.names("evals.scorers") if spec.scorers == "default" else spec.scorers
        self.scorers = [plugins.resolve("evals.scorers", name) for name in scorers]
        for variant in self.variants:
            retriever = self.retriever(variant.retrieval)
            if self.always_calls_models:
                retriever.check_installed()
        self._indexes: dict[tuple[int, str], Index] = {}
        self._managers: dict[tuple[Path, tuple[str, ...], bool], ToolManager] = {}
        self._opening = asyncio.Lock()
        self._loaded: tuple[Any, tuple[Dataset, ...]] | None = None

    @property
    def always_calls_models(self) -> bool:
        """True if models are called without a search of the recordings."""
        return self.spec.mode in ("live", "record")

    @cached_property
    def recorder(self) -> Recorder:
        """Recorder of this spec's calls; raises ConfigError or RecordingError for an unusable folder."""
        mode, folder = self.spec.mode, Path(self.spec.recordings)
        if mode == "live":
            return Recorder()
        also = () if mode == "record" else self.spec.also_recorded
        return Recorder(mode, Recordings.open(folder, self.spec.name, also, write=mode != "replay"))

    @cached_property
    def embedder(self) -> Embedder:
        """Embedder for passages and graded texts, which uses recorded vectors if there are any."""
        # A fast embedder needs no queue, which merges equal calls.
        embedder = self._queries.connect() if self._embeds_faster_than_cache else self._queries
        return RecordedEmbedder(embedder, self._queries.endpoint, self.recorder)

    @cached_property
    def _embeds_faster_than_cache(self) -> bool:
        """True if the embedder computes a vector faster than a cache finds it."""
        name = self.spec.embedder
        is_object = ("models.embedders", name) in self.objects
        return not is_object and getattr(plugins.resolve_provider("models.embedders", name)[0], "IS_QUICK", False)

    @property
    def embeds_synchronously(self) -> bool:
        """True if `embedder` neither waits nor records, so that any thread may use it."""
        return self._embeds_faster_than_cache and self.recorder.recordings is None

    def datasets(self) -> tuple[Dataset, ...]:
        """Return the data sets of the spec within its limit, read again after a change; raise DatasetError."""
        stamps = [file_stamps(path) for path in self.spec.datasets]
        if self._loaded is None or self._loaded[0] != stamps:
            datasets = [load_dataset(path) for path in self.spec.datasets]
            names = [dataset.name for dataset in datasets]
            if len(set(names)) < len(names):
                duplicate = max(names, key=names.count)
                raise ConfigError(f"datasets: two folders are called {duplicate!r}; names must differ")
            self._loaded = stamps, tuple(dataset.subset(self.spec.limit, self.spec.sample) for dataset in datasets)
        return self._loaded[1]

    @property
    def stops(self) -> dict[str, dict[str, float]]:
        """Flow -> cost -> largest value of a turn, declared by the spec or by the settings of the flow."""
        limits = {v.label: getattr(v.settings, "max_calls_per_turn", None) for v in self.variants}
        own = {label: {} if limit is None else {"llm_calls": limit} for label, limit in limits.items()}
        return {label: calls | dict[str, float](self.spec.stops.items()) for label, calls in own.items()}

    def variant(self, label: str) -> Variant:
        """Return a flow of the spec by its label, or a built-in flow with the settings of the spec."""
        variants = {variant.label: variant for variant in self.variants}
        built_in = plugins.names("flows")
        if label not in variants and label in built_in:
            return make_variant(self.spec, FlowSpec(flow=label))
        plugins.check_names("flow of this lab", [label], {**variants, **built_in})
        return variants[label]

    async def model(self, name: str) -> QueuedModel:
        """Return the queued model that all sessions share; start it unless recordings may replace all calls."""
        if name not in self._models:
            self._models[name] = self._queued(name)
        if self.always_calls_models:
            await self._models[name].start()
        return self._models[name]

    def _queued(self, name: str) -> QueuedModel:
        limits = [limit for pattern, limit in self.spec.limits.items() if fnmatch.fnmatchcase(name, pattern)]
        limiter = RateLimiter(**limits[0].model_dump(), process_count=self._sharers) if limits else None
        return QueuedModel(*self._resolve("models", name), limiter, self._sharers)

    def limits(self) -> dict[str, RateLimiter]:
        """Return the rate limiter of each model that has completed a call."""
        limiters = {name: queued.limiter for name, queued in self._models.items()}
        return {name: limiter for name, limiter in limiters.items() if limiter is not None and limiter.answered}

    def _resolve(self, room: str, name: str) -> tuple[str, str, Callable[[], Any]]:
        """Return the resolved name of a plug-in, its endpoint, and a function that connects it."""
        replacement = self.objects.get((room, name))
        if replacement is not None:
            return name, getattr(replacement, "endpoint", ""), lambda: replacement
        provider, rest = plugins.resolve_provider(room, name)
        resolved, endpoint = getattr(provider, "identity", lambda rest: (name, ""))(rest)
        return resolved, endpoint, lambda: provider.connect(rest)

    def local_weights(self) -> list[str]:
        """Return the names of the embedded models that will certainly be loaded and may need a download."""
        if not self.always_calls_models:
            return []
        # With AGENTLAB_LOCAL_MODEL, a file of the user replaces the model, and the resolved name differs. The resolved
        # name of a file of a hub has no hash.
        resolved_models = self.resolved_models().items()
        models = [name for name, resolved in resolved_models if resolved == name.partition("@")[0]]
        replaced = {name for _, name in self.objects}
        names = dict.fromkeys([self.spec.embedder, *models])
        return [name.removeprefix("local/") for name in names if name.startswith("local/") and name not in replaced]

    def resolved_models(self) -> dict[str, str]:
        """Return model name in the spec -> name of the model that completes its calls."""
        return {name: queued.name for name, queued in self._models.items()}

    def seconds_per_call(self, model: str) -> float | None:
        """Return the provider's rough estimate of the seconds of a call; None if it has none."""
        if ("models", model) in self.objects:
            return None
        provider, name = plugins.resolve_provider("models", model)
        seconds: float | None = getattr(provider, "seconds_per_call", lambda name: None)(name)
        return seconds

    async def index(
        self,
        documents: Sequence[Document],
        retrieval: RetrievalSpec,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Index | None:
        """Return the index of `documents`, built once and stored on disk; None without documents to search.

        `progress` receives the number of embedded passages and of all passages. An index outside this process is
        opened at once, unless recordings may replace all searches.
        """
        retriever = self.retriever(retrieval)
        if not documents and retriever.needs_documents:
            return None
        content = hash(tuple((d.doc_id, d.title, d.text) for d in documents))
        async with self._opening:
            if (key := (content, retrieval.model_dump_json(exclude={"top_k"}))) not in self._indexes:
                corpus = Corpus(
                    documents=tuple(documents),
                    embedder=self.embedder,
                    # Only a live run uses the cache. Other modes must pass every vector through the recorder and must
                    # not store recorded vectors in the cache.
                    folder=home() / "indexes" if self.spec.mode == "live" else temp_folder_for(self),
                    # Queries are not cached: a cache would make the second flow look faster.
                    query_embedder=self._queries,
                    max_tokens=retrieval.max_tokens,
                    progress=progress,
                    options=retriever.options,
                )
                index: Any = await retriever.open(corpus)
                if self.always_calls_models and hasattr(index, "start"):
                    await index.start()
                if not documents and hasattr(index, "list_documents"):
                    index.documents = await self._listed_documents(index)
                self._indexes[key] = index
        return self._indexes[key]

    @cached_property
    def _retrievers(self) -> dict[str, Retriever]:
        """Retrievers by method and settings: the file of a user runs once."""
        return {}

    def retriever(self, retrieval: RetrievalSpec) -> Retriever:
        """Return the retriever with its settings; raises ConfigError."""
        name, settings = retrieval.method, retrieval.model_extra or {}
        if (key := json.dumps([name, settings], default=str)) not in self._retrievers:
            given, is_replay = self.objects.get((ROOM, name)), self.spec.mode == "replay"
            spec_keys = RetrievalSpec.model_fields
            self._retrievers[key] = find_retriever(name, settings, spec_keys, given, is_replay=is_replay)
        return self._retrievers[key]

    async def _listed_documents(self, index: Any) -> tuple[IndexedDocument, ...]:
        """Return the documents that an index outside lists, recorded like its searches."""
        key = result_key("documents", index.source)
        entry = self.recorder.look_up(key)
        if entry is None and self.spec.mode != "replay":
            row = {"kind": "result", "of": "documents", "facts": index.source, "seconds": 0.0}
            entry = self.recorder.record(key, {**row, "value": await index.list_documents()})
        return tuple(Document(doc_id=doc_id, title=title, text="") for doc_id, title in (entry.value if entry else ()))

    @contextlib.asynccontextmanager
    async def memory(
        self, variant: Variant, initial_memory: Path | None = None
    ) -> AsyncIterator[tuple[Memory | None, Path | None]]:
        """Yield a temporary long-term memory for one conversation and its folder; (None, None) for a flow without one.

        It starts empty, or as a copy of the folder `initial_memory`.
        """
        if variant.memory is None and initial_memory is None:
            yield None, None
            return
        with tempfile.TemporaryDirectory(dir=process_temp_folder(), ignore_cleanup_errors=True) as folder:
            if initial_memory is not None:
                shutil.copytree(initial_memory, folder, dirs_exist_ok=True)
            memory = await self.open_memory(variant, folder)
            try:
                yield memory, Path(folder)
            finally:
                if memory is not None:
                    # A store on a server is not deleted with the folder.
                    with contextlib.suppress(MemoryUnavailable):
                        await memory.drop()

    def check_memory(self, variant: Variant) -> None:
        """Raise ConfigError if the variant's memory is on a server and its address is missing or unusable."""
        if variant.memory and not hasattr(backend := plugins.resolve("memory", variant.memory), "KEPT_IN"):
            # Nothing is opened: a memory on a server connects at its first operation.
            backend.connect("", self._queries)

    async def open_memory(self, variant: Variant, folder: str | Path, *, preload: bool = True) -> Memory | None:
        """Return the long-term memory in `folder`, possibly an UnavailableMemory; None for a flow without one."""
        if variant.memory is None:
            return None
        backend = plugins.resolve("memory", variant.memory)
        connect = partial(backend.connect, str(folder), self._queries)
        return await open_or_unavailable(variant.memory, connect, preload=preload)

    async def session(self, variant: Variant, seat: Seat) -> Session:
        """Return a session for the flow; raise ConfigError if its setting `tools` names an unknown tool."""
        managers = [] if seat.tools else await self.tool_managers(variant, seat.mcp, interactive=seat.live)
        trace, seconds, sampling = seat.trace, self.spec.timeouts, variant.generation
        seed = None if sampling.seed is None else sampling.seed + trace.epoch
        workspace = None if self.spec.files is None else Path(self.spec.files)
        gateway = Gateway(
            seat.recorder or self.recorder,
            await self.model(variant.model),
            self._queries,
            flow=trace.flow,
            conversation=trace.conversation,
            epoch=trace.epoch,
            call_seconds=seconds.call,
            max_wait_seconds=seconds.wait,
        )
        has = Has(
            settings=variant.settings,
            prompts=variant.prompts,
            generation=Generation(**sampling.model_dump() | {"seed": seed}),
            tools=seat.tools_of(variant),
            has_dataset_tools=bool(seat.tools),
            index=seat.index,
            top_k=variant.retrieval.top_k,
            memory=seat.memory,
            memory_min_score=getattr(variant.settings, "memory_min_score", None),
            files=Files(workspace=workspace, edits_in_place=seat.live, folder=seat.folder),
            bounds=Bounds(
                turn=seconds.turn,
                conversation=seconds.conversation,
                tokens=getattr(variant.settings, "token_limit", None),
            ),
            price=self.prices.cost,
        )
        session = Session(
            trace=trace,
            gateway=gateway,
            now=seat.now or self.spec.today,
            has=has,
            history=seat.history,
            stream=seat.stream,
            lookup=None if self.spec.lookup is None else LookupTool(**self.spec.lookup.model_dump()),
        )
        for manager in managers:
            manager.offer_to(session)
        if not (seat.live and any(manager.problems for manager in managers)):
            # In a chat, the setting may name a tool of a missing server.
            variant.check_tools(session.tools)
        return session

    async def tool_managers(
        self, variant: Variant, mcp: Path | None = None, *, interactive: bool = False
    ) -> list[ToolManager]:
        """Return the shared managers of the flow's data folder and of the servers in the file `mcp` or the spec's.

        `interactive` managers, for chats, adopt changed tools of servers.
        """
        managers: list[ToolManager] = []
        reserved = tuple(tool.spec.name for tool in variant.tools)
        for source in [each for each in (variant.tool_folder, mcp or self.spec.mcp) if each is not None]:
            from agentlab.tools.mcp.tool_manager import ToolManager

            async with self._opening:
                if (key := (path := Path(source), reserved, interactive)) not in self._managers:
                    self._managers[key] = await ToolManager.open(
                        path, reserved=reserved, timeout_seconds=self.spec.timeouts.tool, live=interactive
                    )
                    for problem in self._managers[key].problems:
                        log.warning("%s: %s", path, problem)
            managers.append(self._managers[key])
            reserved += tuple(tool.spec.name for tool in managers[-1].tools)
        return managers

    async def renew_tools(self, session: Session, variant: Variant, mcp: Path | None) -> None:
        """In a turn of a chat, offer the current tools of its servers to the session and report their problems."""
        reported = {event.text for event in session.trace.events if isinstance(event, Notice)}
        for manager in await self.tool_managers(variant, mcp, interactive=True):
            for line in await manager.renew():
                session.notify("subsystemMessage", line, title="tools")
            manager.offer_to(session)
            for problem in manager.problems:
                session.notify("systemError", problem, title=f"tools{', as before' if problem in reported else ''}")

    async def close_all(self) -> None:
        """Close the tool managers, the indexes outside, the models and the embedder."""
        outside = [index for index in self._indexes.values() if hasattr(index, "close")]
        await close_each([*self._managers.values(), *outside, *self._models.values(), self._queries])


async def close_each(closables: Sequence[Any]) -> None:
    """Await `close` of each object; log a failure and close the others."""
    for closable in closables:
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await closable.close()
        except Exception:
            log.warning("%r could not be closed", closable, exc_info=True)
