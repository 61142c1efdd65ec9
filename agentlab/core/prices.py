"""Prices of models and the cost of a completion in dollars; a user's table overrides the shipped one."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from agentlab.core.files import read_yaml
from agentlab.core.jsonl import validate
from agentlab.core.messages import Usage

SHIPPED = Path(__file__).with_name("prices.yaml")


class Price(BaseModel):
    """Dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    input: float = Field(ge=0)
    cached_input: float | None = Field(None, ge=0, description="if missing, cached tokens cost as much as other input")
    output: float = Field(ge=0)


class PriceTable(BaseModel):
    """Prices by model name; a name may end in `*`. The longest fitting name wins."""

    dated: Annotated[str, BeforeValidator(str)] = "undated"
    models: dict[str, Price]

    def price_of(self, model: str) -> Price | None:
        if model in self.models:
            return self.models[model]
        fitting = [name for name in self.models if fnmatch.fnmatchcase(model, name)]
        return self.models.get(max(fitting, key=len, default=""))

    def cost(self, model: str, usage: Usage) -> float | None:
        """Return the dollars for `usage`; None if the model has no price or the provider reported no tokens."""
        price = self.price_of(model)
        if price is None or usage.input_tokens is None or usage.output_tokens is None:
            return None
        cached = (usage.cached_tokens or 0) if price.cached_input is not None else 0
        fresh = usage.input_tokens - cached
        return (fresh * price.input + cached * (price.cached_input or 0.0) + usage.output_tokens * price.output) / 1e6


def load_prices(path: str | Path | None = None) -> PriceTable:
    """Return the shipped price table, overridden by the YAML file `path`; raises ConfigError if the file is unusable.

    Prices are dollars per million tokens; `PriceTable.dated` is the date of the table.
    """
    files = (Path(file) for file in (SHIPPED, path) if file is not None)
    tables = [validate(PriceTable, read_yaml(file, "price table"), str(file)) for file in files]
    prices = {name: price for table in tables for name, price in table.models.items()}
    return PriceTable(models=prices, dated=tables[-1].dated)
