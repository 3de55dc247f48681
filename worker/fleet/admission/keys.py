"""A model with several keys: each run keeps to one of them while that has capacity, and takes another one otherwise.

Requests with one prefix begin with the same key, so that its prompt cache is written once. Each key has an endpoint id
of its own, and so its own rate, outages and message batches.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from ...models.base import Part, Price, Prompt
from ...models.caching import shared_prefixes

if TYPE_CHECKING:
    from ...models.anthropic import AnthropicModel

Load = Callable[[str], float]
"""Returns how many calls wait for an endpoint; 0 where a request goes at once, infinite where none is taken."""


class KeyedModel:
    """The model of one run, with the key that ``choose`` has taken. ``models`` have one key each."""

    def __init__(self, models: Sequence[AnthropicModel], load: Load) -> None:
        self.models = models
        self._load = load
        self._order: Sequence[AnthropicModel] = ()
        """The one whose key the prefix of the run belongs to is first; empty before the first request."""
        self._chosen = models[0]

    @property
    def name(self) -> str:
        return self._chosen.name

    @property
    def endpoint_id(self) -> str:
        return self._chosen.endpoint_id

    def price(self) -> Price | None:
        return self._chosen.price()

    def window(self) -> int:
        return self._chosen.window()

    def reply(self, prompt: Prompt) -> AsyncGenerator[Part, None]:
        """Yields the parts of the reply of the key that was chosen last."""
        return self._chosen.reply(prompt)

    def choose(self, prompt: Prompt) -> None:
        """Takes the key of the run's next request. It stays while less than half of its calls wait for another one."""
        if not self._order:
            prefixes = shared_prefixes("", self.name, prompt)
            self._order = self._ordered(prefixes[-1].key if prefixes else secrets.token_hex(8))
            self._chosen = self._order[0]
        load, best = self._load(self._chosen.endpoint_id), min(self._order, key=self._load_of)
        if load and self._load_of(best) < load / 2:
            self._chosen = best

    def belonging_to(self, text: str) -> AnthropicModel:
        """Returns the one whose key belongs to a text: the same one in each process, also where other keys are gone."""
        return self._ordered(text)[0]

    @property
    def takes_requests(self) -> bool:
        """Whether one of the keys is not at its spend limit."""
        return any(self._load_of(model) < math.inf for model in self.models)

    def _ordered(self, text: str) -> list[AnthropicModel]:
        return sorted(self.models, key=lambda model: sha256(f"{text} {model.endpoint_id}".encode()).digest())

    def _load_of(self, model: AnthropicModel) -> float:
        return self._load(model.endpoint_id)
