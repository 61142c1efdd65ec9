"""Spec of a run, a YAML file without unknown keys. The command line overrides it; it overrides the environment.

name: flows
datasets: [datasets/laws]
flows: [rag_only, {flow: tools, label: tools_k8, retrieval: {top_k: 8}}]
model: local/qwen2.5-coder-0.5b
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from agentlab.core.constants import Mode
from agentlab.core.errors import ConfigError
from agentlab.core.files import read_yaml
from agentlab.core.jsonl import validate
from agentlab.core.plugins import default_label

ENVIRONMENT = {
    "AGENTLAB_MODEL": "model",
    "AGENTLAB_EMBEDDER": "embedder",
    "AGENTLAB_MODE": "mode",
    "AGENTLAB_FILES": "files",
}


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RetrievalSpec(Strict):
    """Search of documents. Keys that are not listed here are settings of the retriever."""

    model_config = ConfigDict(extra="allow")

    method: str = "hybrid"
    """Retriever: `dense`, `bm25`, `hybrid`, `chroma`, or a file of your own."""
    top_k: int = Field(default=4, ge=1, le=100)
    """Number of passages that a search returns."""
    max_tokens: int = Field(default=200, ge=16, le=2000)
    """Maximum tokens of a passage."""


class LookupSpec(Strict):
    tool: str = Field(min_length=1)
    """Name of a tool that searches documents."""
    documents: str = ""
    """Path of ids or documents in its JSON output, such as results.doc_id."""


class GenerationSpec(Strict):
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    seed: int | None = 7
    max_tokens: int | None = Field(default=256, ge=1)
    """Maximum tokens of a completion."""
    thought_tokens: int | None = Field(default=None, ge=0)
    """Tokens beyond max_tokens for models that think first; null: 4000 for these."""
    cut_off_arguments: Literal["unreadable"] | None = None
    """`unreadable` reports arguments of a native tool call that were cut off as no JSON, as in older recordings."""

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit unset newer keys, so that a spec equals those of runs from before these keys."""
        newer = ("thought_tokens", "cut_off_arguments")
        return {name: value for name, value in write(self).items() if name not in newer or value is not None}


class BudgetSpec(Strict):
    """Limits of a run. At a limit the run starts no more conversations. Running ones continue until the limit is
    exceeded by a tenth. The run can be resumed with a higher limit."""

    usd: float | None = Field(default=None, gt=0)
    calls: int | None = Field(default=None, gt=0)
    tokens: int | None = Field(default=None, gt=0)
    """Input and output tokens together."""
    minutes: float | None = Field(default=None, gt=0)
    """Minutes of this process."""


class TimeoutSpec(Strict):
    """Time limits in seconds of wall-clock time, waiting for the model included."""

    call: float | None = Field(default=None, gt=0)
    """Seconds for one attempt at a model call."""
    turn: float | None = Field(default=None, gt=0)
    """Seconds for a turn, which then fails."""
    conversation: float | None = Field(default=None, gt=0)
    """Seconds for all turns; the remaining ones fail."""
    wait: float | None = Field(default=None, gt=0)
    """Longest pause in seconds that a provider may ask for (60)."""
    tool: float | None = Field(default=None, gt=0)
    """Seconds for a call of a tool since its last progress message."""


class LimitSpec(Strict):
    """Rate limits of a model over all keys. Limits in the provider's response headers apply, too."""

    requests: int | None = Field(default=None, gt=0)
    """Requests per minute."""
    tokens: int | None = Field(default=None, gt=0)
    """Tokens per minute."""
    concurrent: int | None = Field(default=None, gt=0)
    """Calls in flight."""


class FlowSpec(BaseModel):
    """A flow or a variant of one. Keys that are not listed here are settings of the flow."""

    model_config = ConfigDict(extra="allow", frozen=True)

    flow: str
    label: str = ""
    model: str | None = None
    memory: str | None = None
    retrieval: dict[str, Any] = {}
    generation: dict[str, Any] = {}
    prompts: dict[str, str] = {}

    @model_validator(mode="before")
    @classmethod
    def _add_default_label(cls, entry: Any) -> Any:
        if isinstance(entry, Mapping) and isinstance(name := entry.get("flow"), str) and not entry.get("label"):
            return {**entry, **({"label": label} if (label := default_label(name)) != name else {})}
        return entry

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @property
    def name(self) -> str:
        return self.label or self.flow


Stopped = Literal[
    "llm_calls", "embedding_calls", "tool_calls", "input_tokens", "output_tokens", "cost_usd", "latency_s"
]
FlowEntry = Annotated[
    FlowSpec,
    BeforeValidator(
        lambda entry: {"flow": entry} if isinstance(entry, str) else entry, json_schema_input_type=str | FlowSpec
    ),
]
"""Flow in a spec: its name, or a variant."""


