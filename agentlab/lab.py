"""The front door: a Lab turns a spec into models, indexes and sessions, and owns the event loop they live on.

    lab = Lab("evals/flows.yaml", limit=2)
    run = lab.run_sync()          # in a script
    run = await lab.run()         # in a notebook cell, while the kernel's own loop runs

The only file that imports every room.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from agentlab import plugins
from agentlab.errors import ConfigError
from agentlab.history import ConversationDatabase
from agentlab.inflight import SharedModel
from agentlab.prices import PriceTable, load_prices
from agentlab.protocols import Embedder, Index, Model, Tool
from agentlab.session import Generation, Session
from agentlab.spec import FlowSpec, RetrievalSpec, Spec, load_spec, make_spec
from agentlab.trace import Trace
from agentlab.variants import Variant, make_variant

if TYPE_CHECKING:
    from agentlab.chat import Chat
    from agentlab.evals.datasets import Dataset
    from agentlab.evals.results import Run
    from agentlab.knowledge.documents import Document

T = TypeVar("T")


class Lab:
    """Everything a run or a chat needs, opened when first used and closed by `close` or a `with` block.

    `spec` is a file, a Spec or None; keywords are keys of the spec and win over it. `model`, `embedder` and entries of
    `flows` may also be objects.
    """

    def __init__(self, spec: str | Path | Spec | None = None, **overrides: Any) -> None:
        self._given_models: dict[str, Model] = {}
        self._given_embedders: dict[str, Embedder] = {}
        self._given_flows: dict[str, Any] = {}
        overrides = {key.replace("__", "."): value for key, value in overrides.items()}
        if "model" in overrides and not isinstance(overrides["model"], str):
            model = overrides["model"]
            self._given_models[model.name] = model
            overrides["model"] = model.name
        if "embedder" in overrides and not isinstance(overrides["embedder"], str):
            embedder = overrides["embedder"]
            self._given_embedders[embedder.name] = embedder
            overrides["embedder"] = embedder.name
        if isinstance(overrides.get("flows"), (list, tuple)):
            overrides["flows"] = [self._flow_entry(entry) for entry in overrides["flows"]]
        if isinstance(spec, Spec):
            self.spec = make_spec(spec.model_dump(), overrides)
        else:
            self.spec = load_spec(spec, overrides)
        self.variants = tuple(
            make_variant(self.spec, flow, self._given_flows.get(flow.flow)) for flow in self.spec.flows
        )
        self._check_consistency()
        self.prices: PriceTable = load_prices(self.spec.prices)
        named = {variant.model for variant in self.variants}
        self._models = {name: SharedModel(self._given_models.get(name) or _connect("models", name)) for name in named}
        self.embedder: Embedder = self._given_embedders.get(self.spec.embedder) or _connect(
            "models.embedders", self.spec.embedder
        )
        asked = self.spec.scorers
        names = plugins.names("evals.scorers") if asked == "default" else asked
        self.scorers = [plugins.resolve("evals.scorers", name) for name in names]
        self._indexes: dict[tuple[int, str], Index] = {}
        self._opening = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def _check_consistency(self) -> None:
        for variant in self.variants:
            sampling = variant.generation
            if self.spec.epochs > 1 and (not sampling.temperature or sampling.seed is None):
                raise ConfigError(
                    f"epochs: {self.spec.epochs} epochs of {variant.label} at temperature {sampling.temperature} with"
                    f" seed {sampling.seed} would only repeat themselves; set generation.temperature above 0 and a seed"
                    " (each epoch adds one to it)"
                )
        flows = {flow.flow for flow in self.spec.flows}
        for name in self.spec.prompts:
            if name not in flows:
                raise ConfigError(f"prompts: {plugins.unknown('flow of this spec', name, flows)}")

    # The loop: one, in the background, so that scripts, the CLI and notebooks share one way in.

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `work` on the lab's loop, which is started when it is first needed."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="agentlab", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the lab's loop and wait for it; an interrupt ends the work before it is raised again."""
        future = self.start(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            self.start(asyncio.sleep(0)).result(5)
            raise

    async def _elsewhere(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self.start(work))

    # Runs and chats.

    async def run(self, **options: Any) -> Run:
        """Replay the data sets through the flows; options are those of `agentlab.evals.runner.run`."""
        from agentlab.evals.runner import run

        return await self._elsewhere(run(self, **options))

    def run_sync(self, **options: Any) -> Run:
        """`run` for scripts, and for cells that do not want to await."""
        from agentlab.evals.runner import run

        return self.wait(run(self, **options))

    def chat(self, flow: str | None = None, **options: Any) -> Chat:
        """A conversation with one of the lab's flows, kept in memory unless `database` names a file."""
        from agentlab.chat import Chat

        return Chat(self, self.variant(flow or self.variants[0].label), **options)

    def datasets(self) -> tuple[Dataset, ...]:
        """The data sets of the spec, cut to its limit; raises DatasetError."""
        from agentlab.evals.datasets import load_dataset

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

    async def model(self, name: str) -> SharedModel:
        """The model, started; one for the whole lab, so that identical requests meet."""
        if name not in self._models:
            self._models[name] = SharedModel(_connect("models", name))
        shared = self._models[name]
        async with self._opening:
            start = getattr(shared.model, "start", None)
            if start is not None:
                await start()
        return shared

    def local_weights(self) -> list[str]:
        """Catalogue names of the embedded models this lab will load."""
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
        provider, _, name = model.partition("/")
        pace = getattr(plugins.resolve("models", provider), "seconds_per_call", None)
        return pace(name) if pace else None

    async def index(self, documents: Sequence[Document], retrieval: RetrievalSpec) -> Index | None:
        """The index over `documents`, built once and kept on disk; None without documents."""
        from agentlab.knowledge.index import open_index
        from agentlab.models.embedders.cache import CachedEmbedder
        from agentlab.models.weights import home

        if not documents:
            return None
        key = (
            hash(tuple((d.doc_id, d.title, d.text) for d in documents)),
            f"{retrieval.method}/{retrieval.max_tokens}",
        )
        async with self._opening:
            if key not in self._indexes:
                opened = await open_index(
                    documents,
                    CachedEmbedder(self.embedder, home() / "embeddings"),
                    folder=home() / "indexes",
                    method=retrieval.method,
                    max_tokens=retrieval.max_tokens,
                )
                if opened.embedder is not None:
                    # A cached query would make the flow that asks second look faster.
                    opened.embedder = self.embedder
                self._indexes[key] = opened
        return self._indexes[key]

    async def session(
        self,
        variant: Variant,
        trace: Trace,
        *,
        index: Index | None,
        tools: Sequence[Tool] = (),
        database: ConversationDatabase | None = None,
        now: datetime | None = None,
        on_text: Callable[[int, str], None] = lambda event_id, text: None,
    ) -> Session:
        """A session for one conversation. `tools` that a data set brings replace the flow's own, but for look-ups."""
        built_in = [name for name in variant.tools if not (name == "lookup_documents" and index is None)]
        if tools:
            built_in = [name for name in built_in if name == "lookup_documents"]
        history = database or ConversationDatabase()
        generation = variant.generation
        seed = None if generation.seed is None else generation.seed + trace.epoch
        return Session(
            trace=trace,
            wire=await self.model(variant.model),
            history=history,
            reply_to=history.last_message(trace.conversation),
            now=now or self.spec.today,
            generation=Generation(temperature=generation.temperature, seed=seed, max_tokens=generation.max_tokens),
            index=index,
            top_k=variant.retrieval.top_k,
            tools=[*(plugins.resolve("tools", name).build() for name in built_in), *tools],
            settings=variant.settings,
            prompts=variant.prompts,
            price=self.prices.charge,
            on_text=on_text,
        )

    # Reading the spec.

    def _flow_entry(self, entry: Any) -> Any:
        if isinstance(entry, (str, Mapping, FlowSpec)):
            return entry
        name = getattr(entry, "name", None) or getattr(entry, "__name__", None) or type(entry).__name__
        self._given_flows[name] = entry
        return {"flow": name}

    # The end.

    def close(self) -> None:
        """End the models this lab started and its loop. A lab can be closed twice, not used again."""
        if self._loop is None or self._thread is None:
            return
        for shared in self._models.values():
            asyncio.run_coroutine_threadsafe(shared.close(), self._loop).result(30)
        self._models.clear()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self._loop = self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        flows = ", ".join(variant.label for variant in self.variants)
        return f"<Lab {self.spec.name}: {flows} on {self.spec.model}>"


def _connect(room: str, name: str) -> Any:
    provider, slash, model = name.partition("/")
    if not slash or not model:
        raise ConfigError(f"{name!r} is not a {plugins.ROOMS[room].split()[0]} name; it has the form provider/name")
    return plugins.resolve(room, provider).connect(model)
