"""Settings: the only reader of the environment.

``DEPUTIZE_`` + name, or a key of ``deputize.toml``; the environment overrides the file, the file the default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from shared.delegation import Limits
from shared.errors import Misconfigured
from shared.log import log
from shared.settings_file import written
from shared.text import did_you_mean, visible
from shared.tool_settings import ToolSettings, located
from shared.wire import explain

PREFIX = "DEPUTIZE_"
MODEL_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
)
"""The SDK's own variables. Each is also read from the file that ``<name>_FILE`` names (container secrets)."""
_READ_BY_LIBRARIES = re.compile(r"(ANTHROPIC|DEPUTIZE|SSL_CERT|FLOWER)_.*|.*_PROXY", re.IGNORECASE)
_TABLES: Mapping[str, tuple[str, type[BaseModel]]] = {"caps": ("CAP_", Limits), "tools": ("TOOLS_", ToolSettings)}
"""Settings that are tables of their own: the prefix of their variables, and what is in them."""
_SCHEME = re.compile(r"^(Bearer|Basic|Token|ApiKey)\s+", re.IGNORECASE)
CAPS = Limits(max_turns=200, max_tool_calls=1000, timeout_seconds=24 * 3600)


class Settings(BaseModel):
    """One process's settings. Times are in seconds, sizes in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    redis_url: str | None = None
    """Unset: the embedded server of this machine's stack."""
    host: str = "127.0.0.1"
    port: int = Field(default=8642, ge=0, le=65535)
    home: Path = Path("~/.local/state/deputize")
    url: str | None = None
    token: SecretStr | None = None
    no_token: bool = False
    """If no token is set: true grants access to every user and program of this machine, on a loopback address only."""
    model: str = "claude-sonnet-5-5"
    """A model's name, or ``scripted`` / ``scripted:FILE`` for the model that follows a script."""
    model_retry_seconds: float = Field(default=300, ge=0)
    """How long retryable failures of the model's endpoint are retried (429, 5xx, cut streams, no connection).

    From the first failure of a turn on, and never longer than the run's own time; 0 asks once.
    """
    scripts: Path | None = None
    """A folder of scripts that requests may name as ``scripted:FILE``. Unset: only the one that ``model`` names."""
    context_tokens: int | None = Field(default=None, ge=1000)
    """The model's context window, if it is not the one known for its name: an endpoint may offer less."""
    workspace_root: Path | None = None
    """Where workspaces live; default: ``workspaces`` below ``home``."""
    workspace_sources: list[Path] | None = None
    """Roots from which directory workspaces may be copied. Unset: none, or any with the embedded stack."""
    max_streams: int = Field(default=5000, ge=1)
    """How many event streams and long polls the API serves at a time."""
    body_seconds: float = Field(default=20, gt=0)
    """How long the API waits for a small request's body, and for the next chunk of a large one."""
    workspace_max_bytes: int = Field(default=16 * 1024**3, ge=1)
    """How much may be copied for a workspace; holes of files do not count."""
    concurrency: int = Field(default=200, ge=1, le=20000)
    queues: list[str] = ["deputize"]
    mcp_config: Path | None = None
    """Shorter for ``tools.mcp_config_path``."""
    skills_dir: Path | None = None
    """Shorter for ``tools.skills_dir``."""
    policy: Path | None = None
    trusted_folder: Path | None = None
    """The directory whose files count by a recorded trust; ``load`` finds out. It is looked at again at every use."""
    permission_timeout_seconds: float = Field(default=300, gt=0)
    lease_seconds: float = Field(default=10, ge=1)
    claim_seconds: float = Field(default=30, gt=0)
    """How long an accepted delegation may wait for its first claim before another ticket is sent."""
    retention_seconds: int = Field(default=7 * 24 * 3600, ge=1)
    workspace_retention_seconds: int = Field(default=24 * 3600, ge=0)
    """How long the files of a finished delegation are kept; its patch lives as long as its record."""
    shutdown_seconds: float = Field(default=10, ge=0)
    """How long a worker lets running delegations go on after SIGTERM before it hands them over."""
    caps: Limits = CAPS
    """The server's caps: a request's limits are lowered to these. What a file or ``CAP_`` variable leaves out stays."""
    tools: ToolSettings = ToolSettings()
    """The tools that this worker offers."""
    loop_detection: bool = True
    """Whether a run that repeats itself is stopped."""
    max_attempts: int = Field(default=3, ge=1)
    """After so many workers lost in a row, with no turn completed in between, a delegation ends as ``worker_lost``.

    A worker that is stopped in good order is not lost.
    """
    local: bool = False
    """Workers share this machine with the service (the embedded stack says so): paths are checked on acceptance."""
    sandbox: bool | Literal["required"] = True
    """False refuses every tool that needs the sandbox; nothing ever runs unprotected.

    ``required``: a worker whose sandbox does not work ends at once with exit code 3.
    """
    log_level: str = "INFO"
    model_endpoint: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """The values of MODEL_VARIABLES, for the model client and for masking."""

    @field_validator("queues", "workspace_sources", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("mcp_config", "skills_dir")
    @classmethod
    def _located(cls, path: Path | None) -> Path | None:
        return path and located(path)

    @field_validator("policy")
    @classmethod
    def _no_policy(cls, path: Path | None) -> Path | None:
        if path is not None:
            raise ValueError(
                f"policy files are not supported by this version, so {path} would have no effect; unset it"
            )
        return path

    @field_validator("home", "workspace_root", "scripts")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return path and path.expanduser().absolute()

    @field_validator("caps", mode="before")
    @classmethod
    def _filled(cls, value: Any) -> Any:
        return {**CAPS.model_dump(), **value} if isinstance(value, dict) else value

    @property
    def workspaces(self) -> Path:
        return self.workspace_root or self.home / "workspaces"

    @property
    def secrets(self) -> list[str]:
        """Values that must not leave the process: they are masked in events, results and logs."""
        given = {name: secret.get_secret_value() for name, secret in self.model_endpoint.items()}
        own = [secret.get_secret_value() for secret in (self.token, self.tools.search_key) if secret]
        keys = [given[name] for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN") if name in given]
        in_urls = [*_credentials(given.get("ANTHROPIC_BASE_URL")), *_credentials(self.redis_url)]
        return [*keys, *header_values(given.get("ANTHROPIC_CUSTOM_HEADERS", "")), *own, *in_urls]

    @property
    def has_model_endpoint(self) -> bool:
        return any(name in self.model_endpoint for name in MODEL_VARIABLES[:3])

    @property
    def mcp_file(self) -> Path | None:
        return self.mcp_config or self.tools.mcp_config_path

    @property
    def skills(self) -> Path | None:
        return self.skills_dir or self.tools.skills_dir

    @classmethod
    def load(cls, config: Path | None = None, environ: Mapping[str, str] | None = None, **override: Any) -> Self:
        """Reads file and environment; ``override`` overrides both. Raises Misconfigured with the setting's name."""
        if environ is None:
            _forget_blank()
            environ = os.environ
        _warn_of_unknown(environ)
        found = written(config, environ, CAPS)
        values = found.values
        for name in _plain_fields():
            if (text := _variable(PREFIX + name.upper(), environ)) is not None:
                values[name] = text
        for table, (prefix, model) in _TABLES.items():
            for name in model.model_fields:
                if (text := _variable(f"{PREFIX}{prefix}{name.upper()}", environ)) is not None:
                    values.setdefault(table, {})[name] = text
        values["model_endpoint"] = {
            name: text for name in MODEL_VARIABLES if (text := _variable(name, environ)) is not None
        }
        values |= {
            name: value for name, value in {"trusted_folder": found.trusted, **override}.items() if value is not None
        }
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            mistakes = "; ".join(f"{m['pointer'].lstrip('/')}: {m['detail']}" for m in explain(error, cls))
            raise Misconfigured(f"settings: {mistakes}. Set {PREFIX}NAME or deputize.toml right.") from None

    def child_environment(self) -> dict[str, str]:
        """Returns the environment for this project's own child processes: all settings but the model's endpoint.

        They read no configuration file: its values are passed as variables.
        """
        keys = {name for known in MODEL_VARIABLES for name in (known, f"{known}_FILE")}
        passed = {name: text for name, text in os.environ.items() if name not in keys}
        passed[PREFIX + "CONFIG"] = os.devnull
        passed |= _variables(PREFIX, {name: getattr(self, name) for name in _plain_fields()})
        for table, (prefix, _) in _TABLES.items():
            passed |= _variables(PREFIX + prefix, dict(getattr(self, table)))
        return passed

    def endpoint_variables(self) -> dict[str, str]:
        """Returns the model endpoint's variables, for workers only."""
        return {name: secret.get_secret_value() for name, secret in self.model_endpoint.items()}


def environment() -> Mapping[str, str]:
    """Returns the process's variables, for an operator's file that refers to some of them (``${VAR}`` in mcp.json).

    Callers use the variables that the file names, and pass on no others.
    """
    return os.environ


def header_pairs(lines: str) -> list[tuple[str, str]]:
    """Returns names and values of headers written as ``Name: value``, one per line."""
    pairs = (line.partition(":") for line in lines.splitlines())
    return [(name.strip(), value.strip()) for name, colon, value in pairs if colon]


def header_values(lines: str) -> list[str]:
    """Returns the values of headers written as ``Name: value``, one per line, without a scheme such as ``Bearer``."""
    return [_SCHEME.sub("", value) for _, value in header_pairs(lines)]


def _credentials(url: str | None) -> list[str]:
    """Returns the user and the password in a URL, as written and as sent. The rest of it is not secret."""
    userinfo, at, _ = (urlsplit(url).netloc if url else "").rpartition("@")
    parts = [part for part in (userinfo, *userinfo.partition(":")[::2]) if part] if at else []
    return list(dict.fromkeys([*parts, *map(unquote, parts)]))


def _warn_of_unknown(environ: Mapping[str, str]) -> None:
    """Logs a warning for each variable that is not a setting: a misspelt one would silently have no effect."""
    tables = [f"{prefix}{name}" for prefix, model in _TABLES.values() for name in model.model_fields]
    known = [PREFIX + name.upper() for name in ("config", *_plain_fields(), *tables)]
    known += [f"{name}_FILE" for name in (*known, *MODEL_VARIABLES)]
    for name, value in environ.items():
        if value and name.upper().startswith(PREFIX) and name not in known:
            hint = did_you_mean(name.upper()[:100], known, 1)
            said = f"; {hint}" if hint else ""
            log.warning("the variable %s is not a setting and has no effect%s", visible(name[:100]), said)


def _forget_blank() -> None:
    """Unsets blank variables, for the libraries too: some of them take an empty text for an address or a file."""
    for name, text in list(os.environ.items()):
        if not text.strip() and _READ_BY_LIBRARIES.fullmatch(name):
            del os.environ[name]


def _plain_fields() -> set[str]:
    return set(Settings.model_fields) - {"model_endpoint", *_TABLES}


def _variables(prefix: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the values as environment variables, without those that are None."""
    texts: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, SecretStr):
            texts[prefix + name.upper()] = value.get_secret_value()
        elif value is not None:
            listed = value if isinstance(value, list) else [value]
            texts[prefix + name.upper()] = ",".join(map(str, listed))
    return texts


def _variable(name: str, environ: Mapping[str, str]) -> str | None:
    """Returns a variable's text, or that of the file in its ``_FILE`` variable. Empty counts as unset."""
    text = environ.get(name, "")
    if text.strip():
        return text
    if not (path := environ.get(f"{name}_FILE", "").strip()):
        return None
    try:
        return Path(path).read_text("utf-8").strip() or None
    except OSError as error:
        raise Misconfigured(f"{name}_FILE names {path}, which cannot be read: {error.strerror}") from None
