"""Models, indexes, memories and sessions, as a spec asks for them: opened when first used, closed together.

Evaluations and chats stand on it. Its coroutines run on one event loop, which is its owner's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.core import plugins
from agentlab.core.errors import ConfigError, MemoryUnavailable
from agentlab.core.prices import PriceTable, load_prices
from agentlab.core.protocols import Embedder, Index, Memory
from agentlab.core.scratch import process_temp_folder, temp_folder_for
from agentlab.data.datasets import Dataset, file_stamps, load_dataset
from agentlab.data.documents import Document
from agentlab.knowledge.index import DocumentIndex, open_index
from agentlab.memory.unavailable import open_or_unavailable
from agentlab.models.weights import home
from agentlab.session.session import Session
from agentlab.session.traced import Bounds, Files, Generation, Has
from agentlab.wire.gateway import Gateway
from agentlab.wire.limits import RateLimiter
from agentlab.wire.queue import QueuedEmbedder, QueuedModel
from agentlab.wire.recorder import RecordedEmbedder, Recorder
from agentlab.wire.recordings import Recordings
from agentlab.workbench.seat import Seat
from agentlab.workbench.spec import RetrievalSpec, Spec
from agentlab.workbench.variants import Variant, check_consistency, make_variant

if TYPE_CHECKING:
    from agentlab.tools.mcp.tool_manager import ToolManager

log = logging.getLogger(__name__)
CLOSING_SECONDS = 90


class Workbench:
    """What the sessions of one spec are made of; `objects` stand for what the spec names, by its room and its name.

    `sharers` are the processes that play this spec at once.
    """

    def __init__(self, spec: Spec, objects: Mapping[tuple[str, str], Any], sharers: int = 1) -> None:
        process_temp_folder()  # what killed runs left of facts goes, whether this one needs a folder or not
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
            # A missing key is said before anything is loaded; what only replays needs none.
            self._queries.connect()
            for queued in self._models.values():
                queued.connect()
        scorers = plugins.names("evals.scorers") if spec.scorers == "default" else spec.scorers
        self.scorers = [plugins.resolve("evals.scorers", name) for name in scorers]
        self._indexes: dict[tuple[int, str, int], DocumentIndex] = {}
        self._managers: dict[tuple[Path, tuple[str, ...], bool], ToolManager] = {}
        self._opening = asyncio.Lock()
        self._loaded: tuple[Any, tuple[Dataset, ...]] | None = None

    @property
    def always_calls_models(self) -> bool:
        """True where models are asked without a look at what is recorded."""
        return self.spec.mode in ("live", "record")

    @cached_property
    def recorder(self) -> Recorder:
        """Where calls are recorded and found; raises ConfigError or RecordingError where the folder cannot be used."""
        mode, folder = self.spec.mode, Path(self.spec.recordings)
        if mode == "live":
            return Recorder()
        also = () if mode == "record" else self.spec.also_recorded
        return Recorder(mode, Recordings.open(folder, self.spec.name, also, write=mode != "replay"))

    @cached_property
    def embedder(self) -> Embedder:
        """For passages and graded texts: from the recordings where they are there."""
        # One that only computes never has to be asked twice.
        embedder = self._queries.connect() if self._embeds_faster_than_cache else self._queries
        return RecordedEmbedder(embedder, self._queries.endpoint, self.recorder)

    @cached_property
    def _embeds_faster_than_cache(self) -> bool:
        """Whether a vector is computed at once."""
        name = self.spec.embedder
        given = ("models.embedders", name) in self.objects
        return not given and getattr(plugins.resolve_provider("models.embedders", name)[0], "IS_QUICK", False)

    @property
    def embeds_synchronously(self) -> bool:
        """Whether `embedder` waits for nothing and writes nothing down, so that any thread may use it."""
        return self._embeds_faster_than_cache and self.recorder.recordings is None

    def datasets(self) -> tuple[Dataset, ...]:
        """The data sets of the spec, cut to its limit, read again once their files change; raises DatasetError."""
        found = [file_stamps(path) for path in self.spec.datasets]
        if self._loaded is None or self._loaded[0] != found:
            loaded = [load_dataset(path) for path in self.spec.datasets]
            names = [dataset.name for dataset in loaded]
            if len(set(names)) < len(names):
                twice = max(names, key=names.count)
                raise ConfigError(f"datasets: two folders are called {twice!r}; names must differ")
            self._loaded = found, tuple(dataset.subset(self.spec.limit, self.spec.sample) for dataset in loaded)
        return self._loaded[1]

    def variant(self, label: str) -> Variant:
        labelled = {variant.label: variant for variant in self.variants}
        if label not in labelled:
            raise ConfigError(plugins.unknown_name("flow of this lab", label, labelled))
        return labelled[label]

    async def model(self, name: str) -> QueuedModel:
        """The model behind its queue, one for all sessions; started, unless everything may be recorded already."""
        if name not in self._models:
            self._models[name] = self._queued(name)
        if self.always_calls_models:
            await self._models[name].start()
        return self._models[name]

    def _queued(self, name: str) -> QueuedModel:
        given = [of for pattern, of in self.spec.limits.items() if fnmatch.fnmatchcase(name, pattern)]
        limiter = RateLimiter(**given[0].model_dump(), process_count=self._sharers) if given else None
        return QueuedModel(*self._resolve("models", name), limiter, self._sharers)

    def limits(self) -> dict[str, RateLimiter]:
        """The limits of each model that answered, as far as they were learnt."""
        limiters = {name: queued.limiter for name, queued in self._models.items()}
        return {name: limiter for name, limiter in limiters.items() if limiter is not None and limiter.answered}

    def _resolve(self, room: str, name: str) -> tuple[str, str, Callable[[], Any]]:
        """What a queue stands before: the name it answers under, its endpoint, and how it is connected."""
        given = self.objects.get((room, name))
        if given is not None:
            return name, getattr(given, "endpoint", ""), lambda: given
        provider, rest = plugins.resolve_provider(room, name)
        answering, endpoint = getattr(provider, "identity", lambda rest: (name, ""))(rest)
        return answering, endpoint, lambda: provider.connect(rest)

    def local_weights(self) -> list[str]:
        """Catalogue names of the embedded models that will be loaded for certain."""
        if not self.always_calls_models:
            return []
        # A name that is not the adapter's own stands for a file of the user's (AGENTLAB_LOCAL_MODEL).
        models = [name for name, answering in self.resolved_models().items() if name == answering]
        given = {name for _, name in self.objects}
        named = dict.fromkeys([self.spec.embedder, *models])
        return [name.removeprefix("local/") for name in named if name.startswith("local/") and name not in given]

    def resolved_models(self) -> dict[str, str]:
        """The models of the spec, and the names of those that really answer for them."""
        return {name: shared.name for name, shared in self._models.items()}

    def seconds_per_call(self, model: str) -> float | None:
        """How long a call takes by the provider's own rough word; None where it has none."""
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
        """The index over `documents`, built once and kept on disk; None without documents.

        `progress` is told of passages embedded and all there are.
        """
        if not documents:
            return None
        content = hash(tuple((d.doc_id, d.title, d.text) for d in documents))
        async with self._opening:
            if (key := (content, retrieval.method, retrieval.max_tokens)) not in self._indexes:
                self._indexes[key] = await open_index(
                    documents,
                    self.embedder,
                    # Unless live, built anew: every vector passes the recorder, and a stranger's vectors stay out of
                    # the cache.
                    folder=home() / "indexes" if self.spec.mode == "live" else temp_folder_for(self),
                    # A cached query would make the flow that asks second look faster.
                    query_embedder=self._queries,
                    method=retrieval.method,
                    max_tokens=retrieval.max_tokens,
                    progress=progress,
                )
        return self._indexes[key]

    @contextlib.asynccontextmanager
    async def memory(
        self, variant: Variant, initial_memory: Path | None = None
    ) -> AsyncIterator[tuple[Memory | None, Path | None]]:
        """A long-term memory for one conversation and its folder, gone with the block; None for a flow without one.

        It is empty, or what is in the folder `begins_with`.
        """
        if variant.memory is None and initial_memory is None:
            yield None, None
            return
        with tempfile.TemporaryDirectory(dir=process_temp_folder(), ignore_cleanup_errors=True) as folder:
            if initial_memory is not None:
                shutil.copytree(initial_memory, folder, dirs_exist_ok=True)
            opened = await self.open_memory(variant, folder)
            try:
                yield opened, Path(folder)
            finally:
                if opened is not None:
                    # On a server the store outlives the folder it is named after.
                    with contextlib.suppress(MemoryUnavailable):
                        await opened.drop()

    async def open_memory(self, variant: Variant, folder: str | Path) -> Memory | None:
        """The long-term memory kept in `folder`, one that cannot be reached included; None for a flow without one."""
        if variant.memory is None:
            return None
        backend = plugins.resolve("memory", variant.memory)
        return await open_or_unavailable(variant.memory, lambda: backend.connect(str(folder), self._queries))

    async def session(self, variant: Variant, seat: Seat) -> Session:
        """A session in which the flow answers; raises ConfigError where its setting `tools` names one nobody has."""
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
            files=Files(workspace=workspace, keeps=seat.live, folder=seat.folder),
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
        )
        for manager in managers:
            manager.offer_to(session)
            for problem in manager.problems if seat.live else ():
                session.notify("systemError", problem, title="tools")
        variant.check_tools(session.tools)
        return session

    async def tool_managers(
        self, variant: Variant, mcp: Path | None = None, *, interactive: bool = False
    ) -> list[ToolManager]:
        """The tools of the flow's data folder and of the servers in the file `mcp`, or the spec's, opened once for all.

        `live` ones, for chats, take up what servers change.
        """
        found: list[ToolManager] = []
        reserved = tuple(tool.spec.name for tool in variant.tools)
        for named in (variant.tool_folder, mcp or self.spec.mcp):
            if named is None:
                continue
            from agentlab.tools.mcp.tool_manager import ToolManager

            async with self._opening:
                if (key := (path := Path(named), reserved, interactive)) not in self._managers:
                    self._managers[key] = await ToolManager.open(path, reserved=reserved, live=interactive)
                    for problem in self._managers[key].problems:
                        log.warning("%s: %s", path, problem)
            found.append(self._managers[key])
            reserved += tuple(tool.spec.name for tool in found[-1].tools)
        return found

    async def renew_tools(self, session: Session, variant: Variant, mcp: Path | None) -> None:
        """Offer a chat's session, before a turn, what its servers list by now."""
        for manager in await self.tool_managers(variant, mcp, interactive=True):
            for line in await manager.renew():
                session.notify("subsystemMessage", line, title="tools")
            manager.offer_to(session)

    async def close_all(self) -> None:
        """End whatever was opened."""
        await close_each([*self._managers.values(), *self._models.values(), self._queries])


async def close_each(things: Sequence[Any]) -> None:
    """Await `close` of each; whatever one of them does, the others are closed."""
    for thing in things:
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await thing.close()
        except Exception:
            log.warning("%r could not be closed", thing, exc_info=True)