class Spec(Strict):
    name: str = Field("run", pattern=r"^\w[\w.-]*$")
    """First part of the run's id."""
    datasets: tuple[str, ...] = ("datasets/laws",)
    flows: tuple[FlowEntry, ...] = tuple(FlowSpec(flow=name) for name in ("rag_only", "tools", "tools_rag_fallback"))
    model: str = "local/qwen2.5-coder-0.5b"
    embedder: str = "local/all-minilm-l6-v2"
    retrieval: RetrievalSpec = RetrievalSpec()
    memory: str = "sqlite"
    """Backend of long-term memory for flows that have one, or `none`."""
    ingest: Literal["verbatim", "flow"] = "verbatim"
    """Writer of a memory set's sessions: `verbatim` stores each message as one fact, `flow` lets the flow write
    memory."""
    files: str | None = None
    """Folder of the file tools: a chat edits it in place, each conversation of a run gets a copy (default: an empty
    temporary folder)."""
    lookup: LookupSpec | None = None
    """Tool that searches documents, and its output."""
    mcp: str | None = None
    """File of MCP servers; every flow with tools gets their tools."""
    generation: GenerationSpec = GenerationSpec()
    limit: int | None = Field(None, ge=1)
    """Number of conversations of each data set."""
    sample: int | None = None
    """Seed of a stratified sample of `limit` conversations (default: the first `limit` ones)."""
    epochs: int = Field(1, ge=1)
    concurrency: int = Field(1, ge=1, le=1000)
    """Conversations in flight."""
    today: datetime = datetime(2026, 1, 1, 12)
    """Clock of conversations without a `metadata.today` of their own."""
    mode: Mode = "live"
    """Call the model, record calls, replay them, or replay and record the missing ones."""
    recordings: str = "evals/recordings"
    """Folder of recorded calls, one file for each spec name."""
    also_recorded: tuple[str, ...] = ()
    """Names of other specs whose recordings in the same folder are used, too."""
    scorers: Literal["default"] | tuple[str, ...] = "default"
    primary: tuple[str, ...] = Field((), max_length=4)
    """Two to four primary measures. Only these may ship a flow or fail a gate.

    Default: the cost and three measures that the data can grade of answer_correctness, refusal_accuracy, tool_f1,
    lookup_accuracy and memory_recall."""
    usable: float = Field(0.2, ge=0, le=1)
    """Floor of the answer measure: a flow is not recommended if the upper end of its interval is lower."""
    labels: int = Field(20, ge=3)
    """Minimum labelled turns for a judge as primary measure; with fewer it is secondary."""
    prompts: dict[str, dict[str, str]] = {}
    """Texts that replace prompts, by flow and prompt name."""
    budget: BudgetSpec = BudgetSpec()
    timeouts: TimeoutSpec = TimeoutSpec()
    stops: dict[Stopped, Annotated[float, Field(gt=0)]] = {}
    """Largest amount of a cost in one turn; a cost without a stop passes no gate."""
    limits: dict[str, LimitSpec] = {}
    """Rate limits by model, `openai/gpt-x` or `openai/*`; limits in response headers apply, too."""
    prices: str | None = None
    """File of your own price table, which overrides the one of the package."""

    @model_validator(mode="after")
    def _consistent(self) -> Spec:
        labels = [flow.name for flow in self.flows]
        duplicates = {label for label in labels if labels.count(label) > 1}
        if not labels or not self.datasets:
            raise ValueError("a run needs at least one flow and one data set")
        if duplicates:
            raise ValueError(f"flows: duplicate label {sorted(duplicates)[0]!r}; give each variant a different label")
        if self.sample is not None and self.limit is None:
            raise ValueError("sample: needs a limit, the number of conversations to draw")
        return self


def load_spec(path: str | Path | None, overrides: Mapping[str, Any] | None = None) -> Spec:
    """Read a spec file; None gives the defaults. `overrides` maps dotted keys (`retrieval.top_k`) to values.

    An override precedes the file, and the file precedes the environment. Raises ConfigError with file and key.
    """
    data: dict[str, Any] = {key: os.environ[name] for name, key in ENVIRONMENT.items() if os.environ.get(name)}
    if path is not None:
        data |= _read_yaml(Path(path))
    return make_spec(data, overrides or {}, "spec" if path is None else str(path))


def make_spec(data: dict[str, Any], overrides: Mapping[str, Any], location: str = "spec") -> Spec:
    """Apply `overrides` with dotted keys to `data` and return the validated spec; raise ConfigError."""
    for key, value in overrides.items():
        inner = data
        *outer, last = key.split(".")
        for part in outer:
            if not isinstance(inner.get(part) or {}, Mapping):
                raise ConfigError(f"{key}: {part} is not a mapping, so nothing in it can be set")
            inner[part] = dict(inner.get(part) or {})
            inner = inner[part]
        inner[last] = value
    return validate(Spec, data, location)


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise ConfigError(f"there is no spec {path}; `agentlab init` makes one")
    data = read_yaml(path, "spec")
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ConfigError(f"{path}: a spec is a mapping of keys to values")
    return data
