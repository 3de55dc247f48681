"""Where the endpoint of a model is, and with what key: by the variables ``ANTHROPIC_…``, or a table of ``models``."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple, Self

from pydantic import SecretStr

from ...shared.errors import Misconfigured
from ...shared.masking import SecretMask
from ...shared.settings import Settings, secrets_of
from ...shared.settings.variables import PLATFORM_KEYS

URL = "ANTHROPIC_BASE_URL"
KEY = "ANTHROPIC_API_KEY"
TOKEN = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105 - a name, not a value
HEADERS = "ANTHROPIC_CUSTOM_HEADERS"


class Names(NamedTuple):
    """What errors call the settings that they are about."""

    url: str = URL
    key: str = f"{KEY} (or {TOKEN})"
    model: str = "DEPUTIZE_MODEL"
    output: str = "DEPUTIZE_MAX_OUTPUT_TOKENS"
    table: str = ""
    others: str = ""
    """A sentence about the tables, where none of them was named."""

    @classmethod
    def of_table(cls, name: str) -> Self:
        table = f"[models.{name}]"
        return cls(f"the URL of {table}", f"key of {table}", f"model of {table}", f"max_output of {table}", table)


OF_VARIABLES = Names()


class Credentials:
    """The endpoint's address and credentials, under the names of the SDK's environment variables.

    An API key takes precedence over an auth token; without both, the SDK looks for others: for ``anthropic`` only where
    ``variables`` are the environment's own.
    """

    def __init__(
        self,
        variables: Mapping[str, SecretStr],
        platform: str = "anthropic",
        names: Names = OF_VARIABLES,
        *,
        own: bool = False,
    ) -> None:
        self._variables = {name: variables[name] for name in (URL, KEY, TOKEN, HEADERS) if variables.get(name)}
        if KEY in self._variables:
            self._variables.pop(TOKEN, None)
        self.platform, self.names = platform, names
        self.finds_others = not own
        """Whether the SDK looks for credentials where there is neither key nor token."""
        self.id = self.digest("")

    @classmethod
    def of(cls, settings: Settings, model: str, place: int = 0) -> Self:
        """Returns those of the model that a request names. Raises Misconfigured where its table's key is not there.

        ``place``: which of several keys.
        """
        table, variables = settings.table_of(model), settings.model_endpoint
        names = Names.of_table(model) if model in settings.models else OF_VARIABLES
        if not table.is_own:
            known = ", ".join(settings.models)
            others = f" {model!r} is none of the tables of models: {known}." if known and not names.table else ""
            return cls(variables, names=names._replace(url=URL, key=OF_VARIABLES.key, others=others))
        try:
            keys = table.read_keys(variables)
        except Misconfigured as error:
            raise Misconfigured(f"[models.{model}]: {error}") from None
        key = keys[place] if keys else None
        if len(keys) > 1:
            names = names._replace(key=f"key {place + 1} of {names.table}")
        if key is None:
            found = (variables[name] for name in PLATFORM_KEYS.get(table.platform, ()) if name in variables)
            key = next((secret.get_secret_value() for secret in found), None)
        given = {name: SecretStr(text) for name, text in ((KEY, key), (URL, table.base_url)) if text}
        return cls(given, table.platform, names, own=True)

    def get(self, name: str) -> str | None:
        return self._variables[name].get_secret_value() if name in self._variables else None

    @property
    def token(self) -> str | None:
        """The key or the token; None: there is none, or the SDK looks for credentials."""
        return self.get(KEY) or self.get(TOKEN)

    @property
    def uses_sdk(self) -> bool:
        """Whether the SDK signs requests, or finds the credentials for it."""
        return self.platform != "anthropic" or (self.token is None and self.finds_others)

    def digest(self, model: str) -> str:
        """Returns a name for this address, these credentials and a model that reveals none of them."""
        values = map(self.get, (URL, KEY, TOKEN, HEADERS))
        return sha256(repr((model, self.platform, self.finds_others, *values)).encode()).hexdigest()[:32]

    def masked(self, text: str) -> str:
        """Returns the text with the credentials masked, because endpoints may quote them in error messages."""
        return SecretMask(secrets_of({name: self.get(name) or "" for name in self._variables})).text(text)
