"""``[models.NAME]``: what a request may name as its model beside the models of the one endpoint of ``ANTHROPIC_…``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from ..errors import Misconfigured
from ..request_options import Effort
from ..text import did_you_mean

Platform = Literal["anthropic", "aws", "bedrock", "google-cloud", "foundry"]
Lack = Literal["cache_control", "thinking", "effort"]
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
MAX_KEYS = 32
_KEY_ADVICE = (
    "names the place of the key: a variable in upper case (MY_GATEWAY_KEY), or a file by its absolute path "
    "(/run/secrets/key); the key itself does not belong here"
)


class ModelPrice(BaseModel):
    """US dollars per million tokens. Cached tokens without a price of their own cost as much as others.

    Those that are written for an hour (``cache_write_1h``) cost twice as much without one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cache_read: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cache_write: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cache_write_1h: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, validation_alias=AliasChoices("cache_write_1h", "cacheWrite1h")
    )


class ModelSettings(BaseModel):
    """One model: where it is, and what it is able to do. Without an address and a key it is at ``ANTHROPIC_…``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    platform: Platform = "anthropic"
    """Who answers at the address, and so how requests are signed. A URL is that of a gateway: ``base_url``."""
    base_url: str | None = None
    """What precedes ``/v1/messages``. Unset: the platform's own, by the variables of its SDK."""
    key: str | None = None
    """The variable (or ``NAME_FILE``) or the file that holds the key. Unset: none, or what the platform's SDK finds."""
    keys: list[str] = Field(default=[], max_length=MAX_KEYS)
    """The same for several keys, whose rate limits and spend limits are used together. Each is that of an account or
    workspace with limits of its own."""
    model: str | None = None
    """The model's name at its endpoint. Unset: the name of the table."""
    context_window: int | None = Field(default=None, ge=1000)
    """Tokens, replies included."""
    max_output: int | None = Field(default=None, ge=256)
    """The longest reply that is asked for, in tokens. Unset: ``max_output_tokens``."""
    effort: Effort | None = None
    """That of requests which ask for none. Unset: the model's own default."""
    price: ModelPrice | None = None
    """Unset: that of ``prices`` or of the provider's list by the model's name, else the cost is unknown."""
    lacks: list[Lack] = []
    """What the endpoint cannot do, as ``deputize doctor --model`` finds it, so that it is not asked for it."""

    @model_validator(mode="before")
    @classmethod
    def _gateway(cls, value: Any) -> Any:
        """A platform that is a URL stands for its base URL."""
        platform = value.get("platform") if isinstance(value, dict) else None
        if not isinstance(platform, str) or not platform.startswith(("http://", "https://")):
            return value
        if value.get("base_url"):
            raise ValueError("platform is the URL of a gateway, and so is base_url: set one of them")
        return {**value, "platform": "anthropic", "base_url": platform}

    @field_validator("platform", mode="before")
    @classmethod
    def _known(cls, value: object) -> object:
        known = get_args(Platform)
        if value in known:
            return value
        hint = did_you_mean(str(value)[:100], known, 1) or f"there are {', '.join(known)}."
        raise ValueError(f"there is no platform {str(value)[:100]!r}; {hint} A gateway is named by its URL, with http")

    @field_validator("base_url")
    @classmethod
    def _address(cls, url: str | None) -> str | None:
        parts = urlsplit(url or "https://unset")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must begin with http:// or https:// and a host")
        if "@" in parts.netloc:
            raise ValueError("must not contain a user or password: name its variable or file in `key`")
        return url

    @field_validator("key")
    @classmethod
    def _reference(cls, key: str | None) -> str | None:
        return None if key is None else _place(key)

    @field_validator("keys")
    @classmethod
    def _references(cls, keys: list[str]) -> list[str]:
        places = [_place(key) for key in keys]
        if len({*places}) < len(places):
            raise ValueError("names one place twice: each key has its own")
        return places

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.key and self.keys:
            raise ValueError("key and keys are both set: name all places in `keys`")
        if self.places and self.platform == "google-cloud":
            raise ValueError("google-cloud has no key: its credentials are Google's Application Default Credentials")
        if self.context_window and self.max_output and self.max_output >= self.context_window:
            raise ValueError("max_output must be less than context_window, which contains prompt and reply")
        if self.effort and "effort" in self.lacks:
            raise ValueError("effort is set, and `lacks` states that the model takes none: remove one of them")
        return self

    @property
    def is_own(self) -> bool:
        """Whether it has an endpoint of its own, which gets nothing of the variables ``ANTHROPIC_…``."""
        return bool(self.base_url or self.places) or self.platform != "anthropic"

    @property
    def places(self) -> Sequence[str]:
        """Where its keys are: the names of variables, or files."""
        return self.keys or ([self.key] if self.key else [])

    @property
    def variables(self) -> Sequence[str]:
        """The variables that hold its keys."""
        return [*filter(_VARIABLE.fullmatch, self.places)]

    @property
    def files(self) -> Sequence[str]:
        """The files that hold its keys."""
        return [place for place in self.places if not _VARIABLE.fullmatch(place)]

    def read_keys(self, variables: Mapping[str, SecretStr]) -> Sequence[str]:
        """Returns the keys, in the order of the table. Raises Misconfigured where one of them is not there."""
        return [_read_key(place, variables) for place in self.places]


def _place(key: str) -> str:
    if _VARIABLE.fullmatch(key):
        return key
    if not key.startswith(("/", "~/")):
        raise ValueError(_KEY_ADVICE)
    return str(Path(key).expanduser())


def _read_key(place: str, variables: Mapping[str, SecretStr]) -> str:
    if _VARIABLE.fullmatch(place):
        if secret := variables.get(place):
            return secret.get_secret_value()
        raise Misconfigured(f"key names the variable {place}, which is not set; set it, or {place}_FILE")
    return read_key_file(place)


def read_key_file(path: str) -> str:
    """Returns the key in a file. Raises Misconfigured."""
    try:
        key = Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Misconfigured(f"key names the file {path}, which cannot be read: {reason}") from None
    if not key:
        raise Misconfigured(f"key names the file {path}, which is empty")
    return key


def check_name(name: str) -> None:
    """Raises ValueError for the name of a table that means something else as a model."""
    if not name.strip() or ":" in name or name.startswith("scripted"):
        raise ValueError(f"{name[:100]!r} cannot be the name of a table: a colon and 'scripted' mean other models")
